"""The raw-u4 experts take bfloat16 models, whose scales are converted once and in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from u4_kernel import HIDDEN, SWITCH, KernelPackage, install
from u4_layers import apply, experts, load, make_layer, record_fallbacks, xpu_engine
from vllm.model_executor.layers.fused_moe import u4_decode
from vllm.model_executor.layers.fused_moe.experts.xpu_moe import XPUExpertsWNA16

HALF, BF16 = torch.float16, torch.bfloat16


@pytest.fixture
def esimd(monkeypatch: pytest.MonkeyPatch) -> Iterator[KernelPackage]:
    with xpu_engine(monkeypatch):
        package = install(monkeypatch, "custom_esimd_kernels_vllm")
        package.U4_ACTIVATION_DTYPES = (HALF, BF16)
        yield package


@pytest.fixture
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return record_fallbacks(monkeypatch)


def scales(layer: Any) -> list[torch.Tensor]:
    return [layer.w13_scales, layer.w2_scales]


@pytest.mark.parametrize("dtype", [HALF, BF16])
@pytest.mark.parametrize("tokens", [1, 4, 5])
def test_both_half_precisions_take_the_kernel(
    dtype: torch.dtype, tokens: int, esimd: KernelPackage, fallbacks: list[dict[str, Any]]
) -> None:
    out = apply(load(make_layer(dtype)), tokens, dtype)
    assert (len(esimd.calls), len(fallbacks)) == ((1, 0) if tokens <= 4 else (0, 1))
    assert (out.shape, out.dtype) == ((tokens, HIDDEN), dtype)


def test_float32_does_not(esimd: KernelPackage) -> None:
    assert not experts(load(make_layer(BF16))).takes(torch.empty(1, HIDDEN), False)


def test_scales_are_converted_once_in_place(esimd: KernelPackage) -> None:
    layer = make_layer(BF16)
    before = [scale.transpose(1, 2).clone() for scale in scales(layer)]
    load(layer)
    assert [scale.dtype for scale in scales(layer)] == [HALF, HALF]
    for converted, original in zip(scales(layer), before, strict=True):
        assert original.dtype == BF16
        assert torch.equal(converted.float(), original.float())
    pointers = [scale.data_ptr() for scale in scales(layer)]
    apply(layer, 1, BF16)
    apply(layer, 2, BF16)
    for call in esimd.calls:
        assert [call[2].data_ptr(), call[4].data_ptr()] == pointers


def test_a_long_batch_keeps_the_bits_of_unconverted_scales(
    esimd: KernelPackage, fallbacks: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    converted = apply(load(make_layer(BF16)), 6, BF16)
    monkeypatch.setattr(esimd, "U4_SCALE_DTYPES", (HALF, BF16), raising=False)
    u4_decode.find_u4_kernel.cache_clear()
    layer = load(make_layer(BF16))
    assert [scale.dtype for scale in scales(layer)] == [BF16, BF16]
    assert torch.equal(apply(layer, 6, BF16), converted)
    assert converted.abs().max() > 0.1
    assert len(fallbacks) == 2


def test_every_bfloat16_from_two_to_the_minus_17_converts_exactly() -> None:
    bits = torch.arange(2**15, dtype=torch.int32).to(torch.int16)
    values = bits.view(BF16)
    # In float32: bfloat16 would round the largest float16 up to 65536, which is none.
    wide = values.float()
    usable = (wide >= 2.0**-17) & (wide <= torch.finfo(HALF).max)
    assert int(usable.sum()) == 128 * (15 + 17 + 1)
    assert torch.equal(values[usable].to(HALF).float(), wide[usable])


@pytest.mark.parametrize("value", [65536.0, float("nan")])
def test_a_scale_that_float16_cannot_hold_is_an_error(value: float, esimd: KernelPackage) -> None:
    layer = make_layer(BF16)
    layer.w2_scales.data[0, 0, 0] = value
    with pytest.raises(ValueError, match=SWITCH):
        load(layer)


def test_a_kernel_of_before_takes_float16_only(esimd: KernelPackage) -> None:
    esimd.U4_ACTIVATION_DTYPES = (HALF,)
    assert make_layer(BF16).quant_method.experts_cls is XPUExpertsWNA16
    assert make_layer(HALF).quant_method.experts_cls is u4_decode.U4DecodeExperts
