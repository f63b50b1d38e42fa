"""MiniMax-M2's router in float16, and unchanged without the switch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest
import torch
from cpu_engine import default_dtype, engine, inc_config, minimax_config, use_platform
from upstream_code import module_without, trace
from vllm import envs
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.models import minimax_m2

SWITCH = "VLLM_MINIMAX_M2_FP16_ROUTER"


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH, raising=False)
    with engine(), use_platform("xpu"):
        yield


@pytest.fixture(scope="session")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    return partial(
        module_without, tmp_path_factory.mktemp("unpatched"), "fp16-router", marker="gate_dtype"
    )


class Routed(torch.nn.Module):
    """Stands for the experts: gives back what it was given."""

    def forward(self, hidden_states: torch.Tensor, router_logits: torch.Tensor) -> torch.Tensor:
        self.logits = router_logits
        return hidden_states


def make_block(index: int = 0, dtype: torch.dtype = torch.float16) -> Any:
    with default_dtype(dtype):
        block = minimax_m2.MiniMaxM2MoE(
            minimax_config(), inc_config(), prefix=f"model.layers.{index}.mlp"
        )
    generator = torch.Generator().manual_seed(0)
    block.gate.weight.data.copy_(torch.randn(block.gate.weight.shape, generator=generator) * 0.05)
    block.gate.quant_method.process_weights_after_loading(block.gate)
    return block


def logits_of(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.experts = Routed()
    block(x)
    return block.experts.logits


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_the_logits_are_a_float16_product_in_float32(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    block = make_block(dtype=dtype)
    x = torch.randn(3, 256).to(dtype)
    logits = logits_of(block, x)
    expected = torch.nn.functional.linear(x.half(), block.gate.weight.half()).float()
    assert logits.dtype == torch.float32
    assert torch.equal(logits, expected)
    exact = x.float() @ block.gate.weight.T
    assert not torch.equal(logits, exact)
    torch.testing.assert_close(logits, exact, rtol=1e-2, atol=1e-2)


def test_the_copy_is_made_after_loading_and_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    block = make_block()
    gate = block.gate
    assert gate.weight.dtype == torch.float32
    assert torch.equal(gate.weight_fp16, gate.weight.half())
    assert set(gate.state_dict()) == {"weight"}
    # Weights that are loaded again are copied again.
    gate.weight.data.mul_(2)
    gate.quant_method.process_weights_after_loading(gate)
    assert torch.equal(gate.weight_fp16, gate.weight.half())


def test_off_the_block_is_upstreams(unpatched: Callable[[str], ModuleType]) -> None:
    theirs = unpatched("vllm.model_executor.models.minimax_m2").MiniMaxM2MoE.forward
    block = make_block()
    assert type(block.gate.quant_method) is UnquantizedLinearMethod
    assert not hasattr(block.gate, "weight_fp16")
    x = torch.randn(3, 256, dtype=torch.float16)
    assert trace(type(block).forward, block, x) == trace(theirs, block, x)
    ours = logits_of(block, x)
    theirs(block, x)
    assert torch.equal(ours, block.experts.logits)


def test_on_the_graph_has_one_float16_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    graph = trace(type(block := make_block()).forward, block, torch.randn(3, 256).half())
    assert graph.count("linear(") == 1
    assert "torch.float16" in graph


def test_the_switch_is_registered_and_off_by_default() -> None:
    assert envs.VLLM_MINIMAX_M2_FP16_ROUTER is False
    assert SWITCH in envs.compile_factors()
