"""Random routed-expert problems in MiniMax-M2's shapes, and the bytes that they must move."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from u4moe import layout

HIDDEN = 3072
INTERMEDIATE = 1536
EXPERTS = 256
TOPK = 8
GROUP = 128


@dataclass(frozen=True, eq=False)  # one object is one set: what is made of it is kept by that
class Weights:
    """One layer's experts: packed bytes and scales as ``u4moe.layout.check`` wants them."""

    w13: Tensor
    s13: Tensor
    w2: Tensor
    s2: Tensor


@dataclass(frozen=True)
class Call:
    """One decode step of one layer: ``x [M, H]``, FP32 route weights and int32 ids ``[M, K]``."""

    x: Tensor
    weights: Weights
    route: Tensor
    ids: Tensor

    def arguments(self) -> layout.Call:
        """The operator's arguments in its order."""
        w = self.weights
        return layout.Call(self.x, w.w13, w.s13, w.w2, w.s2, self.route, self.ids)


def make_weights(
    inter: int, device: str, dtype: torch.dtype, experts: int = EXPERTS, seed: int = 0
) -> Weights:
    """Random bytes, and scales that keep the values near those of a real layer."""
    generator = torch.Generator(device).manual_seed(seed)

    def packed(rows: int, k: int) -> Tensor:
        return torch.randint(
            256, (experts, rows, k // 2), dtype=torch.uint8, device=device, generator=generator
        )

    def scales(rows: int, k: int) -> Tensor:
        shape = (experts, rows, k // GROUP)
        uniform = torch.rand(shape, device=device, generator=generator)
        return ((uniform + 0.5) * 0.01).to(dtype)

    return Weights(
        packed(2 * inter, HIDDEN),
        scales(2 * inter, HIDDEN),
        packed(HIDDEN, inter),
        scales(HIDDEN, inter),
    )


def make_calls(weights: list[Weights], tokens: int, count: int, dtype: torch.dtype) -> list[Call]:
    """``count`` calls over the weight sets in turn, each with its own tokens and routing."""
    device = weights[0].w13.device
    experts = weights[0].w13.shape[0]
    generator = torch.Generator(device).manual_seed(tokens)
    calls = []
    for index in range(count):
        x = torch.randn(tokens, HIDDEN, device=device, generator=generator).to(dtype)
        logits = torch.rand(tokens, experts, device=device, generator=generator)
        top, ids = logits.topk(TOPK, dim=-1)
        route = top / top.sum(dim=-1, keepdim=True)
        calls.append(Call(x, weights[index % len(weights)], route, ids.to(torch.int32)))
    return calls


def mean_bytes(calls: list[Call]) -> float:
    """Bytes of the experts that a call chooses, each counted once, averaged over the calls."""
    total = 0
    for call in calls:
        w = call.weights
        expert = sum(t[0].numel() * t.element_size() for t in (w.w13, w.s13, w.w2, w.s2))
        total += expert * call.ids.unique().numel()
    return total / len(calls)
