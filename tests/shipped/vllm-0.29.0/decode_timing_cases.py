"""Cases for `decode-timing` on CPU: what is timed there, and that nothing else changes.

They run inside the engine's Python with the patch's layer first on PYTHONPATH; upstream's own
code is read from the installed package that the layer shadows. One case starts a real engine.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# Before torch is imported: without dynamo, because compiling the helpers of an eager run takes
# longer than the run, and with one thread, because nobody binds two of them to cores here.
os.environ |= {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}

import pytest
import torch
import vllm
from vllm import LLM, SamplingParams, envs
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import communication_op, parallel_state
from vllm.model_executor.layers.minimax_rms_norm import MiniMaxText01RMSNormTP
from vllm.model_executor.models import minimax_m2
from vllm.utils import decode_timing

ROOT = Path(__file__).parents[3]
NAMES = [f"VLLM_XPU_DECODE_TIMING{end}" for end in ("", "_SUMMARY", "_PRINT_EVERY", "_SYNC")]
LAYERS = 4
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    # No table when the test run ends.
    monkeypatch.setattr(decode_timing, "Finalize", lambda *args, **kwargs: None)
    envs.disable_envs_cache()
    decode_timing._recorder.cache_clear()
    yield
    decode_timing._recorder.cache_clear()


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    with set_current_vllm_config(VllmConfig()):
        rendezvous = f"file://{tmp_path / 'rendezvous'}"
        parallel_state.init_distributed_environment(1, 0, rendezvous, 0, backend="gloo")
        parallel_state.initialize_model_parallel(1, 1)
        yield
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


def switch(monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    """Turn the summary on or off for this process."""
    monkeypatch.setenv("VLLM_XPU_DECODE_TIMING_SUMMARY", str(int(on)))
    envs.disable_envs_cache()
    decode_timing._recorder.cache_clear()


def counts() -> dict[str, int]:
    return {label: stat.count for label, stat in decode_timing._recorder().stats.items()}


def upstream(name: str) -> ModuleType:
    """Load module `name` from the installed package, under another name."""
    layer = Path(vllm.__file__).parents[1]
    relative = Path(*name.split(".")).with_suffix(".py")
    places = [Path(entry) / relative for entry in sys.path if Path(entry) != layer]
    path = next(place for place in places if place.is_file())
    text = path.read_text()
    assert "decode_timing" not in text
    assert "decode_timing" in (layer / relative).read_text()
    # A relative import needs the package's name.
    spec = importlib.util.spec_from_file_location(f"{name}_upstream", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trace(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *args: Any) -> str:
    """Return the code of the one graph that `function` is for torch.compile."""
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")
    graphs: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph.print_readable(print_output=False, include_stride=True))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*args)
    (graph,) = graphs
    # Comments name the source file and line of each operation.
    return "\n".join(line for line in graph.splitlines() if "#" not in line)


class Attention(torch.nn.Module):
    """What MiniMaxM2Attention.forward uses, with plain matrices for packed ones."""

    def __init__(self) -> None:
        super().__init__()
        self.q_size, self.kv_size = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        self.q_norm = MiniMaxText01RMSNormTP(self.q_size)
        self.k_norm = MiniMaxText01RMSNormTP(self.kv_size)
        generator = torch.Generator().manual_seed(0)
        for norm in (self.q_norm, self.k_norm):
            norm.weight.data.normal_(generator=generator)
        self.matrix = torch.randn(64, self.q_size + 2 * self.kv_size, generator=generator)

    def qkv_proj(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return x @ self.matrix, None

    def rotary_emb(self, positions: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> Any:
        return q * positions[:, None], k * positions[:, None]

    def attn(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return q + torch.cat((k, v), dim=-1)

    def o_proj(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return x @ self.matrix[:, : self.q_size].t(), None


class Block(torch.nn.Module):
    """What MiniMaxM2MoE.forward uses."""

    def gate(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return x[:, :4].float(), None

    def experts(self, hidden_states: torch.Tensor, router_logits: torch.Tensor) -> torch.Tensor:
        return hidden_states * router_logits.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("on", [False, True])
def test_attention_graph_and_values_are_upstreams(
    one_rank: None, monkeypatch: pytest.MonkeyPatch, on: bool
) -> None:
    module = upstream("vllm.model_executor.models.minimax_m2")
    attention = Attention()
    args = (attention, torch.arange(3), torch.randn(3, 64))
    ours, theirs = minimax_m2.MiniMaxM2Attention.forward, module.MiniMaxM2Attention.forward
    switch(monkeypatch, on)
    graph = trace(monkeypatch, ours, *args)
    assert "rsqrt" in graph
    assert graph == trace(monkeypatch, theirs, *args)
    assert counts() == {}
    assert torch.equal(ours(*args), theirs(*args))
    labels = ["qkv", "qk_norm", "rope", "kv_attention", "o_proj"]
    assert counts() == (dict.fromkeys(labels, 1) if on else {})


@pytest.mark.parametrize("on", [False, True])
def test_experts_graph_and_values_are_upstreams(monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    module = upstream("vllm.model_executor.models.minimax_m2")
    args = (Block(), torch.randn(3, 64))
    ours, theirs = minimax_m2.MiniMaxM2MoE.forward, module.MiniMaxM2MoE.forward
    switch(monkeypatch, on)
    assert trace(monkeypatch, ours, *args) == trace(monkeypatch, theirs, *args)
    assert counts() == {}
    assert torch.equal(ours(*args), theirs(*args))
    assert counts() == ({"router_linear": 1, "experts_total": 1} if on else {})


def test_all_reduce_is_timed(one_rank: None, monkeypatch: pytest.MonkeyPatch) -> None:
    switch(monkeypatch, True)
    x = torch.randn(3)
    assert torch.equal(communication_op.tensor_model_parallel_all_reduce(x), x)
    assert counts() == {"tp.all_reduce": 1}


def test_a_real_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Same tokens off and on; every label of the CPU runner counted once a step and layer."""
    maker = ROOT / "scripts" / "make_model.py"
    model = tmp_path / "model"
    command = [sys.executable, str(maker), "--scoring", "softmax", "--out", str(model)]
    subprocess.run(command, check=True)
    # In this process, so that its times can be read.
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path / "cache"))
    llm = LLM(
        str(model),
        dtype="bfloat16",
        enforce_eager=True,
        max_model_len=128,
        kv_cache_memory_bytes=64 << 20,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    new_tokens = 6
    sampling = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
    prompts = [{"prompt_token_ids": [5, 9, 200, 7]}, {"prompt_token_ids": [1000, 4, 17, 300]}]
    tokens = []
    for on in (False, True):
        switch(monkeypatch, on)
        answers = llm.generate(prompts, sampling, use_tqdm=False)
        tokens.append([list(answer.outputs[0].token_ids) for answer in answers])
        if not on:
            assert counts() == {}
    assert tokens[0] == tokens[1]
    found = counts()
    steps = found["runner.forward"]
    assert steps in (new_tokens, new_tokens + 1)  # the two prompts may start one step apart
    assert found.pop("runner.preprocess") >= steps
    per_step = {"runner.forward", "runner.postprocess"}
    per_layer = {
        *("qkv", "qk_norm", "rope", "kv_attention", "o_proj", "router_linear", "experts_total"),
        *("moe.quant_apply", "moe.router_select", "moe.cpu_experts"),
    }
    expected = dict.fromkeys(per_step, steps) | dict.fromkeys(per_layer, steps * LAYERS)
    assert found == expected
    table = decode_timing._recorder().table()
    assert table.splitlines()[1].split() == ["label", "count", "total_ms", "avg_ms", "max_ms"]


def test_the_switches_are_registered_and_off_by_default() -> None:
    assert [getattr(envs, name) for name in NAMES] == [False, False, 1, False]
    assert set(NAMES) <= set(envs.compile_factors())
    assert not decode_timing._recorder().enabled
