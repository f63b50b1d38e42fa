"""Clocks: graph replay on an accelerator, bests on a CPU, and the memory's own speed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

Step = Callable[[], object]


def graph_microseconds(steps: Sequence[Step], repeats: int = 30) -> float:
    """Median microseconds a step inside one CUDA graph that runs all steps in turn."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for step in steps:
            step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):  # torch.cuda.graph would empty the allocator's cache first
        graph.capture_begin()
        for step in steps:
            step()
        graph.capture_end()
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(repeats):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(steps))
    return statistics.median(times)


def cpu_microseconds(steps: Sequence[Step], seconds: float = 1.0) -> float:
    """The best of all steps' microseconds, over two passes or as many as fit into ``seconds``.

    Whatever else runs on the machine only ever adds to a time, and can add several times itself:
    threads that lose a core keep the others waiting. The memory's speed is a best too.
    """
    for step in steps:
        step()
    times = []
    end = time.perf_counter() + seconds
    while len(times) < 2 * len(steps) or time.perf_counter() < end:
        for step in steps:
            begin = time.perf_counter()
            step()
            times.append((time.perf_counter() - begin) * 1e6)
    return min(times)


def cuda_copy_bandwidth() -> float:
    """Bytes a second of a large copy by a kernel, read plus write."""
    source = torch.randint(1 << 30, (1 << 30,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    micros = graph_microseconds([lambda: torch.bitwise_not(source, out=target)], repeats=10)
    return 2 * source.numel() * source.element_size() / (micros * 1e-6)


def cpu_read_bandwidth() -> float:
    """Bytes a second at which all of torch's threads read a large tensor, the best of many."""
    source = torch.ones(512 << 20, dtype=torch.uint8).view(torch.float32)
    return source.numel() * source.element_size() / (cpu_microseconds([source.sum]) * 1e-6)
