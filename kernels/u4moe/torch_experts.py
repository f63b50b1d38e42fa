"""The CPU kernels' stand-in where no extension was compiled: plain torch, right and slow."""

from __future__ import annotations

import functools
import warnings

import torch
from torch import Tensor

from u4moe.layout import Call, Shape
from u4moe.reference import dequantise


@functools.cache
def warn(reason: str) -> None:
    """Says once that a model is about to run slowly, and why."""
    warnings.warn(f"{reason}; plain torch stands in for it, many times slower", stacklevel=3)


def run(out: Tensor, call: Call, shape: Shape) -> None:
    """Writes ``out [M, H]``: in FP32, each chosen expert dequantised once for all its tokens.

    A call as checked by ``layout.check``, which made ``shape``. Raises IndexError for an id of E
    or more.
    """
    x, route, ids = call.hidden_states.float(), call.topk_weights.float(), call.topk_ids
    total = torch.zeros(x.shape)
    for expert in ids.unique().tolist():
        if expert < 0:
            continue
        if expert >= shape.experts:
            raise IndexError(f"topk_ids names expert {expert} of {shape.experts}")
        tokens, slots = (ids == expert).nonzero(as_tuple=True)
        gate, up = (x[tokens] @ dequantise(call.w13[expert], call.s13[expert]).t()).chunk(2, dim=-1)
        act = torch.nn.functional.silu(gate) * up
        part = act @ dequantise(call.w2[expert], call.s2[expert]).t()
        total.index_add_(0, tokens, route[tokens, slots].unsqueeze(1) * part)
    out.copy_(total)
