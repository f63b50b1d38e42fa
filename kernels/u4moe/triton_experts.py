"""Launches the two Triton kernels of a raw-u4 experts call."""

from __future__ import annotations

import struct
from typing import Any

import torch
import triton
from torch import Tensor

from u4moe.layout import Call, Shape
from u4moe.triton_kernels import down_kernel, gate_up_kernel
from u4moe.tuning import Choice, Tile, choose
from u4moe.walk import plan

# Bits of the floats that nibbles are put into. They reach the kernels as run-time values:
# NVIDIA's assembler spends two instructions on an and-or of two literals, one otherwise.
POWERS = tuple(
    struct.unpack("<i", struct.pack("<f", power))[0]
    for power in (4096.0, 2048.0, 256.0, 128.0, 16.0)
)


def _options(n: int, k: int, shape: Shape, tile: Tile) -> dict[str, Any]:
    walk = plan(n, k, shape.group, shape.topk, tile)
    return {"WALK": walk, "num_warps": walk.warps, "num_stages": 1}


def _grid(n: int, tile: Tile, height: int) -> tuple[int, int]:
    return triton.cdiv(n, tile.rows * tile.parts), height


def run(
    out: Tensor,
    call: Call,
    shape: Shape,
    choice: Choice | None = None,
    only: str | None = None,
) -> None:
    """Writes ``out [M, H]``; a call as checked by ``layout.check``, which made ``shape``.

    ``only`` launches one of ``gate_up`` and ``down``, for timing: the result is then no result.
    """
    if shape.tokens == 0:
        return
    choice = choice or choose(shape.hidden, shape.inter, shape.tokens)
    pairs = shape.tokens * shape.topk
    act = torch.empty(pairs, shape.inter, dtype=torch.float32, device=out.device)
    gate_up, down = choice.gate_up, choice.down
    if only != "down":
        gate_up_kernel[_grid(shape.inter, gate_up, pairs)](
            call.hidden_states,
            call.w13.view(torch.int32),
            call.s13,
            call.topk_ids,
            act,
            shape.experts,
            *POWERS,
            **_options(shape.inter, shape.hidden, shape, gate_up),
        )
    if only != "gate_up":
        down_kernel[_grid(shape.hidden, down, shape.tokens)](
            act,
            call.w2.view(torch.int32),
            call.s2,
            call.topk_ids,
            call.topk_weights,
            out,
            shape.experts,
            *POWERS,
            **_options(shape.hidden, shape.inter, shape, down),
        )
