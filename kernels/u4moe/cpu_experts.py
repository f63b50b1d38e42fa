"""Finds the compiled CPU kernels and calls them."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import Tensor

from u4moe.layout import Call, Shape


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

    ``name`` is one of amx, avx512vnni, avx512, avx2, portable or auto. Raises RuntimeError where
    the machine lacks it or the extension is missing.
    """
    _require()
    return str(torch.ops.u4moe_cpu.isa(name or ""))


def run(out: Tensor, call: Call, shape: Shape) -> None:
    """Writes ``out [M, H]``; a call as checked by ``layout.check``, which made ``shape``."""
    _require()
    torch.ops.u4moe_cpu.fused_experts(out, *call, shape.group)


def _require() -> None:
    reason = unavailable()
    if reason is not None:
        raise RuntimeError(reason)
