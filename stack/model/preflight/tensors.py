"""Refusals that follow from the tensors that a checkpoint has."""

from __future__ import annotations

from collections.abc import Iterator

from stack.model.preflight.case import Case, Point


def tensors(case: Case) -> Iterator[Point]:
    """Layers without tensors, and MTP modules that are only in `config.json`."""
    shape, found = case.shape, case.tensors
    if found is None or not shape.layers or not found.layers:
        return
    absent = [at for at in range(shape.layers) if at not in found.layers]
    if absent:
        some = ", ".join(map(str, absent[:4])) + (" ..." if len(absent) > 4 else "")
        yield Point(
            what="tensors", result="refused", hint="download the rest of the checkpoint",
            text=f"of {shape.layers} layers {len(absent)} have no tensor: {some}",
        )
    else:
        yield Point(
            what="tensors", result="ok", text=f"{found.count:,} in {shape.layers} layers"
        )
    speculates = (case.asked.speculation or "").endswith("mtp")
    if not shape.modules:
        if speculates:
            yield Point(
                what="mtp", result="refused", hint="leave out --speculative-config",
                text="speculation by MTP was asked for, and config.json advertises no module",
            )
        return
    wanted = range(shape.layers, shape.layers + shape.modules)
    said = f"config.json advertises {shape.modules} modules ({shape.advertised})"
    if found.mtp or all(at in found.layers for at in wanted):
        yield Point(what="mtp", result="ok", text=f"{said}, and their tensors are there")
        return
    names = "/".join(map(str, wanted))
    yield Point(
        what="mtp", result="refused" if speculates else "note",
        text=f"{said}, but no tensor is named model.layers.{names} or mtp",
        hint="speculate by another method, or with a checkpoint that has them",
    )
