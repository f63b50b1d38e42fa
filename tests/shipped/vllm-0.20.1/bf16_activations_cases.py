"""The gate takes bfloat16 models, whose scales are converted once and in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cpu_engine import use_platform
from u4_kernel import HIDDEN, SWITCH, KernelPackage, install
from u4_layers import apply, load, make_layer, record_fallbacks, xpu_engine
from vllm.model_executor.layers.fused_moe import FusedMoE, u4_decode

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


def scales(layer: FusedMoE) -> list[torch.Tensor]:
    return [layer.w13_scales, layer.w2_scales]


@pytest.mark.parametrize("model", [HALF, BF16])
@pytest.mark.parametrize("dtype", [HALF, BF16, torch.float32])
@pytest.mark.parametrize("tokens", [1, 4, 5])
def test_both_half_precisions_take_the_kernel(
    model: torch.dtype,
    dtype: torch.dtype,
    tokens: int,
    esimd: KernelPackage,
    fallbacks: list[dict[str, Any]],
) -> None:
    out = apply(load(make_layer(model)), tokens, dtype)
    takes = tokens <= 4 and dtype != torch.float32
    assert (len(esimd.calls), len(fallbacks)) == ((1, 0) if takes else (0, 1))
    assert (out.shape, out.dtype) == ((tokens, HIDDEN), dtype)


def test_scales_are_converted_once_in_place(esimd: KernelPackage) -> None:
    layer = make_layer(BF16)
    parameters, before = scales(layer), [scale.clone() for scale in scales(layer)]
    load(layer)
    assert [scale.dtype for scale in scales(layer)] == [HALF, HALF]
    assert all(new is old for new, old in zip(scales(layer), parameters, strict=True))
    for converted, original in zip(scales(layer), before, strict=True):
        assert original.dtype == BF16
        assert torch.equal(converted.float(), original.float())
    pointers = [scale.data_ptr() for scale in scales(layer)]
    apply(layer, 1, BF16)
    apply(layer, 2, BF16)
    for call in esimd.calls:
        assert [call[2].data_ptr(), call[4].data_ptr()] == pointers


def test_prefill_of_a_bfloat16_model_keeps_upstreams_bits(
    esimd: KernelPackage, fallbacks: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    on = apply(load(make_layer(BF16)), 6, BF16)
    monkeypatch.delenv(SWITCH)
    untouched = load(make_layer(BF16, index=1))
    assert [scale.dtype for scale in scales(untouched)] == [BF16, BF16]
    off = apply(untouched, 6, BF16)
    assert torch.equal(on, off)
    assert on.abs().max() > 0.1
    assert len(fallbacks) == 2


def test_every_bfloat16_from_two_to_the_minus_17_converts_exactly() -> None:
    bits = torch.arange(2**15, dtype=torch.int32).to(torch.int16)
    values = bits.view(BF16)
    # In float32: bfloat16 would round the largest float16 up to 65536, which is none.
    wide = values.float()
    usable = (wide >= 2.0**-17) & (wide <= torch.finfo(HALF).max)
    assert int(usable.sum()) == 128 * (15 + 17 + 1)
    assert torch.equal(values[usable].to(HALF).float(), wide[usable])


def test_a_kernel_that_reads_bfloat16_scales_gets_them(
    esimd: KernelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(esimd, "U4_SCALE_DTYPES", (HALF, BF16), raising=False)
    layer = load(make_layer(BF16))
    assert layer.quant_method.u4_decode is not None
    assert [scale.dtype for scale in scales(layer)] == [BF16, BF16]


@pytest.mark.parametrize("case", ["kernel", "platform", "overflow", "nan"])
def test_what_cannot_be_done_leaves_the_scales_alone(
    case: str, esimd: KernelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = make_layer(BF16)
    platform = "xpu"
    if case == "kernel":
        esimd.U4_ACTIVATION_DTYPES = (HALF,)
    elif case == "platform":
        # CUDA's fused experts want scales in the dtype of the activations.
        platform = "cuda"
        install(monkeypatch, "u4moe").U4_ACTIVATION_DTYPES = (HALF, BF16)
    else:
        layer.w2_scales.data[0, 0, 0] = 65536 if case == "overflow" else float("nan")
    with use_platform(platform):
        load(layer)
    assert layer.quant_method.u4_decode is None
    assert [scale.dtype for scale in scales(layer)] == [BF16, BF16]
    assert "torch.bfloat16 scales" in next(iter(u4_decode._outcomes))


def test_a_layer_refused_for_another_reason_keeps_its_scales(esimd: KernelPackage) -> None:
    layer = make_layer(BF16)
    layer.apply_router_weight_on_input = True
    load(layer)
    assert layer.quant_method.u4_decode is None
    assert [scale.dtype for scale in scales(layer)] == [BF16, BF16]


def test_a_kernel_of_before_takes_float16_only(
    esimd: KernelPackage, fallbacks: list[dict[str, Any]]
) -> None:
    esimd.U4_ACTIVATION_DTYPES = (HALF,)
    layer = load(make_layer(HALF))
    apply(layer, 1, BF16)
    assert (len(esimd.calls), len(fallbacks)) == (0, 1)
    apply(layer, 1, HALF)
    assert (len(esimd.calls), len(fallbacks)) == (1, 1)
