"""`stack diagnose` on logs: outcome, cause and figures, as text and as JSON."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.cli import Stack

GOOD = """\
(EngineCore pid=7) INFO 11-30 08:14:42 [cpu_worker.py:255] Explicitly set (0.06/3.61) GiB for KV \
cache on node 0.
(EngineCore pid=7) INFO 11-30 08:14:42 [kv_cache_utils.py:2032] GPU KV cache size: 16,384 tokens, \
Maximum concurrency for 512 tokens per request: 32.00x
(Worker_TP0 pid=9) INFO 11-30 08:14:50 [gpu_model_runner.py:7002] Graph capturing finished in 9 \
secs, took 1.15 GiB
(Worker_TP0 pid=9) INFO 11-30 08:14:50 [decorators.py:314] Directly load AOT compilation from path \
/c/torch_aot_compile/ab12cd34ef56ab12cd34ef56/rank_0_0/model
Throughput: 0.14 requests/s, 103.73 total tokens/s, 34.58 output tokens/s
"""
CRASH = """\
INFO 11-30 08:14:42 [core.py:112] Initializing a V1 LLM engine (v0.29.0) with config: model='m'
double free or corruption (!prev)
Fatal Python error: Aborted
"""
SUMMARY = """\
| label | count | total ms | avg ms |
|---|---|---|---|
runner.forward |
64 | 3648.739 | 57.012 |
moe.quant_apply |
4154 | 1798.944 | 0.433 |
moe.fused_experts_fallback |
186 | 814.829 | 4.381 |
moe.llm_scaler_u4_bridge |
3968 | 600.819 | 0.151 |
moe.router_select |
4154 | 284.095 | 0.068 |
runner.preprocess |
66 | 76.845 | 1.164 |
runner.postprocess |
64 | 45.556 | 0.712 |
"""
EAGER = """\
steady p50 per-layer rank-0 timings:
qkv ~0.034 ms
qk_norm ~0.247 ms
rope ~0.018 ms
kv_attention ~0.098 ms
o_proj ~0.092 ms
router_linear ~0.073 ms
experts_total ~0.145 ms
tp.all_reduce.direct ~0.047 ms, about three calls per layer
"""
WAITS = """\
1753 kernel wait samples
median wait: 0.044650 ms
average wait: 0.057533 ms
p95 wait: 0.088551 ms
max wait: 2.051210 ms
"""
STEPS = "".join(
    f"decode-timing rank=0 label={label} count={count} ms={ms}\n"
    for count in range(1, 4)
    for label, ms in (
        ("runner.forward", 45.0), ("moe.router_select", 0.06), ("moe.quant_apply", 0.18)
    )
)
RESULT = "Throughput: 0.07 requests/s, 74.27 total tokens/s, 37.14 output tokens/s\n"


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def rows(out: str, title: str) -> dict[str, list[str]]:
    """The cells of the table under a title, by the first one."""
    lines = out[out.index(f"\n{title}") + 1 :].splitlines()[3:]
    found = {}
    for line in lines:
        if not line.strip():
            break
        cells = [cell for cell in line.split("  ") if cell.strip()]
        found[cells[0]] = [cell.strip() for cell in cells[1:]]
    return found


def test_a_good_log_says_what_it_measured_and_needs_no_project(stack: Stack) -> None:
    write(stack.folder, "good.log", GOOD)
    out = stack.ok("diagnose", "good.log").out
    assert out.splitlines() == [
        "good.log: ok",
        "  throughput       34.58 output tok/s, 103.73 total tok/s, 0.14 requests/s (line 5)",
        "  KV cache         16,384 tokens, 0.06 GiB, 32 requests of the longest context",
        "  graph capture    9 s, 1.15 GiB",
        "  AOT compilation  loaded, hash ab12cd34ef56ab12cd34ef56",
    ]


def test_a_failed_log_says_why_and_where(stack: Stack) -> None:
    write(stack.folder, "good.log", GOOD)
    write(stack.folder, "bad.log", CRASH)
    done = stack("diagnose", "good.log", "bad.log")
    assert done.code == 1
    at = done.out.splitlines().index("bad.log: blocked:native_crash")
    assert done.out.splitlines()[at + 1] == "  bad.log:2: double free or corruption (!prev)"
    assert done.out.splitlines()[at + 2].startswith("  hint: memory was overwritten")
    data = stack("diagnose", "--json", "good.log", "bad.log").json
    assert data["exit_code"] == 1
    good, bad = data["data"]["logs"]
    assert (good["path"], good["class"], good["cause"], good["line"]) == (
        "good.log", "ok", None, None,
    )
    assert good["throughput"] == {"requests": 0.14, "total": 103.73, "output": 34.58, "line": 5}
    assert (good["kv_cache_tokens"], good["graph_seconds"], good["aot"]) == (16384, 9.0, "loaded")
    assert (bad["path"], bad["class"], bad["line"]) == ("bad.log", "blocked:native_crash", 2)
    assert bad["cause"] == "double free or corruption (!prev)"
    assert bad["throughput"] is None


def test_the_tables_of_times_come_out_as_they_went_in(stack: Stack) -> None:
    write(stack.folder, "t.log", SUMMARY + EAGER + WAITS + RESULT)
    out = stack.ok("diagnose", "t.log").out
    assert rows(out, "decode timing")["moe.quant_apply"] == ["4154", "1798.944", "0.433", "0"]
    assert rows(out, "decode timing")["runner.forward"] == ["64", "3648.739", "57.012", "0"]
    eager = rows(out, "eager timing")
    assert len(eager) == 8
    assert eager["qk_norm"] == ["0.247", "0"]
    waits = ["1753", "0.04465", "0.057533", "0.088551", "2.05121"]
    assert rows(out, "kernel waits")["all"] == waits


def test_the_time_of_a_token_over_62_layers(stack: Stack) -> None:
    write(stack.folder, "t.log", STEPS + WAITS + RESULT)
    out = stack.ok("diagnose", "--layers", "62", "t.log").out
    assert "\none token, 45.0 ms, 62 layers with experts\n" in out
    token = rows(out, "one token")
    assert token["router and apply"] == ["0.24", "62", "14.88", "33%"]
    assert token["kernel waits"] == ["0.0893", "62", "5.5366", "12%"]
    assert token["the forward pass besides"] == ["30.12"]
    write(stack.folder, "plain.log", WAITS + RESULT)
    out = stack.ok("diagnose", "--layers", "62", "plain.log").out
    assert rows(out, "one token, 26.9 ms") == {"kernel waits": ["0.0893", "62", "5.5366", "21%"]}
    assert stack("diagnose", "--layers", "0", "t.log").code == 2


def test_all_shows_what_else_the_log_complains_about(stack: Stack) -> None:
    write(stack.folder, "bad.log", CRASH + "RuntimeError: cancelled\n")
    assert "more: --all" in stack("diagnose", "bad.log").out
    assert "bad.log:4: blocked:" in stack("diagnose", "--all", "bad.log").out


def test_text_of_a_log_cannot_move_the_cursor(stack: Stack) -> None:
    begun = "Traceback (most recent call last):\n  x\n"
    write(stack.folder, "bad.log", f"{begun}KeyError: \x9b2J\u202e\n")
    done = stack("diagnose", "bad.log")
    assert done.code == 1
    assert "KeyError: \\x9b2J\\u202e" in done.out


@pytest.mark.parametrize(
    ("path", "text"),
    [("no.log", "no.log: no such file"), (".", "a folder, not a log")],
)
def test_what_is_no_log_is_named_before_anything_is_read(
    stack: Stack, path: str, text: str
) -> None:
    write(stack.folder, "good.log", GOOD)
    done = stack("diagnose", "good.log", path)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
    assert "hint: " in done.err
    assert stack("diagnose").code == 2


def test_an_empty_log_and_one_without_a_result_are_not_ok(stack: Stack) -> None:
    write(stack.folder, "empty.log", "")
    assert "empty.log: blocked:no_result" in stack("diagnose", "empty.log").out


def test_signatures_of_the_project_count(stack: Stack) -> None:
    write(stack.folder, "fan.log", "the fan of card 3 has stopped\n")
    own = (
        "schema = 1\n\n[[signature]]\nname = 'fan'\nclass = 'blocked:fan'\n"
        "pattern = 'fan of (?P<cause>card \\d+)'\nhint = 'look at it'\n"
    )
    write(stack.folder, "stack.toml", own)
    (log,) = stack("diagnose", "--json", "fan.log").json["data"]["logs"]
    assert (log["class"], log["line"], log["hint"]) == ("blocked:fan", 1, "look at it")


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("class = 'blocked:x'\npattern = '('\n", "bad pattern"),
        ("class = 'broken'\npattern = 'x'\n", "no such class: broken"),
        ("class = 'ok'\npattern = 'x'\ncolour = 1\n", "unknown key `signature[1].colour`"),
        ("class = 'ok'\n", "pattern"),
    ],
)
def test_a_bad_signature_is_named_with_its_line(stack: Stack, table: str, text: str) -> None:
    write(stack.folder, "good.log", GOOD)
    first = "schema = 1\n[[signature]]\nname = 'a'\nclass = 'ok'\npattern = 'x'\n"
    write(stack.folder, "stack.toml", f"{first}[[signature]]\nname = 'b'\n{table}")
    done = stack("diagnose", "good.log", "--json")
    assert done.code == 2
    (error,) = done.json["errors"]
    assert error["code"] == "config"
    line = error["message"].split(":")[1]
    assert error["message"].startswith("stack.toml:")
    assert int(line) in range(6, 11)
    assert text in error["message"]


def test_a_picture_shows_where_the_time_goes(stack: Stack) -> None:
    write(stack.folder, "t.log", STEPS + WAITS + RESULT)
    write(stack.folder, "sums <&.log", SUMMARY.replace("runner.preprocess", "a<b&c") + RESULT)
    write(stack.folder, "bad.log", CRASH)
    done = stack("diagnose", "--layers", "62", "--svg", "p.svg", "t.log", "sums <&.log", "bad.log")
    assert (done.code, done.err) == (1, "wrote p.svg\n")
    root = ElementTree.fromstring((stack.folder / "p.svg").read_text())
    panels = [
        [text.text for text in panel.iter() if text.tag.endswith("text")]
        for panel in root if panel.tag.endswith("}g")
    ]
    assert [panel[0] for panel in panels] == ["t.log", "sums <&.log", "bad.log"]
    assert panels[0][1:] == [
        "ok", "one token, 45.0 ms", "runner.forward", "45 ms, 100 %", "router and apply",
        "14.88 ms, 33 %", "kernel waits", "5.537 ms, 12 %",
    ]
    assert panels[2][1:] == ["blocked:native_crash", "the log holds no times"]
    widths = [float(e.attrib["width"]) for e in root.iter() if e.attrib.get("class") == "bar"]
    assert widths[1] / widths[0] == pytest.approx(14.88 / 45, rel=1e-3)
