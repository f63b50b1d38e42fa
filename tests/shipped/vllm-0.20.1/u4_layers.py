"""WNA16 MoE layers for the raw-u4 cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from u4_kernel import batch, nothing_installed
from vllm.model_executor.layers.fused_moe import FusedMoE, u4_decode
from vllm.model_executor.models.minimax_m2 import MiniMaxM2MoE

_numbers = itertools.count(100)  # the engine knows every layer by a name of its own


@contextmanager
def xpu_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine on a simulated XPU with the switch on and nothing remembered."""
    nothing_installed(monkeypatch)
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


def make_layer(dtype: torch.dtype = torch.float16, index: int | None = None) -> FusedMoE:
    """MiniMax-M2's MoE layer `index` with random INT4 weights, not yet through the load check."""
    with default_dtype(dtype):
        number = next(_numbers) if index is None else index
        block = MiniMaxM2MoE(minimax_config(), inc_config(), prefix=f"model.layers.{number}.mlp")
    return fill(block.experts, seed=0)


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
    x, weights, ids = batch(tokens, dtype, ids_dtype, weights_dtype)
    watch(weights)
    return layer.quant_method.apply(layer, x, weights, ids, shared_experts_input)
