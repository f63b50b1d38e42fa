"""What the tensors of a raw-u4 experts call look like, and the checks that say so."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ACTIVATION_DTYPES = (torch.float16, torch.bfloat16)
SCALE_DTYPES = (torch.float16, torch.bfloat16)
ROUTE_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ID_DTYPES = (torch.int32, torch.int64)

NIBBLES_PER_WORD = 8


@dataclass(frozen=True)
class Shape:
    """Sizes of one call: M tokens of H, E experts of I, K slots a token, g weights a scale."""

    tokens: int
    hidden: int
    inter: int
    experts: int
    topk: int
    group: int


def _dtype(name: str, tensor: Tensor, allowed: tuple[torch.dtype, ...]) -> None:
    if tensor.dtype not in allowed:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in allowed)
        raise TypeError(f"{name} has type {tensor.dtype}, expected one of: {names}")


def _shape(name: str, tensor: Tensor, expected: tuple[int, ...], meaning: str) -> None:
    if tuple(tensor.shape) != expected:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {expected} = {meaning}")


def check(
    hidden_states: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
) -> Shape:
    """Checks one call's tensors without reading them and returns its sizes.

    Activations ``[M, H]`` FP16 or BF16; ``w13 [E, 2I, H/2]`` and ``w2 [E, H, I/2]`` uint8, gate
    rows before up rows, two weights a byte along K, low nibble first; ``s13 [E, 2I, H/g]`` and
    ``s2 [E, H, I/g]`` FP16 or BF16; ``topk_weights [M, K]`` FP32, FP16 or BF16; ``topk_ids
    [M, K]`` int32 or int64. All contiguous and on one device; g a multiple of 8.

    Raises TypeError for a wrong type, ValueError for the rest; both name the argument.
    """
    named = {
        "hidden_states": hidden_states,
        "w13": w13,
        "s13": s13,
        "w2": w2,
        "s2": s2,
        "topk_weights": topk_weights,
        "topk_ids": topk_ids,
    }
    ranks = (2, 3, 3, 3, 3, 2, 2)
    for (name, tensor), rank in zip(named.items(), ranks, strict=True):
        if tensor.dim() != rank:
            raise ValueError(f"{name} has {tensor.dim()} dimensions, expected {rank}")
        if tensor.device != hidden_states.device:
            raise ValueError(
                f"{name} is on {tensor.device}, hidden_states on {hidden_states.device}"
            )
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
    _dtype("hidden_states", hidden_states, ACTIVATION_DTYPES)
    _dtype("w13", w13, (torch.uint8,))
    _dtype("w2", w2, (torch.uint8,))
    _dtype("s13", s13, SCALE_DTYPES)
    _dtype("s2", s2, SCALE_DTYPES)
    _dtype("topk_weights", topk_weights, ROUTE_DTYPES)
    _dtype("topk_ids", topk_ids, ID_DTYPES)
    return _sizes(hidden_states, w13, s13, w2, s2, topk_weights, topk_ids)


def _sizes(
    hidden_states: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
) -> Shape:
    tokens, hidden = hidden_states.shape
    experts, inter = w2.shape[0], 2 * w2.shape[2]
    topk = topk_ids.shape[1]
    groups = s13.shape[2]
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
    _shape("w13", w13, (experts, 2 * inter, hidden // 2), "[E, 2I, H/2]")
    _shape("s13", s13, (experts, 2 * inter, groups), "[E, 2I, H/g]")
    _shape("w2", w2, (experts, hidden, inter // 2), "[E, H, I/2]")
    _shape("s2", s2, (experts, hidden, inter // group), "[E, H, I/g]")
    _shape("topk_weights", topk_weights, (tokens, topk), "[M, K]")
    _shape("topk_ids", topk_ids, (tokens, topk), "[M, K]")
    return Shape(tokens, hidden, inter, experts, topk, group)
