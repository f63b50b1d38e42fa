"""Launches the two Triton kernels of a raw-u4 experts call."""

from __future__ import annotations

import struct

import torch
import triton
from torch import Tensor

from u4moe.layout import NIBBLES_PER_WORD, Shape
from u4moe.triton_kernels import down_kernel, gate_up_kernel
from u4moe.tuning import Choice, Tile, choose

MAX_CHUNK_WORDS = 16
LANE_WORDS = 4
LANES = 32

# Bits of the floats that nibbles are put into. They reach the kernels as run-time values:
# NVIDIA's assembler spends two instructions on an and-or of two literals, one otherwise.
POWERS = tuple(
    struct.unpack("<i", struct.pack("<f", power))[0]
    for power in (4096.0, 2048.0, 256.0, 128.0, 16.0)
)


def _split(n: int, k: int, group: int, tile: Tile) -> dict[str, int | bool]:
    """The walk over ``n`` rows and along K, in chunks of words that share a group."""
    group_words = group // NIBBLES_PER_WORD
    words = min(MAX_CHUNK_WORDS, group_words & -group_words)
    chunks = k // NIBBLES_PER_WORD // words
    block = max(1, tile.words // words)
    return {
        "N": n,
        "CHUNKS": chunks,
        "CHUNKS_PER_GROUP": group_words // words,
        "WORDS": words,
        "LANE_WORDS": min(LANE_WORDS, words),
        "ROWS": tile.rows,
        "PARTS": tile.parts,
        "BLOCK_C": block,
        "UNROLL": tile.unroll,
        "num_warps": max(1, tile.parts * block * words // (LANES * LANE_WORDS)),
        "num_stages": 1,
    }


def _grid(n: int, tile: Tile, height: int) -> tuple[int, int]:
    return triton.cdiv(n, tile.rows * tile.parts), height


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
    choice: Choice | None = None,
    only: str | None = None,
) -> None:
    """Writes ``out [M, H]``; arguments as checked by ``layout.check``, which made ``shape``.

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
            hidden_states,
            w13.view(torch.int32),
            s13,
            topk_ids,
            act,
            shape.experts,
            *POWERS,
            TOPK=shape.topk,
            **_split(shape.inter, shape.hidden, shape.group, gate_up),
        )
    if only != "gate_up":
        down_kernel[_grid(shape.hidden, down, shape.tokens)](
            act,
            w2.view(torch.int32),
            s2,
            topk_ids,
            topk_weights,
            out,
            shape.experts,
            *POWERS,
            TOPK=shape.topk,
            **_split(shape.hidden, shape.inter, shape.group, down),
        )
