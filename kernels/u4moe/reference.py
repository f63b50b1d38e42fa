"""The same computation in plain FP32 torch, to read and to compare with."""

from __future__ import annotations

import torch
from torch import Tensor


def unpack(packed: Tensor) -> Tensor:
    """Weights ``[..., K]`` as int8 from bytes ``[..., K/2]``: low nibble first, minus 8."""
    low, high = packed & 0xF, packed >> 4
    return torch.stack((low, high), dim=-1).flatten(-2).to(torch.int8) - 8


def dequantise(packed: Tensor, scales: Tensor) -> Tensor:
    """FP32 weights ``[..., N, K]`` from bytes ``[..., N, K/2]`` and scales ``[..., N, K/g]``."""
    weights = unpack(packed).float()
    group = weights.shape[-1] // scales.shape[-1]
    return weights * scales.float().repeat_interleave(group, dim=-1)


def fused_experts(
    hidden_states: Tensor,
    w13: Tensor,
    s13: Tensor,
    w2: Tensor,
    s2: Tensor,
    topk_weights: Tensor,
    topk_ids: Tensor,
) -> Tensor:
    """FP32 ``[M, H]``: per token the routed sum of ``w2 @ (silu(gate @ x) * (up @ x))``."""
    out = torch.zeros(hidden_states.shape, dtype=torch.float32, device=hidden_states.device)
    for token, (ids, weights) in enumerate(zip(topk_ids.tolist(), topk_weights, strict=True)):
        x = hidden_states[token].float()
        for expert, weight in zip(ids, weights.float(), strict=True):
            if expert < 0:
                continue
            gate, up = (dequantise(w13[expert], s13[expert]) @ x).chunk(2)
            act = torch.nn.functional.silu(gate) * up
            out[token] += weight * (dequantise(w2[expert], s2[expert]) @ act)
    return out
