"""What plain torch does on a CPU: dequantise the chosen experts, then multiply."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from u4moe.reference import unpack

from u4moe_bench.problem import Call


def _dequantise(packed: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    group = packed.shape[-1] * 2 // scales.shape[-1]
    rows = packed.shape[0]
    weights = unpack(packed).view(rows, -1, group).to(dtype)
    return (weights * scales.to(dtype).unsqueeze(-1)).view(rows, -1)


def torch_step(call: Call) -> Callable[[], Tensor]:
    """Each distinct expert once, in the activation's type, for all of its tokens."""

    def step() -> Tensor:
        x, w = call.x, call.weights
        out = torch.zeros(x.shape, dtype=torch.float32)
        for expert in call.ids.unique().tolist():
            tokens, slots = (call.ids == expert).nonzero(as_tuple=True)
            gate_up = x[tokens] @ _dequantise(w.w13[expert], w.s13[expert], x.dtype).t()
            gate, up = gate_up.chunk(2, dim=-1)
            act = torch.nn.functional.silu(gate) * up
            part = act @ _dequantise(w.w2[expert], w.s2[expert], x.dtype).t()
            out.index_add_(0, tokens, call.route[tokens, slots].unsqueeze(1) * part.float())
        return out.to(x.dtype)

    return step
