"""Timing tables, kernel waits and the budget of a token, with the seed's own figures as gold."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.bench.logs import LogReport, catalogue, document, read_log
from stack.model.log import samples
from stack.model.log.budget import ms_per_token, token_budget
from stack.model.log.samples import Samples
from stack.model.log.timing import Row

numpy = pytest.importorskip("numpy")
SHIPPED = catalogue()
SUMMARY = """\
The summary run used synchronized rank-0 timing:
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
The summary includes prefill and first-token outliers.
"""
ROWS = [
    ("runner.forward", 64, 3648.739, 57.012),
    ("moe.quant_apply", 4154, 1798.944, 0.433),
    ("moe.fused_experts_fallback", 186, 814.829, 4.381),
    ("moe.llm_scaler_u4_bridge", 3968, 600.819, 0.151),
    ("moe.router_select", 4154, 284.095, 0.068),
    ("runner.preprocess", 66, 76.845, 1.164),
    ("runner.postprocess", 64, 45.556, 0.712),
]
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
Eager mode changes the execution and is much slower.
"""
PROSE = """\
1753 kernel wait samples
median wait: 0.044650 ms
average wait: 0.057533 ms
p95 wait: 0.088551 ms
max wait: 2.051210 ms
"""
PREFIX = "(Worker_TP0 pid=7) INFO 11-30 07:58:41 [decode_timing.py:97] "


def read(text: str) -> LogReport:
    return read_log([text.encode()], SHIPPED)


def as_tuples(rows: list[Row]) -> list[tuple[object, ...]]:
    return [(r.label, r.count, r.total_ms, r.avg_ms) for r in rows]


@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_the_summary_table_as_the_seed_wrote_it(prefix: str) -> None:
    found = read("".join(prefix + line + "\n" for line in SUMMARY.splitlines()))
    assert as_tuples(found.timings.rows) == ROWS


def test_the_summary_table_as_the_patch_prints_it() -> None:
    lines = ["decode-timing summary rank=1 pid=77"]
    lines.append(f"{'label':<28} {'count':>8} {'total_ms':>12} {'avg_ms':>10} {'max_ms':>10}")
    lines += [f"{n:<28} {c:>8} {t:>12.3f} {a:>10.3f} {2 * a:>10.3f}" for n, c, t, a in ROWS]
    text = "".join(PREFIX + line + "\n" for line in lines) + "nanobind: leaked 4 instances!\n" * 200
    found = read(text).timings
    assert as_tuples(found.rows) == ROWS
    assert {row.rank for row in found.rows} == {1}
    assert found.rows[0].max_ms == pytest.approx(2 * 57.012)
    assert not found.wants_all


def test_the_eager_table() -> None:
    found = read(EAGER).timings
    assert [(r.label, r.avg_ms) for r in found.eager] == [
        ("qkv", 0.034), ("qk_norm", 0.247), ("rope", 0.018), ("kv_attention", 0.098),
        ("o_proj", 0.092), ("router_linear", 0.073), ("experts_total", 0.145),
        ("tp.all_reduce.direct", 0.047),
    ]  # fmt: skip


def test_kernel_waits_in_prose() -> None:
    wait = read(PROSE).timings.prose
    assert (wait.count, wait.median, wait.mean) == (1753, 0.04465, 0.057533)
    assert (wait.p95, wait.max) == (0.088551, 2.05121)


def test_the_seeds_budget() -> None:
    found = token_budget(waits=0.044650, layers=62, output_tokens_per_second=37.136187)
    assert found is not None
    assert found.ms_per_token == pytest.approx(26.9, abs=0.05)
    assert found.parts[0].per_layer_ms == pytest.approx(0.09, abs=0.001)
    assert found.parts[0].ms == pytest.approx(5.5, abs=0.05)
    assert found.parts[0].share == pytest.approx(0.206, abs=0.001)
    steady = (
        [f"decode-timing rank=0 label=runner.forward count={i} ms=45.000" for i in range(1, 4)]
        + [f"decode-timing rank=0 label=moe.router_select count={i} ms=0.060" for i in range(1, 9)]
        + [f"decode-timing rank=0 label=moe.quant_apply count={i} ms=0.180" for i in range(1, 9)]
    )
    log = read(SUMMARY + "".join(PREFIX + line + "\n" for line in steady)).timings
    budget = token_budget(rows=log.rows, steps=log.steps())
    assert budget is not None
    assert budget.layers == 62  # 3968 bridge calls over 64 forward passes
    part = {p.name: p for p in budget.parts}["router and apply"]
    assert part.per_layer_ms == pytest.approx(0.24)
    assert part.ms == pytest.approx(14.88)
    assert budget.rest_ms == pytest.approx(30.12)


def test_nothing_to_set_against() -> None:
    assert token_budget(output_tokens_per_second=10.0) is None
    assert ms_per_token(20.0) == 50.0
    only = token_budget(rows=[Row(label="runner.forward", count=2, total_ms=20.0, avg_ms=10.0)])
    assert only is not None
    assert (only.layers, only.ms_per_token, only.rest_ms) == (None, 10.0, None)


