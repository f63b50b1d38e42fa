"""The MoE WNA16 method sends decode batches, and only those, to the raw-u4 kernel."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import vllm.logger
from cpu_engine import applied, use_platform
from u4_kernel import EXPERTS, HIDDEN, SWITCH, KernelPackage, install
from u4_layers import apply, load, make_layer, record_fallbacks, xpu_engine
from vllm import envs
from vllm.model_executor.layers.fused_moe import FusedMoE, u4_decode
from vllm.model_executor.layers.fused_moe.activation import MoEActivation

HALF = torch.float16


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


@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 16])
@pytest.mark.parametrize("shared", [False, True])
def test_dtype_tokens_and_shared_input_decide_at_the_call(
    dtype: torch.dtype,
    tokens: int,
    shared: bool,
    esimd: KernelPackage,
    fallbacks: list[dict[str, Any]],
) -> None:
    shared_input = torch.zeros(tokens, HIDDEN, dtype=dtype) if shared else None
    out = apply(load(make_layer()), tokens, dtype, shared_input)
    takes = dtype == HALF and tokens <= 4 and not shared
    assert (len(esimd.calls), len(fallbacks)) == ((1, 0) if takes else (0, 1))
    assert (out.shape, out.dtype) == ((tokens, HIDDEN), dtype)


def test_an_empty_batch_is_not_for_the_kernel(esimd: KernelPackage) -> None:
    decode = load(make_layer()).quant_method.u4_decode
    assert not decode.takes(torch.empty(0, HIDDEN, dtype=HALF), None)


def _quant(name: str, value: Any) -> Callable[[FusedMoE], None]:
    return lambda layer: setattr(layer.quant_method.quant_config, name, value)


def _layer(name: str, value: Any) -> Callable[[FusedMoE], None]:
    return lambda layer: setattr(layer, name, value)


def _double_scales(layer: FusedMoE) -> None:
    layer.w2_scales.data = layer.w2_scales.data.double()


REFUSED: list[tuple[Callable[[FusedMoE], None], str]] = [
    (_quant("weight_bits", 8), "8-bit weights"),
    (_quant("has_zp", True), "zero points"),
    (_layer("group_size", 64), "group size 64"),
    (_layer("group_size", 32), "group size 32"),
    (_layer("activation", MoEActivation.GELU), "activation"),
    (_layer("activation", MoEActivation.SWIGLUOAI), "activation"),
    (_layer("_expert_map", torch.arange(EXPERTS)), "an expert map"),
    (_layer("apply_router_weight_on_input", True), "router weights on the input"),
    (lambda layer: setattr(layer.runner, "_shared_experts", object()), "a shared-expert input"),
    (_double_scales, "torch.float16 and torch.float64 scales"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_what_the_kernel_cannot_do_is_refused_at_load(
    change: Callable[[FusedMoE], None], reason: str, esimd: KernelPackage
) -> None:
    layer = make_layer()
    method = layer.quant_method
    method.process_weights_after_loading(layer)
    assert method.u4_decode is not None
    u4_decode._outcomes.clear()
    change(layer)
    method.process_weights_after_loading(layer)
    assert method.u4_decode is None
    (outcome,) = u4_decode._outcomes
    assert outcome.startswith("keep the fused experts")
    assert reason in outcome


def test_a_kernel_for_another_group_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, esimd: KernelPackage
) -> None:
    monkeypatch.setattr(esimd, "U4_GROUP_SIZE", 64, raising=False)
    u4_decode.find_u4_kernel.cache_clear()
    assert load(make_layer()).quant_method.u4_decode is None


def test_off_is_upstreams_path_and_imports_nothing(
    monkeypatch: pytest.MonkeyPatch, fallbacks: list[dict[str, Any]]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(u4_decode, "_load_kernel", lambda *args: asked.append(args[0]))
    monkeypatch.delenv(SWITCH)
    layer = load(make_layer())
    assert layer.quant_method.u4_decode is None
    for tokens in (1, 4, 5):
        apply(layer, tokens)
    # Exactly what the unpatched method passes on.
    assert [set(call) for call in fallbacks] == [
        {
            "x", "w1", "w2", "topk_weights", "topk_ids", "inplace", "apply_router_weight_on_input",
            "global_num_experts", "expert_map", "quant_config",
        }
    ] * 3  # fmt: skip
    assert fallbacks[0]["w1"] is layer.w13_qweight
    assert fallbacks[0]["topk_weights"].dtype == torch.float32
    assert fallbacks[0]["quant_config"] is layer.quant_method.moe_quant_config
    assert not asked
    assert not u4_decode._outcomes


def test_the_switch_is_registered_and_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH)
    assert envs.VLLM_XPU_USE_LLM_SCALER_MOE is False
    off = envs.compile_factors()
    monkeypatch.setenv(SWITCH, "1")
    assert envs.VLLM_XPU_USE_LLM_SCALER_MOE is True
    assert envs.compile_factors()[SWITCH] != off[SWITCH]


def test_the_kernel_reads_the_loaded_tensors_themselves(esimd: KernelPackage) -> None:
    layer = load(make_layer())
    apply(layer, 2)
    ((_, w13, s13, w2, s2, _, _),) = esimd.calls
    for given, own in zip(
        (w13, s13, w2, s2),
        (layer.w13_qweight, layer.w13_scales, layer.w2_qweight, layer.w2_scales),
        strict=True,
    ):
        assert given.data_ptr() == own.data_ptr()


@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64])
def test_both_paths_give_the_same_numbers(
    ids_dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, esimd: KernelPackage,
    fallbacks: list[dict[str, Any]],
) -> None:  # fmt: skip
    layer = load(make_layer())
    on = apply(layer, 3, ids_dtype=ids_dtype)
    layer.quant_method.u4_decode = None
    off = apply(layer, 3, ids_dtype=ids_dtype)
    assert (len(esimd.calls), len(fallbacks)) == (1, 1)
    assert on.abs().max() > 0.1
    torch.testing.assert_close(on, off, rtol=2e-3, atol=2e-3)


def test_xpu_asks_the_esimd_package_first_and_then_u4moe(
    monkeypatch: pytest.MonkeyPatch, esimd: KernelPackage
) -> None:
    install(monkeypatch, "u4moe")
    assert u4_decode.find_u4_kernel("xpu")[0].package == "custom_esimd_kernels_vllm"
    # An extension without the raw-u4 patch counts as not there.
    monkeypatch.setitem(sys.modules, esimd.__name__, ModuleType(esimd.__name__))
    u4_decode.find_u4_kernel.cache_clear()
    assert u4_decode.find_u4_kernel("xpu")[0].package == "u4moe"


@pytest.mark.parametrize("platform", ["cuda", "cpu"])
def test_other_platforms_ask_u4moe_only(
    platform: str, monkeypatch: pytest.MonkeyPatch, esimd: KernelPackage
) -> None:
    with use_platform(platform):
        assert u4_decode._platform_name() == platform
        kernel, problem = u4_decode.find_u4_kernel(platform)
        assert kernel is None
        assert "u4moe" in problem
        install(monkeypatch, "u4moe")
        assert u4_decode.find_u4_kernel(platform)[0].package == "u4moe"


def test_a_platform_without_any_kernel_keeps_the_fused_experts(esimd: KernelPackage) -> None:
    layer = make_layer()
    with use_platform("rocm"):
        layer.quant_method.process_weights_after_loading(layer)
    assert layer.quant_method.u4_decode is None
    assert "no package offers one" in next(iter(u4_decode._outcomes))


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


def test_the_real_u4moe_on_this_cpu(
    monkeypatch: pytest.MonkeyPatch, fallbacks: list[dict[str, Any]]
) -> None:
    monkeypatch.delitem(sys.modules, "u4moe")
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "kernels")
    package = pytest.importorskip("u4moe")
    if reason := package.u4_unavailable("cpu"):
        pytest.skip(reason)
    layer = make_layer()  # as XPU makes it: on a CPU this configuration leaves experts unquantized
    with use_platform("cpu"):
        layer.quant_method.process_weights_after_loading(layer)
        layer.ensure_moe_quant_config_init()
    on = apply(layer, 3)
    assert layer.quant_method.u4_decode.kernel.package == "u4moe"
    layer.quant_method.u4_decode = None
    off = apply(layer, 3)
    assert len(fallbacks) == 1
    torch.testing.assert_close(on, off, rtol=5e-3, atol=5e-3)


def test_the_log_tells_once_which_layers_took_it(
    esimd: KernelPackage, fallbacks: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm.logger._print_warning_once.cache_clear()
    vllm.logger._print_info_once.cache_clear()
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    u4_decode.logger.addHandler(handler)
    try:
        layers = [load(make_layer(index=i)) for i in range(2)]
        odd = [make_layer(index=i) for i in (2, 3)]
        for layer in odd:
            layer.apply_router_weight_on_input = True
            load(layer)
        apply(layers[0], 1)
        apply(layers[1], 1)
        apply(odd[0], 1)
    finally:
        u4_decode.logger.removeHandler(handler)
    names = [f"model.layers.{i}.mlp.experts" for i in range(4)]
    assert sorted(line for line in lines if "layers (" in line) == [
        (
            f"Raw-u4 MoE decode: 2 layers ({names[0]} .. {names[1]}) take "
            "custom_esimd_kernels_vllm for up to 4 tokens"
        ),
        (
            f"Raw-u4 MoE decode: 2 layers ({names[2]} .. {names[3]}) keep the fused experts: "
            "router weights on the input"
        ),
    ]
    assert sum("is not used: router weights on the input" in line for line in lines) == 1


def test_names_the_patches_it_runs_with() -> None:
    assert applied("u4-decode-gating")
