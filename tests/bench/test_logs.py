"""What is read from an engine's log besides its ending."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.bench import logs
from stack.model.log.engine import Throughput

SHIPPED = logs.catalogue()
GPU = """\
(Worker_TP0 pid=9) INFO 11-30 07:40:12 [gpu_model_runner.py:5472] Model loading took 28.01 GiB \
memory and 101.250000 seconds
(Worker_TP0 pid=9) INFO 11-30 07:41:12 [decorators.py:314] Directly load AOT compilation from path \
/c/torch_compile_cache/torch_aot_compile/ab12cd34ef56ab12cd34ef56/rank_0_0/model
(Worker_TP0 pid=9) INFO 11-30 07:41:12 [gpu_worker.py:626] Available KV cache memory: 1.02 GiB
(Worker_TP1 pid=8) INFO 11-30 07:41:12 [gpu_worker.py:626] Available KV cache memory: 0.56 GiB
(EngineCore pid=7) INFO 11-30 07:41:13 [kv_cache_utils.py:2032] GPU KV cache size: 4,224 tokens, \
Maximum concurrency for 2,048 tokens per request: 2.06x
(Worker_TP0 pid=9) INFO 11-30 07:41:22 [gpu_model_runner.py:7002] Graph capturing finished in 9 \
secs, took 1.15 GiB
(EngineCore pid=7) INFO 11-30 07:41:22 [core.py:368] init engine (profile, create kv cache, warmup \
model) took 70.50 s (compilation: 61.00 s)
WARNING 11-30 07:40:01 [envs.py:2248] Unknown vLLM environment variable detected: VLLM_XPU_X
Throughput: 0.13 requests/s, 98.17 total tokens/s, 32.72 output tokens/s
Total num prompt tokens:  512
Total num output tokens:  256
"""


def test_numbers_of_a_device_run() -> None:
    report = logs.read_log([GPU.encode()], SHIPPED, exit_code=0)
    facts = report.facts
    assert report.diagnosis.outcome == "ok"
    assert facts.throughput == [Throughput(0.13, 98.17, 32.72, line=9)]
    assert (facts.prompt_tokens, facts.output_tokens) == (512, 256)
    assert (facts.kv_cache_tokens, facts.max_concurrency) == (4224, 2.06)
    assert facts.kv_cache_gib == 0.56
    assert (facts.graph_seconds, facts.graph_gib) == (9.0, 1.15)
    assert (facts.model_gib, facts.load_seconds) == (28.01, 101.25)
    assert (facts.aot, facts.aot_hash) == ("loaded", "ab12cd34ef56ab12cd34ef56")
    assert facts.init_seconds == 70.5
    assert facts.unknown_env == ["VLLM_XPU_X"]


def test_numbers_of_a_cpu_run() -> None:
    log = (
        b"(Worker pid=1) INFO 11-30 07:46:09 [default_loader.py:430] Loading weights took 0.04 "
        b"seconds\n(Worker pid=1) INFO 11-30 07:46:09 [cpu_worker.py:255] Explicitly set "
        b"(0.25/13.84) GiB for KV cache on node 0.\n"
        b"(Worker pid=1) INFO 11-30 07:46:09 [monitor.py:48] torch.compile took 12.34 s in total\n"
        b"(Worker pid=1) INFO 11-30 07:46:09 [decorators.py:720] saved AOT compiled function to "
        b"/c/torch_aot_compile/0123456789abcdef0123/rank_0_0/model\n"
    )
    facts = logs.read_log([log], SHIPPED).facts
    assert (facts.load_seconds, facts.kv_cache_gib, facts.compile_seconds) == (0.04, 0.25, 12.34)
    assert (facts.aot, facts.aot_hash) == ("compiled", "0123456789abcdef0123")


def test_seed_throughput_lines_without_prefix() -> None:
    text = b"GPU KV cache size: 4,224 tokens\n" + b"Throughput: 0.14 requests/s, 103.73 total "
    report = logs.read_log([text + b"tokens/s, 34.58 output tokens/s\n"], SHIPPED)
    assert report.facts.kv_cache_tokens == 4224
    assert report.facts.throughput[0].output == 34.58


@given(st.binary(max_size=300), st.integers(1, 64))
@settings(deadline=None)
def test_blocks_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "x.log"
    path.write_bytes(data)
    original = logs.BLOCK
    logs.BLOCK = size
    try:
        found = list(logs.blocks(path))
    finally:
        logs.BLOCK = original
    assert b"".join(found) == data
    assert all(block.endswith(b"\n") for block in found[:-1])


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"x" * (12 << 20) + b"\nRuntimeError: cancelled\n")
    assert max(map(len, logs.blocks(path))) <= 7 << 20
    report = logs.read_log(logs.blocks(path), SHIPPED, exit_code=1)
    assert report.diagnosis.signature == "cancelled"


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_any_bytes_are_diagnosed(data: bytes) -> None:
    assert logs.read_log([data], SHIPPED, exit_code=1).diagnosis.outcome == "blocked:exit"
