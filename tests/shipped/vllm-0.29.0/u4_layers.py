"""WNA16 MoE layers of MiniMax-M2 on a simulated XPU."""

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

# Before a platform is simulated: on a real one it would import XPU's kernels.
from vllm.model_executor.layers.fused_moe.experts import xpu_moe  # noqa: F401
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonWNA16Experts
from vllm.model_executor.models.minimax_m2 import MiniMaxM2MoE
from vllm.v1.worker.workspace import init_workspace_manager, reset_workspace_manager

_numbers = itertools.count()  # the engine knows every layer by a name of its own


@contextmanager
def xpu_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine on a simulated XPU with the switch on and nothing remembered."""
    from vllm.model_executor.layers.fused_moe import u4_decode

    nothing_installed(monkeypatch)
    monkeypatch.setattr(u4_decode.U4DecodeExperts, "_layers", 0)
    # The workspace empties the accelerator's cache before it grows.
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: None)
    init_workspace_manager(torch.device("cpu"))
    with engine(), use_platform("xpu"):
        yield
    reset_workspace_manager()
    u4_decode.find_u4_kernel.cache_clear()


def record_fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls of upstream's Triton experts, computed in float32 instead."""
    calls: list[dict[str, Any]] = []
    names = ("output", "x", "w1", "w2", "topk_weights", "topk_ids")

    def apply(self: TritonWNA16Experts, *args: Any, **kwargs: Any) -> None:
        call = {**dict(zip(names, args, strict=False)), **kwargs}
        calls.append(call)
        result = reference_experts(
            call["x"], call["w1"], self.w1_scale, call["w2"], self.w2_scale,
            call["topk_weights"], call["topk_ids"],
        )  # fmt: skip
        call["output"].copy_(result)

    monkeypatch.setattr(TritonWNA16Experts, "apply", apply)
    return calls


def make_layer(dtype: torch.dtype = torch.float16, **changes: Any) -> Any:
    """MiniMax-M2's routed experts with random INT4 weights, before what follows loading.

    `changes` go into the checkpoint's quantization configuration.
    """
    with default_dtype(dtype):
        block = MiniMaxM2MoE(minimax_config(), inc_config(**changes), _prefix())
    layer = block.experts.routed_experts
    layer._loaded_expert_biases = set()
    return fill(layer, seed=0)


def _prefix() -> str:
    return f"model.layers.{next(_numbers)}.mlp"


def load(layer: Any) -> Any:
    """Run what follows the loading of weights."""
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def experts(layer: Any) -> Any:
    """The experts that the oracle chose for a loaded layer."""
    return layer.quant_method.moe_kernel.fused_experts


def apply(
    layer: Any,
    tokens: int,
    dtype: torch.dtype = torch.float16,
    ids_dtype: torch.dtype = torch.int32,
    weights_dtype: torch.dtype = torch.float32,
    watch: Callable[[torch.Tensor], object] = lambda weights: None,
) -> torch.Tensor:
    """Apply the layer's method to a random batch: [tokens, HIDDEN] in `dtype`.

    `watch` sees the route weights, [tokens, TOP_K], before the method does.
    """
    x, weights, ids = batch(tokens, dtype, ids_dtype, weights_dtype)
    watch(weights)
    return layer.quant_method.apply(layer, x, weights, ids, None, None)
