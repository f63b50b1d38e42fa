"""The router's float32 weights reach a kernel that reads them, and only such a one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from u4_kernel import KernelPackage, install
from u4_layers import apply, load, make_layer, xpu_engine
from u4_layers import record_fallbacks as record
from vllm.model_executor.layers.fused_moe import u4_decode

HALF, SINGLE = torch.float16, torch.float32


@pytest.fixture
def esimd(monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelPackage]:
    with xpu_engine(monkeypatch):
        yield install(monkeypatch, "custom_esimd_kernels_vllm")


def offer(package: KernelPackage, *dtypes: torch.dtype) -> None:
    package.U4_ROUTE_WEIGHT_DTYPES = dtypes


@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_a_kernel_that_reads_float32_gets_the_routers_own_tensor(
    tokens: int, esimd: KernelPackage
) -> None:
    offer(esimd, HALF, SINGLE)
    layer = load(make_layer())
    seen: list[int] = []
    apply(layer, tokens, watch=lambda weights: seen.append(weights.data_ptr()))
    ((_, _, _, _, _, weights, _),) = esimd.calls
    assert weights.dtype == SINGLE
    assert [weights.data_ptr()] == seen


def test_a_kernel_that_does_not_gets_float16(esimd: KernelPackage) -> None:
    offer(esimd, HALF)
    apply(load(make_layer()), 2)
    assert esimd.calls[0][5].dtype == HALF


def test_the_two_differ_by_rounding_only(esimd: KernelPackage) -> None:
    offer(esimd, HALF)
    rounded = apply(load(make_layer()), 4)
    offer(esimd, HALF, SINGLE)
    u4_decode.find_u4_kernel.cache_clear()
    exact = apply(load(make_layer()), 4)
    torch.testing.assert_close(exact, rounded, rtol=2e-3, atol=1e-3)
    assert exact.abs().max() > 0.1


def test_weights_that_are_float16_already_are_not_touched(esimd: KernelPackage) -> None:
    offer(esimd, HALF, SINGLE)
    apply(load(make_layer()), 2, weights_dtype=HALF)
    assert esimd.calls[0][5].dtype == HALF


def test_prefill_gets_what_upstream_gives(
    esimd: KernelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(esimd, HALF, SINGLE)
    fallbacks = record(monkeypatch)
    apply(load(make_layer()), 5)
    assert not esimd.calls
    assert [call["topk_weights"].dtype for call in fallbacks] == [SINGLE]
