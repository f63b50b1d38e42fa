"""XPU's platform keeps a requested graph mode with several ranks only when told to."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cpu_engine import applied, use_platform
from vllm import envs
from vllm.config import CUDAGraphMode
from vllm.v1.attention.backends.registry import AttentionBackendEnum

SWITCH = "VLLM_XPU_FORCE_GRAPH_WITH_COMM"
PATCHED = applied("graph-force-comm")
NONE, FULL, PIECEWISE = CUDAGraphMode.NONE, CUDAGraphMode.FULL, CUDAGraphMode.PIECEWISE


@pytest.fixture
def xpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The XPU platform's module; the kernels that it loads exist with a device only."""
    for name in ("", "._C", "._moe_C", "._xpu_C"):
        monkeypatch.setitem(
            sys.modules, f"vllm_xpu_kernels{name}", ModuleType(f"vllm_xpu_kernels{name}")
        )
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.setenv("VLLM_XPU_ENABLE_XPU_GRAPH", "1")
    # Written by the check, for oneCCL and worker processes.
    for name in ("UCX_MEMTYPE_CACHE", "VLLM_WORKER_MULTIPROC_METHOD"):
        monkeypatch.setenv(name, "spawn")
    module = importlib.import_module("vllm.platforms.xpu")
    monkeypatch.setattr(module, "supports_xpu_graph", lambda: True)
    with use_platform("xpu"):
        yield module


def mode_after_check(
    xpu: Any,
    ranks: int,
    mode: CUDAGraphMode,
    backend: AttentionBackendEnum = AttentionBackendEnum.FLASH_ATTN,
) -> CUDAGraphMode:
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(world_size_across_dp=ranks, worker_cls="auto"),
        compilation_config=SimpleNamespace(
            compile_sizes=None,
            cudagraph_mode=mode,
            pass_config=SimpleNamespace(
                enable_sp=False,
                fuse_gemm_comms=False,
                fuse_allreduce_rms=False,
                fuse_norm_quant=False,
                fuse_act_quant=False,
                fuse_attn_quant=False,
                fuse_act_padding=False,
                fuse_rope_kvcache=False,
            ),
        ),
        attention_config=SimpleNamespace(backend=backend),
        kv_transfer_config=None,
    )
    xpu.XPUPlatform.check_and_update_config(config)
    return config.compilation_config.cudagraph_mode


@pytest.mark.parametrize("value", [None, "0"])
@pytest.mark.parametrize("mode", [FULL, PIECEWISE, NONE])
def test_off_several_ranks_have_no_graphs(
    value: str | None, mode: CUDAGraphMode, xpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    assert mode_after_check(xpu, 4, mode) == NONE


@pytest.mark.parametrize(
    ("mode", "kept"), [(FULL, PIECEWISE), (PIECEWISE, PIECEWISE), (NONE, NONE)]
)
def test_on_several_ranks_are_treated_like_one(
    mode: CUDAGraphMode, kept: CUDAGraphMode, xpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    assert mode_after_check(xpu, 4, mode) == (kept if PATCHED else NONE)
    assert mode_after_check(xpu, 1, mode) == kept


def test_on_another_attention_backend_keeps_the_full_mode(
    xpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    triton = AttentionBackendEnum.TRITON_ATTN
    assert mode_after_check(xpu, 4, FULL, triton) == (FULL if PATCHED else NONE)


def test_graphs_that_are_not_enabled_or_not_there_stay_off(
    xpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setenv("VLLM_XPU_ENABLE_XPU_GRAPH", "0")
    assert mode_after_check(xpu, 4, PIECEWISE) == NONE
    monkeypatch.setenv("VLLM_XPU_ENABLE_XPU_GRAPH", "1")
    monkeypatch.setattr(xpu, "supports_xpu_graph", lambda: False)
    assert mode_after_check(xpu, 4, PIECEWISE) == NONE


@pytest.mark.skipif(not PATCHED, reason="the switch comes with the patch")
def test_the_switch_is_registered_and_off_by_default(xpu: Any) -> None:
    assert envs.VLLM_XPU_FORCE_GRAPH_WITH_COMM is False
    assert SWITCH in envs.compile_factors()
