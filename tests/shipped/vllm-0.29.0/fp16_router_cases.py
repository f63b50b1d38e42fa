"""GateLinear's float16 copy for MiniMax-M2's router, and upstream's gate without the switch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import pytest
import torch
from cpu_engine import default_dtype, engine, minimax_config
from upstream_code import module_without, trace
from vllm import envs
from vllm.model_executor.layers.fused_moe.router.gate_linear import Fp16GateMethod, GateLinear
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.models import minimax_m2

SWITCH = "VLLM_MINIMAX_M2_FP16_ROUTER"
GATE = "vllm.model_executor.layers.fused_moe.router.gate_linear"
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(SWITCH, raising=False)
    # The weight stays with torch: what oneDNN makes of it is another patch's business.
    monkeypatch.setenv("VLLM_CPU_USE_ONEDNN", "0")
    monkeypatch.setattr(UnquantizedLinearMethod, "process_weights_after_loading", lambda *_: None)
    monkeypatch.setattr(UnquantizedLinearMethod, "apply", _linear)
    with engine():
        yield


def _linear(
    _: UnquantizedLinearMethod, layer: torch.nn.Module, x: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    return torch.nn.functional.linear(x, layer.weight, bias)


@pytest.fixture(scope="session")
def unpatched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    return partial(
        module_without, tmp_path_factory.mktemp("unpatched"), "fp16-router", marker="fp16_copy"
    )


def make_gate(kind: type[GateLinear] = GateLinear, **changes: object) -> GateLinear:
    """MiniMax-M2's gate: float32 weights and logits."""
    gate = kind(
        256, 8, bias=False, params_dtype=torch.float32, out_dtype=torch.float32,
        prefix=f"gate.{next(_numbers)}", **changes,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    gate.weight.data.copy_(torch.randn(gate.weight.shape, generator=generator) * 0.05)
    gate.quant_method.process_weights_after_loading(gate)
    return gate


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_on_the_logits_are_a_float16_product_in_float32(dtype: torch.dtype) -> None:
    gate = make_gate(fp16_copy=True)
    x = torch.randn(3, 256).to(dtype)
    logits, bias = gate(x)
    expected = torch.nn.functional.linear(x.half(), gate.weight.half()).float()
    assert bias is None
    assert logits.dtype == torch.float32
    assert torch.equal(logits, expected)
    exact = x.float() @ gate.weight.T
    assert not torch.equal(logits, exact)
    torch.testing.assert_close(logits, exact, rtol=1e-2, atol=1e-2)


def test_the_copy_is_made_after_loading_and_is_not_saved() -> None:
    gate = make_gate(fp16_copy=True)
    assert type(gate.quant_method) is Fp16GateMethod
    assert gate.weight.dtype == torch.float32
    assert torch.equal(gate.weight_fp16, gate.weight.half())
    assert set(gate.state_dict()) == {"weight"}
    # Weights that are loaded again are copied again.
    gate.weight.data.mul_(2)
    gate.quant_method.process_weights_after_loading(gate)
    assert torch.equal(gate.weight_fp16, gate.weight.half())


def test_it_goes_before_every_other_tier() -> None:
    gate = make_gate(fp16_copy=True)
    x = torch.randn(3, 256, dtype=torch.bfloat16)
    expected = gate(x)[0]
    for tier in (
        "allow_ll_bf16_gemm", "allow_fp32_router_gemm", "allow_bf16x3_router_gemm",
        "allow_cublas_router_gemm",
    ):  # fmt: skip
        setattr(gate, tier, True)
    assert torch.equal(gate(x)[0], expected)


def test_off_the_gate_is_upstreams(
    unpatched: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    register = "vllm.model_executor.custom_op.PluggableLayer.register"
    monkeypatch.setattr(register, lambda name: lambda kind: kind)  # the name is taken
    theirs = unpatched(GATE).GateLinear
    ours, other = make_gate(), make_gate(theirs)
    assert type(ours.quant_method) is UnquantizedLinearMethod
    assert not hasattr(ours, "weight_fp16")
    x = torch.randn(3, 256, dtype=torch.float16)
    assert torch.equal(ours(x)[0], other(x)[0])
    assert trace(GateLinear.forward, ours, x) == trace(theirs.forward, other, x)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_minimax_asks_for_it_by_the_switch(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, switch)
    with default_dtype(torch.bfloat16):
        block = minimax_m2.MiniMaxM2MoE(
            minimax_config(), None, prefix=f"model.layers.{next(_numbers)}.mlp"
        )
    assert block.gate.fp16_copy is (switch == "1")


def test_the_switch_is_registered_and_off_by_default() -> None:
    assert envs.VLLM_MINIMAX_M2_FP16_ROUTER is False
    assert SWITCH in envs.compile_factors()
