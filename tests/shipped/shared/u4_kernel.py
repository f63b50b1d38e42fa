"""A stand-in for the raw-u4 kernel packages, and batches for the layers that call them."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from cpu_engine import reference_experts
from vllm.model_executor.layers.fused_moe import u4_decode

SWITCH = "VLLM_XPU_USE_LLM_SCALER_MOE"
HIDDEN, EXPERTS, TOP_K = 256, 8, 2
Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


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
        assert w13.dtype == w2.dtype == torch.uint8
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


def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn the switch on; an installed package must not decide a test."""
    monkeypatch.setenv(SWITCH, "1")
    for name in ("custom_esimd_kernels_vllm", "u4moe"):
        monkeypatch.setitem(sys.modules, name, None)
    u4_decode.find_u4_kernel.cache_clear()


def batch(
    tokens: int, dtype: torch.dtype, ids_dtype: torch.dtype, weights_dtype: torch.dtype
) -> Batch:
    """Random hidden states [tokens, HIDDEN], route weights and ids [tokens, TOP_K]."""
    generator = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HIDDEN, generator=generator).to(dtype)
    weights = torch.rand(tokens, TOP_K, generator=generator).softmax(-1).to(weights_dtype)
    ids = torch.stack(
        [torch.randperm(EXPERTS, generator=generator)[:TOP_K] for _ in range(tokens)]
    ).to(ids_dtype)
    return x, weights, ids
