"""vLLM on CPU tensors for the case modules: a platform, a process group, layers.

A source tree has no compiled extension and no installed distribution, so vLLM finds no
platform of its own. `use_platform` gives it one that keeps tensors on the CPU and answers
`is_xpu()`, `is_cuda()` and so on as told; everything else is the patched code.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import PlatformEnum


class SimulatedPlatform(CpuPlatform):
    """A CPU platform whose identity can be changed between tests."""

    _enum = PlatformEnum.CPU


_platform = SimulatedPlatform()
# Before any module does `from vllm.platforms import current_platform`.
vllm.platforms._current_platform = _platform


def applied(name: str) -> bool:
    """Whether the layer under test holds the patch `name`."""
    return name in os.environ.get("STACK_PATCHES", "").split(",")


@contextmanager
def use_platform(name: str) -> Iterator[None]:
    """Answer as platform `name` ("cpu", "xpu", "cuda", "rocm") inside the block."""
    before = _platform._enum
    _platform._enum = PlatformEnum[name.upper()]
    try:
        yield
    finally:
        _platform._enum = before


@contextmanager
def engine() -> Iterator[None]:
    """A default vLLM configuration, and process groups of one rank that stay."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import parallel_state

    with set_current_vllm_config(VllmConfig()):
        if not parallel_state.model_parallel_is_initialized():
            path = Path(tempfile.mkdtemp(prefix="rendezvous-")) / "store"
            parallel_state.init_distributed_environment(
                world_size=1,
                rank=0,
                local_rank=0,
                distributed_init_method=f"file://{path}",
                backend="gloo",
            )
            parallel_state.initialize_model_parallel(1, 1, backend="gloo")
            atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
        yield


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """The dtype of a model's parameters inside the block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def minimax_config(**changes: Any) -> SimpleNamespace:
    """A small configuration with MiniMax-M2's traits."""
    traits: dict[str, Any] = {
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "hidden_size": 256,
        "intermediate_size": 256,
        "scoring_func": "sigmoid",
        "use_routing_bias": True,
    }
    return SimpleNamespace(**{**traits, **changes})


def inc_config(**changes: Any) -> Any:
    """The quantization configuration of an AutoRound INT4 checkpoint."""
    from vllm.model_executor.layers.quantization.inc import INCConfig

    config: dict[str, Any] = {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "sym": True,
        "data_type": "int",
        "packing_format": "auto_round:auto_gptq",
    }
    return INCConfig.from_config({**config, **changes})


def fill(layer: Any, seed: int) -> Any:
    """Put random nibbles and small scales into a WNA16 layer's parameters; gives the layer."""
    generator = torch.Generator().manual_seed(seed)
    for name in ("w13_qweight", "w2_qweight"):
        weight = getattr(layer, name).data.view(torch.uint8)
        weight.copy_(torch.randint(0, 256, weight.shape, generator=generator, dtype=torch.uint8))
    for name in ("w13_scales", "w2_scales"):
        scale = getattr(layer, name).data
        scale.copy_(torch.rand(scale.shape, generator=generator) * 0.02 + 0.001)
    return layer


def dequantize(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """[..., K/2] uint8 and [..., K/128] to float32 [..., K]: (nibble - 8) * scale."""
    nibbles = torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
    return (nibbles.float() - 8) * scales.float().repeat_interleave(128, dim=-1)


def reference_experts(
    x: torch.Tensor,
    w13: torch.Tensor,
    s13: torch.Tensor,
    w2: torch.Tensor,
    s2: torch.Tensor,
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
) -> torch.Tensor:
    """The routed experts in float32, [M, H] in the dtype of `x`."""
    out = torch.zeros(x.shape, dtype=torch.float32)
    for expert in topk_ids.unique():
        tokens, slots = torch.nonzero(topk_ids == expert, as_tuple=True)
        gate_up = x[tokens].float() @ dequantize(w13[expert], s13[expert]).T
        gate, up = gate_up.chunk(2, dim=-1)
        routed = (torch.nn.functional.silu(gate) * up) @ dequantize(w2[expert], s2[expert]).T
        out[tokens] += topk_weights[tokens, slots, None].float() * routed
    return out.to(x.dtype)
