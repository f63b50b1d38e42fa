"""WNA16 MoE layers and a stand-in kernel package for the raw-u4 cases."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from cpu_engine import (
    default_dtype,
    engine,
    fill,
    inc_config,
    minimax_config,
    reference_experts,
    use_platform,
)
from vllm.model_executor.layers.fused_moe import FusedMoE, u4_decode
from vllm.model_executor.models.minimax_m2 import MiniMaxM2MoE

SWITCH = "VLLM_XPU_USE_LLM_SCALER_MOE"
HIDDEN, EXPERTS, TOP_K = 256, 8, 2


class KernelPackage(ModuleType):
    """A package with the agreed entry point, computed in float32; keeps its calls."""

    U4_ACTIVATION_DTYPES: tuple[torch.dtype, ...] = (torch.float16,)
    U4_ROUTE_WEIGHT_DTYPES: tuple[torch.dtype, ...] = (torch.float16,)
    U4_GROUP_SIZE = 128

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[torch.Tensor, ...]] = []

    def moe_forward_tiny_nmajor_u4(self, *args: torch.Tensor) -> torch.Tensor:
        """As the contract has it; a dtype or layout outside of it is an error."""
        x, w13, s13, w2, s2, weights, ids = args
        assert x.dtype in self.U4_ACTIVATION_DTYPES
        assert weights.dtype in self.U4_ROUTE_WEIGHT_DTYPES
        assert s13.dtype == s2.dtype == torch.float16
        assert ids.dtype in (torch.int32, torch.int64)
        assert all(tensor.is_contiguous() for tensor in args)
        self.calls.append(args)
        return reference_experts(x, w13, s13, w2, s2, weights, ids)


def install(monkeypatch: pytest.MonkeyPatch, name: str) -> KernelPackage:
    """Make `import name` give a new `KernelPackage`."""
    package = KernelPackage(name)
    monkeypatch.setitem(sys.modules, name, package)
    u4_decode.find_u4_kernel.cache_clear()
    return package


@contextmanager
def xpu_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine on a simulated XPU with the switch on and nothing remembered."""
    monkeypatch.setenv(SWITCH, "1")
    # An installed package must not decide a test.
    for name in ("custom_esimd_kernels_vllm", "u4moe"):
        monkeypatch.setitem(sys.modules, name, None)
    u4_decode.find_u4_kernel.cache_clear()
    u4_decode._outcomes.clear()
    with engine(), use_platform("xpu"):
        yield
    u4_decode.find_u4_kernel.cache_clear()


def record_fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls of upstream's fused experts (Triton), computed in float32 instead."""
    calls: list[dict[str, Any]] = []

    def fused_experts(
        x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, **kwargs: Any
    ) -> torch.Tensor:
        calls.append({"x": x, "w1": w1, "w2": w2, **kwargs})
        quant = kwargs["quant_config"]
        route = kwargs["topk_weights"], kwargs["topk_ids"]
        return reference_experts(x, w1, quant.w1_scale, w2, quant.w2_scale, *route)

    monkeypatch.setattr("vllm.model_executor.layers.fused_moe.fused_experts", fused_experts)
    return calls


def make_layer(dtype: torch.dtype = torch.float16, index: int = 0, seed: int = 0) -> FusedMoE:
    """MiniMax-M2's MoE layer `index` with random INT4 weights, not yet through the load check."""
    with default_dtype(dtype):
        block = MiniMaxM2MoE(minimax_config(), inc_config(), prefix=f"model.layers.{index}.mlp")
    return fill(block.experts, seed=seed)


def load(layer: FusedMoE) -> FusedMoE:
    """Run what follows the loading of weights."""
    layer.quant_method.process_weights_after_loading(layer)
    layer.ensure_moe_quant_config_init()
    return layer


def apply(
    layer: FusedMoE,
    tokens: int,
    dtype: torch.dtype = torch.float16,
    shared_experts_input: torch.Tensor | None = None,
    ids_dtype: torch.dtype = torch.int32,
    weights_dtype: torch.dtype = torch.float32,
    watch: Callable[[torch.Tensor], object] = lambda weights: None,
) -> torch.Tensor:
    """Apply the layer's method to a random batch: [tokens, HIDDEN] in `dtype`.

    `watch` sees the route weights, [tokens, TOP_K], before the method does.
    """
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HIDDEN, generator=generator).to(dtype)
    weights = torch.rand(tokens, TOP_K, generator=generator).softmax(-1).to(weights_dtype)
    ids = torch.stack(
        [torch.randperm(EXPERTS, generator=generator)[:TOP_K] for _ in range(tokens)]
    ).to(ids_dtype)
    watch(weights)
    return layer.quant_method.apply(layer, x, weights, ids, shared_experts_input)
