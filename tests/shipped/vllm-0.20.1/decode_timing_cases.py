"""Decode timers: what they print, what they record, and that traced graphs do not change."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from cpu_engine import default_dtype, fill, inc_config, minimax_config, use_platform
from u4_kernel import HIDDEN, install
from u4_layers import load, record_fallbacks, xpu_engine
from upstream_code import module_without, trace
from vllm import envs
from vllm.distributed import communication_op
from vllm.model_executor.models import minimax_m2
from vllm.utils import decode_timing
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

Counts = Callable[[], dict[str, int]]
NAMES = [f"VLLM_XPU_DECODE_TIMING{end}" for end in ("", "_SUMMARY", "_PRINT_EVERY", "_SYNC")]


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    # No table at the end of the test run; a program of its own shows the tables below.
    monkeypatch.setattr(decode_timing, "Finalize", lambda *args, **kwargs: None)
    decode_timing._recorder.cache_clear()
    with xpu_engine(monkeypatch):
        yield
    decode_timing._recorder.cache_clear()


@pytest.fixture
def timing(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """Timing on, without lines; gives the number of calls by label."""
    monkeypatch.setenv("VLLM_XPU_DECODE_TIMING_SUMMARY", "1")
    decode_timing._recorder.cache_clear()

    def counts() -> dict[str, int]:
        return {label: stat.count for label, stat in decode_timing._recorder().stats.items()}

    return counts


@pytest.fixture(scope="session")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    return partial(
        module_without, tmp_path_factory.mktemp("unpatched"), "decode-timing", marker="timed("
    )


def make_attention() -> torch.nn.Module:
    with use_platform("cpu"):
        attention = minimax_m2.MiniMaxM2Attention(
            hidden_size=HIDDEN,
            num_heads=4,
            num_kv_heads=2,
            head_dim=64,
            rotary_dim=32,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            prefix="model.layers.0.self_attn",
        )
    torch.manual_seed(0)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter.data, std=0.05)
    # Compiled kernels and a KV cache are not here; any function of q, k, v will do.
    attention.attn = _Attend()
    return attention


class _Attend(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return q + torch.cat((k, v), dim=-1)


def make_block() -> torch.nn.Module:
    with default_dtype(torch.float16):
        block = minimax_m2.MiniMaxM2MoE(minimax_config(), inc_config(), prefix="model.layers.0.mlp")
    block.gate.weight.data.normal_()
    return block


def turn(on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_XPU_DECODE_TIMING", str(int(on)))
    decode_timing._recorder.cache_clear()


@pytest.mark.parametrize("on", [False, True])
def test_the_attention_graph_is_upstreams(
    on: bool, monkeypatch: pytest.MonkeyPatch, unpatched: Callable[[str], ModuleType]
) -> None:
    attention = make_attention()
    ours = type(attention).forward
    theirs = unpatched("vllm.model_executor.models.minimax_m2").MiniMaxM2Attention.forward
    assert inspect.getsource(ours) != inspect.getsource(theirs)
    turn(on, monkeypatch)
    x, positions = torch.randn(3, HIDDEN), torch.arange(3)
    graph = trace(ours, attention, positions, x)
    assert graph == trace(theirs, attention, positions, x)
    assert "rsqrt" in graph
    assert not decode_timing._recorder().stats


@pytest.mark.parametrize("on", [False, True])
def test_the_experts_graph_is_upstreams(
    on: bool, monkeypatch: pytest.MonkeyPatch, unpatched: Callable[[str], ModuleType]
) -> None:
    block = make_block()
    theirs = unpatched("vllm.model_executor.models.minimax_m2").MiniMaxM2MoE.forward
    turn(on, monkeypatch)
    x = torch.randn(3, HIDDEN, dtype=torch.float16)
    graph = trace(type(block).forward, block, x)
    assert graph == trace(theirs, block, x)
    assert "moe_forward" in graph
    assert not decode_timing._recorder().stats


@pytest.mark.parametrize("on", [False, True])
def test_the_all_reduce_graph_is_upstreams(
    on: bool, monkeypatch: pytest.MonkeyPatch, unpatched: Callable[[str], ModuleType]
) -> None:
    group = SimpleNamespace(all_reduce=lambda x: x * 4)
    theirs = unpatched("vllm.distributed.communication_op")
    for module in (communication_op, theirs):
        monkeypatch.setattr(module, "get_tp_group", lambda: group)
    turn(on, monkeypatch)
    ours = communication_op.tensor_model_parallel_all_reduce
    graph = trace(ours, torch.ones(2))
    assert graph == trace(theirs.tensor_model_parallel_all_reduce, torch.ones(2))
    assert torch.equal(ours(torch.ones(2)), torch.full((2,), 4.0))
    assert list(decode_timing._recorder().stats) == (["tp.all_reduce"] if on else [])


def test_eager_attention_is_timed_and_equal_to_upstreams(
    timing: Counts, unpatched: Callable[[str], ModuleType]
) -> None:
    attention = make_attention()
    x, positions = torch.randn(3, HIDDEN), torch.arange(3)
    theirs = unpatched("vllm.model_executor.models.minimax_m2").MiniMaxM2Attention.forward
    expected = theirs(attention, positions, x)
    assert timing() == {}
    assert torch.equal(attention.forward(positions, x), expected)
    assert timing() == dict.fromkeys(["qkv", "qk_norm", "rope", "kv_attention", "o_proj"], 1)


def test_the_parts_of_an_eager_moe_block_are_timed(
    timing: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = make_block()
    package = install(monkeypatch, "custom_esimd_kernels_vllm")
    fallbacks = record_fallbacks(monkeypatch)
    experts = load(fill(block.experts, seed=0))
    # vLLM's top-k is a compiled kernel.
    experts.runner.router = SimpleNamespace(select_experts=select_experts)
    experts.runner._forward_entry = lambda x, logits, shared, ids, name: (
        experts.runner._apply_quant_method(experts, x, logits, shared, ids)[1]
    )
    for tokens in (1, 2, 7):
        out = block(torch.randn(tokens, HIDDEN, dtype=torch.float16))
        assert out.shape == (tokens, HIDDEN)
    assert (len(package.calls), len(fallbacks)) == (2, 1)
    assert timing() == {
        "router_linear": 3,
        "experts_total": 3,
        "moe.router_select": 3,
        "moe.quant_apply": 3,
        "moe.llm_scaler_u4_bridge": 2,
        "moe.fused_experts_fallback": 1,
    }


def select_experts(
    hidden_states: torch.Tensor, router_logits: torch.Tensor, input_ids: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    weights, ids = router_logits.softmax(-1).topk(2)
    return weights, ids.to(torch.int32)


def test_the_runner_times_its_three_sections() -> None:
    # A whole step needs an engine, so: each section stands beside upstream's own scope of it.
    tree = ast.parse(textwrap.dedent(inspect.getsource(GPUModelRunner.execute_model)))
    scopes = [
        [ast.unparse(item.context_expr) for item in node.items]
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
    ]
    for part in ("preprocess", "forward", "postprocess"):
        upstreams = f"record_function_or_nullcontext('gpu_model_runner: {part}')"
        (scope,) = [scope for scope in scopes if upstreams in scope]
        assert scope[scope.index(upstreams) + 1] == f"timed('runner.{part}')"


def test_a_section_that_raises_is_not_counted(timing: Counts) -> None:
    with pytest.raises(KeyError), decode_timing.timed("broken"):
        raise KeyError
    assert timing() == {}


def test_sync_waits_for_the_device_around_a_section(
    timing: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []
    capturing = False
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: waits.append(True))
    monkeypatch.setattr(decode_timing, "_is_capturing", lambda: capturing)
    for setting, expected in (("0", 0), ("1", 2)):
        monkeypatch.setenv("VLLM_XPU_DECODE_TIMING_SYNC", setting)
        decode_timing._recorder.cache_clear()
        with decode_timing.timed("a"):
            assert len(waits) == expected / 2
        assert len(waits) == expected
    capturing = True
    with decode_timing.timed("a"):
        pass
    assert len(waits) == 2


def test_the_switches_are_registered_and_off_by_default() -> None:
    assert [getattr(envs, name) for name in NAMES] == [False, False, 1, False]
    assert set(NAMES) <= set(envs.compile_factors())
    assert not decode_timing._recorder().enabled


PROGRAM = """
import multiprocessing
from vllm.utils.decode_timing import timed

