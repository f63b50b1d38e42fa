"""Forecast: what a rebase to each of some revisions would meet; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.errors import StackError
from stack.flows.base import Base, open_base
from stack.flows.events import Emit, Progress
from stack.flows.pins import resolve_pin
from stack.flows.prefixes import items
from stack.flows.rebase.origins import Origin, origins
from stack.model.line.line import Member, Pin, Series
from stack.model.line.outcome import Outcome
from stack.repo.carry import Merger
from stack.repo.carry_series import CarriedStep, carry_series
from stack.repo.odb import ObjectStore
from stack.store.project import Line, Project
from stack.store.resolutions import Memory

LETTERS = {
    Outcome.CLEAN: "+", Outcome.MODIFIED: "~", Outcome.EMPTY: "0", Outcome.UPSTREAMED: "=",
    Outcome.CONFLICT: "!", Outcome.NOT_TRIED: ".",
}


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One patch at one revision. `regions` are its open conflict regions by key."""

    outcome: Outcome
    trouble: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    answered: int = 0
    shrunk: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One revision: its pin, a cell per patch, and how many regions are open and distinct."""

    revision: str
    pin: Pin | None
    cells: tuple[Cell, ...] = ()
    regions: int = 0
    distinct: int = 0
    answered: int = 0
    error: str | None = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Patches x revisions; `distinct` counts the questions over all revisions together."""

    line: str
    patches: tuple[str, ...]
    columns: tuple[Column, ...]
    distinct: int


def forecast(
    project: Project, line: Line, members: Sequence[Member], revisions: Sequence[str], emit: Emit,
    *, why: bool = False,
) -> Forecast:
    """Carry `members` to every revision in memory; with `why`, ask upstream's history as well, and
    look for where lost code went.

    A revision that no source serves becomes a column with the reason; the others are still told.
    """
    memory = Memory(project.paths.patches / line.series.upstream / "resolutions")
    parsed = items(line, members, project)
    base = open_base(project, line.series, emit)
    found: list[tuple[Pin, Base] | str] = []
    fetched: dict[str, str] = {}
    for at, revision in enumerate(revisions):
        emit(Progress("fetching", at, len(revisions), revision))
        try:
            pin = resolve_pin(project, line.series.upstream, revision, emit, fetched=fetched)
            found.append((pin, open_base(project, at_pin(line.series, pin), emit)))
        except StackError as wrong:
            found.append(wrong.message)
    columns: list[Column] = []
    with ObjectStore(base.git) as odb:
        merger = Merger(odb)
        for at, (revision, target) in enumerate(zip(revisions, found, strict=True)):
            emit(Progress("forecast", at, len(revisions), revision))
            if isinstance(target, str):
                columns.append(Column(revision=revision, pin=None, error=target))
                continue
            steps = carry_series(
                odb, parsed, base.commit, target[1].commit, answer=memory.answer,
                on_conflict="assume", merger=merger, explain=why,
            )
            behind: dict[str, tuple[Origin, ...]] = {}
            if why:
                emit(Progress("asking the history", at, len(revisions), revision))
                behind = origins(merger, steps, base.commit, target[1].commit, memory.answer)
            cells = tuple(cell(step, behind.get(step.name, ())) for step in steps)
            regions = [key for one in cells for key in one.regions]
            columns.append(
                Column(
                    revision=revision, pin=target[0], cells=cells, regions=len(regions),
                    distinct=len(set(regions)), answered=sum(one.answered for one in cells),
                )
            )
            odb.forget()
    if why:
        columns = _by_release(columns)
    keys = {key for column in columns for one in column.cells for key in one.regions}
    return Forecast(
        line=line.id, patches=tuple(member.name for member in members), columns=tuple(columns),
        distinct=len(keys),
    )


def _by_release(columns: Sequence[Column]) -> list[Column]:
    """Where no history names a culprit, the first of the revisions that brought each conflict."""
    out: list[Column] = []
    before: Column | None = None
    first: dict[int, Origin] = {}
    for column in columns:
        cells = list(column.cells)
        for at, one in enumerate(cells):
            if one.outcome is not Outcome.CONFLICT:
                first.pop(at, None)
                continue
            if before is not None and before.cells[at].outcome is not Outcome.CONFLICT:
                first[at] = Origin(
                    what="release", subject=column.revision, last_good=before.revision
                )
            if not one.origins and at in first:
                cells[at] = msgspec.structs.replace(one, origins=(first[at],))
        out.append(msgspec.structs.replace(column, cells=tuple(cells)))
        before = column if cells else before
    return out


def at_pin(series: Series, pin: Pin) -> Series:
    """An empty series of the same upstream at another pin."""
    return Series(schema=1, upstream=series.upstream, pin=pin, context=series.context)


def cell(step: CarriedStep, behind: tuple[Origin, ...]) -> Cell:
    """What a carried step means for people and JSON."""
    return Cell(
        outcome=step.outcome,
        trouble=tuple(f"{one.path}: {one.why}" for one in step.trouble),
        regions=tuple(region.key for one in step.trouble for region in one.regions),
        answered=step.answered,
        shrunk=tuple(str(one) for one in step.shrunk),
        moved=tuple(f"{old} is {new} there" for old, new in step.moved.items()),
        suspects=step.suspects, origins=behind,
    )
