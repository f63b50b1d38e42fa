"""Launches the two Triton kernels of a raw-u4 experts call."""

from __future__ import annotations

import struct

import torch
import triton
import triton.language as tl
from torch import Tensor

from u4moe.layout import NIBBLES_PER_WORD, Shape
from u4moe.triton_kernels import down_kernel, gate_up_kernel
from u4moe.tuning import Choice, Tile, choose

MAX_CHUNK_WORDS = 16
LANE_WORDS = 4
TRITON_DTYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}

# Bits of the floats that nibbles are put into. They reach the kernels as run-time values:
# NVIDIA's assembler spends two instructions on an and-or of two literals, one otherwise.
EVEN_ONE = struct.unpack("<i", struct.pack("<f", 256.0))[0]
ODD_ONE = struct.unpack("<i", struct.pack("<f", 16.0))[0]


def _split(k: int, group: int, tile: Tile) -> dict[str, int]:
    """The walk along K in chunks of words, each inside one group."""
    group_words = group // NIBBLES_PER_WORD
    words = min(MAX_CHUNK_WORDS, group_words & -group_words)
    return {
        "CHUNKS": k // NIBBLES_PER_WORD // words,
        "CHUNKS_PER_GROUP": group_words // words,
        "WORDS": words,
        "LANE_WORDS": min(LANE_WORDS, words),
        "BLOCK_N": tile.rows,
        "BLOCK_C": max(1, tile.words // words),
        "num_warps": tile.warps,
        "num_stages": 1,
    }


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
        gate_up_kernel[(triton.cdiv(shape.inter, gate_up.rows), pairs)](
            hidden_states.view(torch.int32),
            w13.view(torch.int32),
            s13,
            topk_ids,
            act,
            shape.experts,
            shape.inter,
            EVEN_ONE,
            ODD_ONE,
            X_DTYPE=TRITON_DTYPES[hidden_states.dtype],
            TOPK=shape.topk,
            **_split(shape.hidden, shape.group, gate_up),
        )
    if only != "gate_up":
        down_kernel[(triton.cdiv(shape.hidden, down.rows), shape.tokens)](
            act,
            w2.view(torch.int32),
            s2,
            topk_ids,
            topk_weights,
            out,
            shape.experts,
            shape.hidden,
            EVEN_ONE,
            ODD_ONE,
            TOPK=shape.topk,
            **_split(shape.inter, shape.group, down),
        )
