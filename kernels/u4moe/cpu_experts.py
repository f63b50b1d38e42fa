"""Finds the compiled CPU kernels and calls them."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import Tensor

from u4moe.layout import Shape


@functools.cache
def unavailable() -> str | None:
    """Loads the extension once; the reason where it is missing or does not load, else None."""
    found = sorted(Path(__file__).parent.glob("_cpu*.so"))
    if not found:
        return "u4moe's CPU extension is not built: that takes torch and a C++ compiler"
    try:
        torch.ops.load_library(str(found[0]))
    except OSError as error:
        return f"u4moe's CPU extension does not load: {error}"
    return None


def isa(name: str | None = None) -> str:
    """The instruction set in use: the machine's best, or after a call with ``name`` that one.

    ``name`` is one of avx512, avx2, portable or auto. Raises RuntimeError where the machine lacks
    it or the extension is missing.
    """
    _require()
    return str(torch.ops.u4moe_cpu.isa(name or ""))


def run(
    out: Tensor,
    hidden_states: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
    shape: Shape,
) -> None:
    """Writes ``out [M, H]``; arguments as checked by ``layout.check``, which made ``shape``."""
    _require()
    torch.ops.u4moe_cpu.fused_experts(
        out, hidden_states, w13, s13, w2, s2, topk_weights, topk_ids, shape.group
    )


def _require() -> None:
    reason = unavailable()
    if reason is not None:
        raise RuntimeError(reason)
