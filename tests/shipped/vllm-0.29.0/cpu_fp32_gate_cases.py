"""Cases for `cpu-fp32-gate`: a packed linear weight keeps its dtype.

They run inside the engine's Python with the patch's layer first on PYTHONPATH. STACK_PATCHES
names the patches of that layer; without this one the first case expects upstream's behaviour, and
the rest, which would corrupt the heap there, are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.model_executor.layers import utils
from vllm.model_executor.layers.fused_moe.router.gate_linear import GateLinear
from vllm.model_executor.layers.linear import ReplicatedLinear

PATCHED = "cpu-fp32-gate" in os.environ.get("STACK_PATCHES", "").split(",")
needs_patch = pytest.mark.skipif(not PATCHED, reason="reads past its input without the patch")
HIDDEN, EXPERTS = 256, 16


@pytest.fixture
def bf16_model(tmp_path: Path) -> Iterator[None]:
    """Stand where a BF16 model is loaded: one rank, BF16 as the default dtype."""
    before = torch.get_default_dtype()
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            1, 0, f"file://{tmp_path / 'rendezvous'}", 0, backend="gloo"
        )
        parallel_state.initialize_model_parallel(1, 1)
        torch.set_default_dtype(torch.bfloat16)
        yield
        torch.set_default_dtype(before)
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()


def filled(layer: torch.nn.Module) -> torch.Tensor:
    """Give `layer` random weights, pack them as a model loader does, return a copy of them."""
    torch.manual_seed(0)
    weight = torch.randn(layer.weight.shape, dtype=torch.float32).to(layer.weight.dtype)
    layer.weight.data.copy_(weight)
    layer.quant_method.process_weights_after_loading(layer)
    return weight


# 16 BF16 rows take the small-matrix kernel where the CPU has AMX, everything else oneDNN.
@pytest.mark.parametrize("rows", [EXPERTS, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_placeholder_dtype(bf16_model: None, dtype: torch.dtype, rows: int) -> None:
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(torch.zeros(rows, HIDDEN, dtype=dtype), requires_grad=False)
    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=True)
    assert layer.weight.numel() == 0
    assert layer.weight.dtype == (dtype if PATCHED else torch.bfloat16)


@needs_patch
@pytest.mark.parametrize("tokens", [1, 4, 64, 300])
def test_fp32_gate_in_a_bf16_model(bf16_model: None, tokens: int) -> None:
    gate = GateLinear(
        HIDDEN, EXPERTS, bias=False, params_dtype=torch.float32, out_dtype=torch.float32
    )
    weight = filled(gate)
    hidden = torch.randn(tokens, HIDDEN, dtype=torch.bfloat16)
    logits, _ = gate(hidden)
    assert logits.dtype == torch.float32
    expected = hidden.double() @ weight.double().t()
    torch.testing.assert_close(logits.double(), expected, rtol=1e-5, atol=1e-4)


@needs_patch
def test_bf16_layer_is_as_before(bf16_model: None) -> None:
    layer = ReplicatedLinear(HIDDEN, 4096, bias=False)
    weight = filled(layer)
    hidden = torch.randn(8, HIDDEN, dtype=torch.bfloat16)
    output, _ = layer(hidden)
    assert output.dtype == torch.bfloat16
    expected = (hidden.double() @ weight.double().t()).to(torch.bfloat16)
    torch.testing.assert_close(output, expected, rtol=2**-7, atol=2**-4)


@needs_patch
def test_kept_weight_is_untouched(bf16_model: None) -> None:
    layer = torch.nn.Module()
    weight = torch.randn(EXPERTS, HIDDEN, dtype=torch.float32)
    layer.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)
    utils.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)
    assert torch.equal(layer.weight, weight)
