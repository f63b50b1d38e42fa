"""Where the time of one token goes: launches and layers against what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stack.model.log.samples import Distribution
from stack.model.log.timing import Row

FORWARD = "runner.forward"
BRIDGE = "moe.llm_scaler_u4_bridge"
PER_LAYER = ("moe.router_select", "moe.quant_apply")
"""Labels whose sum is a layer's experts; the bridge and the fallback stand inside the second."""
LAUNCHES = 2
"""Kernels that the tiny-M experts launch for a layer: up and down."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a token: `per_layer_ms` times `per_token` layers or calls; `share` of the token.

    Parts may lie inside each other.
    """

    name: str
    per_layer_ms: float | None = None
    per_token: float
    ms: float
    share: float | None = None


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a token; `ms_per_token` is measured, `rest_ms` what no part explains."""

    layers: int | None
    ms_per_token: float | None
    parts: tuple[Part, ...]
    rest_ms: float | None = None


def ms_per_token(output_tokens_per_second: float) -> float:
    """The time of a token of one sequence: 1000 / (output tok/s)."""
    return 1000.0 / output_tokens_per_second


def layers_from(rows: Sequence[Row]) -> int | None:
    """How many expert layers the model has: bridge calls a forward pass, where that is whole."""
    counts = {row.label: row.count for row in rows if row.rank == 0}
    bridge, forward = counts.get(BRIDGE), counts.get(FORWARD)
    if not bridge or not forward or bridge % forward:
        return None
    return bridge // forward


def kernel_waits(median_ms: float, layers: int, token_ms: float | None) -> Part:
    """Up and down launches of every layer at the median wait."""
    return _part("kernel waits", LAUNCHES * median_ms, layers, token_ms)


def experts(router_ms: float, apply_ms: float, layers: int, token_ms: float | None) -> Part:
    """Router and quant apply of every layer."""
    return _part("router and apply", router_ms + apply_ms, layers, token_ms)


def _part(name: str, per_layer: float, layers: int, token_ms: float | None) -> Part:
    ms = per_layer * layers
    share = ms / token_ms if token_ms else None
    return Part(name=name, per_layer_ms=per_layer, per_token=layers, ms=ms, share=share)


def token_budget(
    *,
    rows: Sequence[Row] = (),
    steps: Mapping[str, Distribution] | None = None,
    waits: float | None = None,
    output_tokens_per_second: float | None = None,
    layers: int | None = None,
) -> Budget | None:
    """Set a log's timings against the time of a token, or None where there is nothing to set.

    `rows` is a summary table, `steps` printed samples, whose medians are preferred because a
    table holds prefill and first tokens; `waits` is the median kernel wait in ms. The token's
    time comes from the throughput, or from the forward pass where that is longer: then the
    throughput is that of several sequences, or was measured without timers.
    """
    layers = layers or layers_from(rows)
    per_call = {row.label: row.avg_ms for row in rows if row.rank == 0}
    per_call |= {label: d.median for label, d in (steps or {}).items()}
    forward = per_call.get(FORWARD)
    told = ms_per_token(output_tokens_per_second) if output_tokens_per_second else None
    token = max((ms for ms in (told, forward) if ms), default=None)
    parts: list[Part] = []
    for label in (FORWARD, "runner.preprocess", "runner.postprocess"):
        if label in per_call:
            ms = per_call[label]
            share = ms / token if token else None
            parts.append(Part(name=label, per_token=1, ms=ms, share=share))
    rest = None
    if layers:
        if waits is not None:
            parts.append(kernel_waits(waits, layers, token))
        if all(label in per_call for label in PER_LAYER):
            router, apply = (per_call[label] for label in PER_LAYER)
            layer = experts(router, apply, layers, token)
            parts.append(layer)
            rest = forward - layer.ms if forward is not None else None
    if not parts:
        return None
    return Budget(layers=layers, ms_per_token=token, parts=tuple(parts), rest_ms=rest)
