"""Refusals that follow from memory and from the groups of quantized weights."""

from __future__ import annotations

from collections.abc import Iterator

from stack.model.hardware import GIB
from stack.model.preflight.case import Case, Point
from stack.model.preflight.kv import BLOCKS, bytes_per_rank, longest_for, width

_SMALLEST_GROUP = 32


def kv_memory(case: Case) -> Iterator[Point]:
    """One request of the longest context has to fit into what a device leaves for the KV cache."""
    what, asked, shape = "kv-cache", case.asked, case.shape
    length = asked.length or shape.longest
    if not (shape.layers and shape.kv_heads and shape.head_dim and length) or shape.latent:
        return
    block = asked.block or BLOCKS[case.hardware.device]
    need = bytes_per_rank(shape, asked, length, block)
    size = width(shape, asked)
    layers = -(-shape.layers // asked.pipeline)
    heads = max(1, shape.kv_heads // asked.tensor)
    text = (
        f"{length} tokens need {_size(need)} a rank (2 x {layers} layers x {heads} KV heads "
        f"x {shape.head_dim} x {size:g} bytes)"
    )
    source = "v1/kv_cache_interface.py: FullAttentionSpec.max_memory_usage_bytes"
    if asked.kv_bytes is not None:
        room, whence = float(asked.kv_bytes), "--kv-cache-memory-bytes gives"
    elif case.memory and case.weights is not None:
        usable = case.hardware.usable if asked.usable is None else asked.usable
        share = case.weights / (asked.tensor * asked.pipeline)
        room = case.memory * GIB * usable - share
        whence = (
            f"{usable:g} of {case.memory:.1f} GiB less {share / GIB:.1f} GiB of weights leaves, "
            "before activations,"
        )
    else:
        yield Point(what=what, result="ok", text=text, source=source)
        return
    said = f"{text}; {whence} {_size(room)}"
    if need > room:
        fits = longest_for(shape, asked, room, block)
        hint = f"--max-model-len {fits}" if fits else "more devices, or a smaller checkpoint"
        yield Point(what=what, result="refused", text=said, hint=hint, source=source)
    else:
        held = longest_for(shape, asked, room, block)
        yield Point(what=what, result="ok", text=f"{said}, for {held:,} tokens", source=source)


def _size(count: float) -> str:
    return f"{count / GIB:.2f} GiB" if abs(count) >= GIB / 10 else f"{count / 2**20:.1f} MiB"


def groups(case: Case) -> Iterator[Point]:
    """Scale groups must not be cut by the division among ranks."""
    group, tp, old = case.shape.group, case.asked.tensor, (0,) < case.release < (0, 29)
    if not group or group < 0:
        return
    for name, size in (("experts", case.shape.expert), ("intermediate", case.shape.dense)):
        if not size:
            continue
        if size % tp:
            yield Point(
                what="groups", result="refused", hint="a --tensor-parallel-size that divides it",
                text=f"{name}: {size} cannot be divided among {tp} ranks",
                source="model_executor/layers/fused_moe/layer.py",
            )
            continue
        part, smaller = size // tp, group
        while part % smaller and smaller > 1:
            smaller //= 2
        text = f"{name}: {size} / {tp} ranks = {part}"
        if smaller == group:
            yield Point(what="groups", result="ok", text=f"{text}, in groups of {group}")
        elif name == "experts" and smaller >= _SMALLEST_GROUP:
            done = f"the groups of {group} become groups of {smaller}" if old else (
                f"is padded to a multiple of {group}, or refused, as the backend can"
            )
            yield Point(
                what="groups", result="note", source="quantization/moe_wna16.py",
                text=f"{text}: {done}; a kernel for groups of {group} does not serve it",
            )
        else:
            yield Point(
                what="groups", result="refused", source="quantization: create_weights",
                text=f"{text} is no multiple of the group size {group}",
                hint="a --tensor-parallel-size that keeps groups whole",
            )
