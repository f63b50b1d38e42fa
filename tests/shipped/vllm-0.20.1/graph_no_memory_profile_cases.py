"""Which platforms estimate the memory of graphs before the KV cache is sized."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cpu_engine import applied, use_platform
from vllm.config import CUDAGraphMode
from vllm.v1.worker import gpu_worker

PATCHED = applied("graph-no-memory-profile")
GIB = 1 << 30


class Runner:
    """Counts the estimates; each takes 1.15 GiB from the KV cache."""

    model_memory_usage = 4 * GIB
    estimates = 0

    def profile_run(self) -> None:
        return None

    def profile_cudagraph_memory(self) -> int:
        self.estimates += 1
        return int(1.15 * GIB)


@contextmanager
def memory_profiling(snapshot: Any, weights_memory: int) -> Iterator[Any]:
    yield SimpleNamespace(
        before_profile=SimpleNamespace(torch_peak=0),
        after_profile=SimpleNamespace(free_memory=3 * GIB),
        non_torch_increase=0,
        weights_memory=weights_memory,
    )


def available(
    monkeypatch: pytest.MonkeyPatch, platform: str, mode: CUDAGraphMode
) -> tuple[int, int]:
    """Bytes for the KV cache on a simulated 8 GiB device, and the number of estimates."""
    monkeypatch.setattr(gpu_worker, "memory_profiling", memory_profiling)
    monkeypatch.setattr(
        torch.accelerator, "memory_stats", lambda device: {"allocated_bytes.all.peak": GIB}
    )
    worker = gpu_worker.Worker.__new__(gpu_worker.Worker)
    worker.cache_config = SimpleNamespace(kv_cache_memory_bytes=None, gpu_memory_utilization=0.9)
    worker.init_snapshot = SimpleNamespace(free_memory=8 * GIB, total_memory=8 * GIB)
    worker.vllm_config = SimpleNamespace(compilation_config=SimpleNamespace(cudagraph_mode=mode))
    worker.requested_memory = 7 * GIB
    worker.device = torch.device("cpu")
    worker.model_runner = Runner()
    with use_platform(platform):
        return worker.determine_available_memory(), worker.model_runner.estimates


@pytest.mark.parametrize("mode", [CUDAGraphMode.PIECEWISE, CUDAGraphMode.FULL])
@pytest.mark.parametrize(
    ("platform", "estimates"), [("cuda", 1), ("rocm", 0), ("xpu", 0 if PATCHED else 1)]
)
def test_xpu_is_left_out_like_rocm(
    platform: str, estimates: int, mode: CUDAGraphMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, taken = available(monkeypatch, platform, mode)
    assert taken == estimates
    assert left == 2 * GIB - estimates * int(1.15 * GIB)


@pytest.mark.parametrize("platform", ["cuda", "rocm", "xpu"])
def test_without_graphs_nothing_is_estimated(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert available(monkeypatch, platform, CUDAGraphMode.NONE) == (2 * GIB, 0)
