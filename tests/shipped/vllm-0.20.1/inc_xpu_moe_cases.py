"""INC gives INT4 experts the MoE WNA16 method on XPU, with the patch and only with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from cpu_engine import applied, default_dtype, engine, inc_config, minimax_config, use_platform
from vllm.model_executor.layers.fused_moe import FusedMoE
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.quantization.moe_wna16 import MoeWNA16Method
from vllm.model_executor.models.minimax_m2 import MiniMaxM2MoE

PATCHED = applied("inc-xpu-moe")


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    with engine(), use_platform("xpu"):
        yield


@pytest.fixture
def experts() -> FusedMoE:
    # Built without a quantization, so that INC can be asked about a finished layer.
    with use_platform("cpu"):
        return MiniMaxM2MoE(minimax_config(), prefix="model.layers.9.mlp").experts


def test_experts_of_an_autoround_minimax_m2(monkeypatch: pytest.MonkeyPatch) -> None:
    # Unquantized experts import XPU's kernels when they are made.
    kernels = ModuleType("vllm_xpu_kernels.fused_moe_interface")
    kernels.xpu_fused_moe = None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm_xpu_kernels", ModuleType("vllm_xpu_kernels"))
    monkeypatch.setitem(sys.modules, kernels.__name__, kernels)
    with default_dtype(torch.float16):
        block = MiniMaxM2MoE(minimax_config(), inc_config(), prefix="model.layers.0.mlp")
    quantized = block.experts
    if not PATCHED:
        assert isinstance(quantized.quant_method, UnquantizedFusedMoEMethod)
        assert not hasattr(quantized, "w13_qweight")
        return
    assert isinstance(quantized.quant_method, MoeWNA16Method)
    shapes = {name: tuple(p.shape) for name, p in quantized.named_parameters() if p.numel()}
    assert shapes["w13_qweight"] == (8, 512, 128)
    assert shapes["w13_scales"] == (8, 512, 2)
    assert shapes["w2_qweight"] == (8, 256, 128)
    assert shapes["w2_scales"] == (8, 256, 2)
    assert quantized.w13_qweight.dtype == torch.uint8
    assert quantized.w13_scales.dtype == torch.float16
    assert block.gate.weight.dtype == torch.float32


@pytest.mark.skipif(not PATCHED, reason="the method exists with the patch only")
def test_a_gptq_checkpoint_loads_into_the_method(experts: FusedMoE) -> None:
    with default_dtype(torch.float16):
        layer = MiniMaxM2MoE(minimax_config(), inc_config(), prefix="model.layers.1.mlp").experts
    generator = torch.Generator().manual_seed(0)
    # The file's layout: int32 [K/8, N], eight nibbles of K in a word, low first.
    nibbles = torch.randint(0, 16, (256, 256), generator=generator)
    words = (nibbles.view(32, 8, 256) << (4 * torch.arange(8)).view(1, 8, 1)).sum(1)
    words = torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
    layer.w13_qweight.weight_loader(
        layer.w13_qweight, words, "experts.w13_qweight", shard_id="w3", expert_id=5
    )
    rows = layer.w13_qweight[5, 256:]
    assert torch.equal(torch.stack((rows & 15, rows >> 4), -1).flatten(-2), nibbles.T.byte())


def test_answers_for_other_layers_are_upstreams(experts: FusedMoE) -> None:
    config = inc_config()
    assert config.get_quant_method(torch.nn.Identity(), "model.norm") is None
    linear = LinearBase.__new__(LinearBase)
    assert type(config.get_quant_method(linear, "model.q")).__name__ == "INCXPULinearMethod"
    # Experts that the checkpoint left at 16 bit stay without a method.
    assert inc_config(extra_config={"experts": {"bits": 16}}).get_layer_config(
        experts, "experts"
    ) == (16, 128, True)
    with pytest.raises(NotImplementedError, match="symmetric"):
        inc_config(sym=False).get_quant_method(experts, "experts")
    with pytest.raises(NotImplementedError, match="4-bit"):
        inc_config(bits=8).get_quant_method(experts, "experts")


@pytest.mark.skipif(not PATCHED, reason="the refusal comes with the patch")
def test_awq_packing_is_refused_by_name(experts: FusedMoE) -> None:
    with pytest.raises(NotImplementedError, match="auto_round:auto_awq"):
        inc_config(packing_format="auto_round:auto_awq").get_quant_method(experts, "experts")


def test_other_platforms_are_unchanged(experts: FusedMoE) -> None:
    with use_platform("cpu"):
        assert inc_config().get_quant_method(experts, "experts") is None