def work(calls):
    for _ in range(calls):
        with timed("part"):
            pass

if __name__ == "__main__":
    work(4)
    for method, calls in (("fork", 6), ("spawn", 2)):
        child = multiprocessing.get_context(method).Process(target=work, args=(calls,))
        child.start()
        child.join()
"""


@pytest.mark.parametrize(
    ("settings", "lines", "tables"),
    [
        ({}, 0, []),
        ({"": "1"}, 12, []),
        ({"": "1", "_PRINT_EVERY": "2"}, 6, []),
        ({"": "1", "_PRINT_EVERY": "0"}, 0, ["2", "4", "6"]),
        ({"": "1", "_SUMMARY": "1", "_PRINT_EVERY": "5"}, 1, ["2", "4", "6"]),
        ({"_SUMMARY": "1"}, 0, ["2", "4", "6"]),
    ],
)
def test_lines_and_tables_of_three_processes(
    settings: dict[str, str], lines: int, tables: list[str], tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {f"VLLM_XPU_DECODE_TIMING{end}": value for end, value in settings.items()}
    out = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.count("decode-timing rank=0 label=part count=") == lines
    assert out.count("decode-timing summary rank=0 pid=") == len(tables)
    rows = [line.split("] ")[-1].split() for line in out.splitlines() if "] part " in line]
    assert sorted(row[1] for row in rows) == tables
    for _, count, total, average, longest in rows:
        assert float(average) == pytest.approx(float(total) / int(count), abs=1e-3)
        assert float(longest) <= float(total) + 1e-3