def test_kernel_wait_lines() -> None:
    rng = random.Random(2)
    values = [f"{rng.lognormvariate(-3.1, 0.4):.6f}" for _ in range(4000)]
    kernels = ["moe tiny m up u4", "moe tiny m down u4"]
    text = "".join(
        f'(Worker_TP0 pid=7) llm-scaler-moe-trace device=xpu:0 kernel="{kernels[i % 2]}" '
        f"wait_ms={value}\n"
        for i, value in enumerate(values)
    )
    found = read(
        "start\n" + text + 'llm-scaler-moe-trace device=xpu:0 kernel="cut off" wait_'
    ).timings
    waits = found.waits()
    assert set(waits) == set(kernels)
    for i, kernel in enumerate(kernels):
        own = numpy.array([float(v) for v in values[i::2]])
        assert waits[kernel].count == 2000
        assert waits[kernel].median == pytest.approx(numpy.median(own))
        assert waits[kernel].p95 == pytest.approx(numpy.percentile(own, 95))
        assert waits[kernel].mean == pytest.approx(own.mean())
        assert waits[kernel].max == own.max()
    everything = found.all_waits()
    assert everything is not None
    assert everything.count == 4000
    assert everything.median == pytest.approx(numpy.median([float(v) for v in values]))
    assert found.unread == 1


@given(st.lists(st.floats(0.0, 1e4).map(lambda v: f"{v:.4f}"), min_size=1), st.integers(1, 50))
@settings(deadline=None)
def test_samples_are_numpys_quantiles(values: list[str], most: int) -> None:
    whole, bounded = Samples(), Samples()
    whole.add(v.encode() for v in values)
    original = samples._MOST_DISTINCT
    samples._MOST_DISTINCT = most
    try:
        for value in values:
            bounded.add([value.encode()])
    finally:
        samples._MOST_DISTINCT = original
    numbers = numpy.array([float(v) for v in values])
    for found, digits in ((whole.distribution(), 1e-9), (bounded.distribution(), 1e-3)):
        assert found is not None
        assert found.count == len(values)
        assert found.mean == pytest.approx(numbers.mean(), rel=1e-9)
        assert found.max == numbers.max()
        assert found.median == pytest.approx(numpy.median(numbers), rel=digits, abs=1e-12)
        assert found.p95 == pytest.approx(numpy.percentile(numbers, 95), rel=digits, abs=1e-12)
    assert whole.distribution() == whole.distribution()


def test_no_samples() -> None:
    empty = Samples()
    empty.add([b"", b"nan", b"1.2.3"])
    assert empty.distribution() is None
    assert empty.unread == 3


WORDS = [
    "decode-timing summary rank=0 pid=1", "label count total_ms avg_ms max_ms",
    "qkv 1 2.0 3.0 4.0",
    "| label | count | total ms | avg ms |", "|---|", "qkv |", "64 | 1.5 | 2.5 |", "",
    "nan inf 1 2",
    "steady per-layer rank-0 timings:", "qkv ~0.034 ms", "qkv ~0..4 ms", "max wait: 1.2.3 ms",
    "9999999999999999999999999 kernel wait samples", "1753 kernel wait samples",
    "decode-timing rank=0 label=qkv count=1 ms=0.1", "decode-timing rank=9 label=q count=1 ms=...",
    'llm-scaler-moe-trace device=xpu:0 kernel="k" wait_ms=0.1', "Throughput: 1..2 requests/s, ",
    'llm-scaler-moe-trace device=xpu:0 kernel="k', "GPU KV cache size: ,,, tokens", "KeyError: 1",
    "Traceback (most recent call last):", "Total num output tokens:  " + "9" * 400,
]  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from(["", PREFIX, "\r"]), st.sampled_from(WORDS)),
        min_size=1,
        max_size=40,
    )
)
@settings(deadline=None)
def test_any_mixture_of_lines_is_read(lines: list[tuple[str, str]]) -> None:
    report = read("".join(prefix + word + "\n" for prefix, word in lines))
    made = document(Path("x.log"), report, layers=62)
    assert msgspec.json.decode(msgspec.json.encode(made))["class"] == made["class"]
    assert report.diagnosis.lines == len(lines)


def test_tables_of_two_workers_may_be_mixed() -> None:
    one = ["decode-timing summary rank=0 pid=1", "label count total_ms avg_ms max_ms", "a 1 2 2 2"]
    two = ["decode-timing summary rank=1 pid=2", "label count total_ms avg_ms max_ms", "b 1 3 3 3"]
    text = "".join(
        f"(Worker_TP0 pid=1) {a}\n(Worker_TP1 pid=2) {b}\n" for a, b in zip(one, two, strict=True)
    )
    assert [(r.label, r.rank) for r in read(text).timings.rows] == [("a", 0), ("b", 1)]


def test_the_document_has_the_seeds_figures() -> None:
    log = "Throughput: 0.07 requests/s, 74.27 total tokens/s, 37.14 output tokens/s\n"
    found = document(Path("seed.log"), read(log + PROSE), layers=62)
    assert (found["path"], found["class"], found["cause"]) == ("seed.log", "ok", None)
    assert found["throughput"] == {"requests": 0.07, "total": 74.27, "output": 37.14, "line": 1}
    assert found["kernel_waits"]["all"]["median"] == 0.04465
    assert found["budget"]["parts"][0]["ms"] == pytest.approx(5.5366)
    assert found["budget"]["ms_per_token"] == pytest.approx(26.925, abs=1e-3)
