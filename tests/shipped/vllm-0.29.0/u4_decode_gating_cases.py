"""The WNA16 oracle's raw-u4 backend sends decode batches, and only those, to the kernel."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cpu_engine import applied, use_platform
from u4_kernel import HIDDEN, SWITCH, KernelPackage, install
from u4_layers import apply, experts, load, make_layer, record_fallbacks, xpu_engine
from vllm import envs
from vllm.model_executor.layers.fused_moe import u4_decode
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonWNA16Experts
from vllm.model_executor.layers.fused_moe.experts.xpu_moe import XPUExpertsWNA16
from vllm.model_executor.layers.fused_moe.oracle import int_wna16
from vllm.model_executor.layers.quantization.moe_wna16 import MoeWNA16Config

HALF = torch.float16
U4 = int_wna16.WNA16MoEBackend.U4_DECODE


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with xpu_engine(monkeypatch):
        yield


@pytest.fixture
def esimd(monkeypatch: pytest.MonkeyPatch) -> KernelPackage:
    return install(monkeypatch, "custom_esimd_kernels_vllm")


@pytest.fixture
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    return record_fallbacks(monkeypatch)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 16])
def test_the_number_of_tokens_decides_at_the_call(
    tokens: int, esimd: KernelPackage, fallbacks: list[dict[str, Any]]
) -> None:
    out = apply(load(make_layer()), tokens)
    assert (len(esimd.calls), len(fallbacks)) == ((1, 0) if tokens <= 4 else (0, 1))
    assert (out.shape, out.dtype) == ((tokens, HIDDEN), HALF)


@pytest.mark.parametrize(
    ("x", "on_input", "takes"),
    [
        (torch.empty(1, HIDDEN, dtype=HALF), False, True),
        (torch.empty(1, HIDDEN, dtype=HALF), True, False),
        (torch.empty(0, HIDDEN, dtype=HALF), False, False),
        (torch.empty(1, HIDDEN, dtype=torch.float32), False, False),
    ],
)
def test_what_else_decides_at_the_call(
    x: torch.Tensor, on_input: bool, takes: bool, esimd: KernelPackage
) -> None:
    assert experts(load(make_layer())).takes(x, on_input) is takes


def test_the_weights_are_read_as_they_were_packed(
    esimd: KernelPackage, fallbacks: list[dict[str, Any]]
) -> None:
    layer = make_layer()
    packed = layer.w13_qweight.clone()
    load(layer)
    apply(layer, 2)
    ((_, w13, s13, w2, s2, _, _),) = esimd.calls
    assert torch.equal(w13, packed.transpose(1, 2).contiguous().view(torch.uint8))
    own = (layer.w13_weight, layer.w13_scales, layer.w2_weight, layer.w2_scales)
    assert [t.data_ptr() for t in (w13, s13, w2, s2)] == [t.data_ptr() for t in own]
    # Nor does a long batch in between change a bit of them.
    apply(layer, 9)
    apply(layer, 2)
    assert torch.equal(esimd.calls[0][1], esimd.calls[1][1])


@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
def test_both_paths_give_the_same_numbers(
    ids_dtype: torch.dtype, esimd: KernelPackage, fallbacks: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    layer = load(make_layer())
    on = apply(layer, 3, ids_dtype=ids_dtype)
    monkeypatch.setattr(experts(layer), "takes", lambda *_: False)
    off = apply(layer, 3, ids_dtype=ids_dtype)
    assert (len(esimd.calls), len(fallbacks)) == (1, 1)
    assert on.abs().max() > 0.1
    torch.testing.assert_close(on, off, rtol=2e-3, atol=2e-3)


REFUSED = [
    ({"weight_bits": 8}, {}, False, "8-bit weights"),
    ({}, {}, True, "zero points"),
    ({"desc_act": True}, {}, False, "activation ordering"),
    ({"group_size": 64}, {}, False, "group size 64"),
    ({}, {"activation": MoEActivation.GELU}, False, "activation"),
    ({}, {"in_dtype": torch.float32}, False, "torch.float32 activations"),
]


@pytest.mark.parametrize(("quant", "moe", "may_have_zp", "reason"), REFUSED)
def test_what_the_kernel_cannot_do_is_refused_when_the_backend_is_chosen(
    quant: dict[str, Any], moe: dict[str, Any], may_have_zp: bool, reason: str,
    esimd: KernelPackage,
) -> None:  # fmt: skip
    method = make_layer().quant_method
    config, quant_config = method.moe, method.quant_config
    assert u4_decode.u4_incompatibility(config, quant_config, False) is None
    for name, value in quant.items():
        setattr(quant_config, name, value)
    found = u4_decode.u4_incompatibility(replace(config, **moe), quant_config, may_have_zp)
    assert found is not None
    assert reason in found


def test_an_expert_map_is_refused(esimd: KernelPackage) -> None:
    method = make_layer().quant_method
    method.moe.moe_parallel_config.use_ep = True
    reason = u4_decode.u4_incompatibility(method.moe, method.quant_config, False)
    assert reason is not None
    assert "an expert map" in reason


def test_a_refused_layer_gets_the_next_backend(esimd: KernelPackage) -> None:
    method = make_layer(group_size=32).quant_method
    assert method.wna16_moe_backend is int_wna16.WNA16MoEBackend.XPU
    assert method.experts_cls is XPUExpertsWNA16


def test_the_weights_of_another_method_are_refused(esimd: KernelPackage) -> None:
    method = make_layer().quant_method
    config = MoeWNA16Config.from_config(
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "lm_head": False}
    )
    reason = int_wna16._backend_incompatibility_reason(U4, method.moe, config, False, False, False)
    assert reason == "the weights of MoeWNA16Config are not supported"


def test_biases_are_not_left_out_silently(esimd: KernelPackage) -> None:
    layer = make_layer()
    layer._loaded_expert_biases = {"w13_bias", "w2_bias"}
    with pytest.raises(NotImplementedError, match=SWITCH):
        load(layer)


def test_off_is_upstreams_choice_and_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(u4_decode, "_load_kernel", lambda *args: asked.append(args[0]))
    monkeypatch.delenv(SWITCH)
    assert make_layer().quant_method.experts_cls is XPUExpertsWNA16
    assert int_wna16._get_priority_backends() == [int_wna16.WNA16MoEBackend.XPU]
    with use_platform("cuda"):
        assert U4 not in int_wna16._get_priority_backends()
    assert not asked


def test_on_it_is_asked_first_on_xpu_and_cuda_and_not_on_cpu() -> None:
    assert int_wna16._get_priority_backends() == [U4, int_wna16.WNA16MoEBackend.XPU]
    with use_platform("cuda"):
        assert int_wna16._get_priority_backends()[0] is U4
    with use_platform("cpu"):
        assert U4 not in int_wna16._get_priority_backends()


def test_the_switch_is_registered_and_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH)
    assert envs.VLLM_XPU_USE_LLM_SCALER_MOE is False
    off = envs.compile_factors()
    monkeypatch.setenv(SWITCH, "1")
    assert envs.VLLM_XPU_USE_LLM_SCALER_MOE is True
    assert envs.compile_factors()[SWITCH] != off[SWITCH]


def test_xpu_asks_the_esimd_package_first_and_then_u4moe(
    monkeypatch: pytest.MonkeyPatch, esimd: KernelPackage
) -> None:
    install(monkeypatch, "u4moe")
    assert u4_decode.find_u4_kernel("xpu")[0].package == "custom_esimd_kernels_vllm"
    # An extension without the raw-u4 patch counts as not there.
    monkeypatch.setitem(sys.modules, esimd.__name__, ModuleType(esimd.__name__))
    u4_decode.find_u4_kernel.cache_clear()
    assert u4_decode.find_u4_kernel("xpu")[0].package == "u4moe"


def test_cuda_asks_u4moe_only(monkeypatch: pytest.MonkeyPatch, esimd: KernelPackage) -> None:
    with use_platform("cuda"):
        kernel, problem = u4_decode.find_u4_kernel(u4_decode._platform_name())
        assert kernel is None
        assert "u4moe" in problem
        install(monkeypatch, "u4moe")
        assert u4_decode.find_u4_kernel("cuda")[0].package == "u4moe"


def test_a_package_that_cannot_run_here_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    package = install(monkeypatch, "u4moe")
    monkeypatch.setattr(package, "u4_unavailable", lambda device: f"no backend for {device}",
                        raising=False)  # fmt: skip
    kernel, problem = u4_decode.find_u4_kernel("cuda")
    assert kernel is None
    assert problem == "u4moe: no backend for cuda"


def test_a_registered_package_comes_first(
    monkeypatch: pytest.MonkeyPatch, esimd: KernelPackage
) -> None:
    monkeypatch.setitem(u4_decode._packages, "xpu", ["custom_esimd_kernels_vllm"])
    install(monkeypatch, "another_package")
    u4_decode.register_u4_package("xpu", "another_package")
    assert u4_decode.find_u4_kernel("xpu")[0].package == "another_package"


def test_the_real_u4moe_reads_the_layer(
    monkeypatch: pytest.MonkeyPatch, fallbacks: list[dict[str, Any]], esimd: KernelPackage
) -> None:
    monkeypatch.delitem(sys.modules, "u4moe")
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "kernels")
    package = pytest.importorskip("u4moe")
    layer = load(make_layer())
    kernel = u4_decode._load_kernel("u4moe", "cpu") if not package.u4_unavailable("cpu") else None
    if kernel is None:
        pytest.skip(package.u4_unavailable("cpu"))
    monkeypatch.setattr(experts(layer), "kernel", kernel)
    on = apply(layer, 3)
    monkeypatch.setattr(experts(layer), "takes", lambda *_: False)
    off = apply(layer, 3)
    assert len(fallbacks) == 1
    torch.testing.assert_close(on, off, rtol=5e-3, atol=5e-3)


def test_the_log_tells_once_how_many_layers_took_it_and_why_others_did_not(
    esimd: KernelPackage, fallbacks: list[dict[str, Any]]
) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    u4_decode.logger.addHandler(handler)
    try:
        layers = [load(make_layer()) for _ in range(2)]
        for _ in range(2):
            make_layer(group_size=64)
        for layer in layers:
            apply(layer, 1)
    finally:
        u4_decode.logger.removeHandler(handler)
    took = "Raw-u4 MoE decode: 2 layers take custom_esimd_kernels_vllm for up to 4 tokens"
    assert [line for line in lines if "layers take" in line] == [took]
    assert sum("is not used: group size 64" in line for line in lines) <= 1


def test_it_is_a_triton_experts_class() -> None:
    assert applied("u4-decode-gating")
    assert issubclass(u4_decode.U4DecodeExperts, TritonWNA16Experts)
