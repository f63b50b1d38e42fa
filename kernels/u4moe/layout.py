"""What the tensors of a raw-u4 experts call look like, and the checks that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

ACTIVATION_DTYPES = (torch.float16, torch.bfloat16)
SCALE_DTYPES = (torch.float16, torch.bfloat16)
ROUTE_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ID_DTYPES = (torch.int32, torch.int64)
PACKED = (torch.uint8,)

NIBBLES_PER_WORD = 8

# Dimensions and types of each argument, in the operator's order.
EXPECTED = (
    (2, ACTIVATION_DTYPES),
    (3, PACKED),
    (3, SCALE_DTYPES),
    (3, PACKED),
    (3, SCALE_DTYPES),
    (2, ROUTE_DTYPES),
    (2, ID_DTYPES),
)


class Call(NamedTuple):
    """The tensors of one call, in the operator's order; ``check`` says what each must be."""

    hidden_states: Tensor
    w13: Tensor
    s13: Tensor
    w2: Tensor
    s2: Tensor
    topk_weights: Tensor
    topk_ids: Tensor


@dataclass(frozen=True)
class Shape:
    """Sizes of one call: M tokens of H, E experts of I, K slots a token, g weights a scale."""

    tokens: int
    hidden: int
    inter: int
    experts: int
    topk: int
    group: int


def _shape(name: str, tensor: Tensor, expected: tuple[int, ...], meaning: str) -> None:
    if tensor.shape != expected:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {expected} = {meaning}")


def check(call: Call) -> Shape:
    """Checks one call's tensors without reading them and returns its sizes.

    Activations ``[M, H]`` FP16 or BF16; ``w13 [E, 2I, H/2]`` and ``w2 [E, H, I/2]`` uint8, gate
    rows before up rows, two weights a byte along K, low nibble first; ``s13 [E, 2I, H/g]`` and
    ``s2 [E, H, I/g]`` FP16 or BF16; ``topk_weights [M, K]`` FP32, FP16 or BF16; ``topk_ids
    [M, K]`` int32 or int64. All contiguous and on one device; g a multiple of 8.

    Raises TypeError for a wrong type, ValueError for the rest; both name the argument.
    """
    device = call.hidden_states.device
    for name, tensor, (rank, dtypes) in zip(Call._fields, call, EXPECTED, strict=True):
        if tensor.dim() != rank:
            raise ValueError(f"{name} has {tensor.dim()} dimensions, expected {rank}")
        if tensor.device != device:
            raise ValueError(f"{name} is on {tensor.device}, hidden_states on {device}")
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
        if tensor.dtype not in dtypes:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise TypeError(f"{name} has type {tensor.dtype}, expected one of: {names}")
    return _sizes(call)


def _sizes(call: Call) -> Shape:
    tokens, hidden = call.hidden_states.shape
    experts, inter = call.w2.shape[0], 2 * call.w2.shape[2]
    topk = call.topk_ids.shape[1]
    groups = call.s13.shape[2]
    if min(hidden, inter, experts, topk, groups) < 1:
        raise ValueError(
            f"empty dimension: H={hidden}, I={inter}, E={experts}, K={topk}, H/g={groups}"
        )
    if hidden % groups or (hidden // groups) % NIBBLES_PER_WORD:
        raise ValueError(
            f"s13 has {groups} scales for H={hidden}: groups must be equal and a multiple of "
            f"{NIBBLES_PER_WORD} weights"
        )
    group = hidden // groups
    if inter % group:
        raise ValueError(f"I={inter} (from w2) is not a multiple of the group size {group}")
    _shape("w13", call.w13, (experts, 2 * inter, hidden // 2), "[E, 2I, H/2]")
    _shape("s13", call.s13, (experts, 2 * inter, groups), "[E, 2I, H/g]")
    _shape("w2", call.w2, (experts, hidden, inter // 2), "[E, H, I/2]")
    _shape("s2", call.s2, (experts, hidden, inter // group), "[E, H, I/g]")
    _shape("topk_weights", call.topk_weights, (tokens, topk), "[M, K]")
    _shape("topk_ids", call.topk_ids, (tokens, topk), "[M, K]")
    return Shape(tokens, hidden, inter, experts, topk, group)
