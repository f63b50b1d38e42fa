"""What the steps of a rebase say: who is behind them, what they are called, what still waits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.flows.rebase.origins import Origin, origins
from stack.model.line.outcome import Outcome
from stack.model.line.rebase import Done, Place, Rebase
from stack.repo.carry import Merger
from stack.repo.carry_series import CarriedStep, carry_series
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item
from stack.store.resolutions import Memory


class Ahead(msgspec.Struct, frozen=True, kw_only=True):
    """Open regions of the stopped patch and all behind it, and how many the memory answers."""

    regions: int = 0
    distinct: int = 0
    answered: int = 0


def behind(
    odb: ObjectStore, parsed: Sequence[Item], old: str, state: Rebase,
    steps: Sequence[CarriedStep], memory: Memory,
) -> dict[str, tuple[Origin, ...]]:
    """Who in upstream's history is behind a conflict and behind what is upstream already."""
    wanted = [
        step
        for step in steps
        if step.shrunk or step.outcome in (Outcome.CONFLICT, Outcome.UPSTREAMED)
    ]
    if not wanted:
        return {}
    merger = Merger(odb)
    series = carry_series(
        odb, parsed, old, state.base, answer=memory.answer, on_conflict="assume", merger=merger
    )
    return origins(merger, series, old, state.base, memory.answer, wanted=wanted)


def look_ahead(
    odb: ObjectStore, parsed: Sequence[Item], old: str, state: Rebase, memory: Memory
) -> Ahead:
    """Count the questions of the stopped patch and of all behind it."""
    rest = carry_series(
        odb, parsed, old, state.base, answer=memory.answer, on_conflict="assume",
        start=(state.at, state.tip),
    )
    keys = [region.key for step in rest for one in step.trouble for region in one.regions]
    answered = sum(step.answered for step in rest)
    return Ahead(regions=len(keys), distinct=len(set(keys)), answered=answered)


def blamed(step: CarriedStep, found: Sequence[Origin]) -> CarriedStep:
    """A conflict whose first trouble names the upstream commit behind it."""
    if not found:
        return step
    first, *rest = step.trouble
    first = msgspec.structs.replace(first, why=f"{first.why}; {found[0]}")
    return msgspec.structs.replace(step, trouble=(first, *rest))


def opened(state: Rebase, stopped: CarriedStep | None) -> Rebase:
    """A rebase with what it stopped at, though nothing is shown in a worktree."""
    places = tuple(
        Place(path=one.path, why=one.why, regions=one.regions)
        for one in (stopped.trouble if stopped else ())
    )
    return msgspec.structs.replace(state, stopped=places)


def settled(step: CarriedStep, state: Rebase, behind: Sequence[Origin]) -> Done:
    """A carried patch as the rebase keeps it."""
    notes = [str(one) for one in step.shrunk] + [str(one) for one in behind]
    notes += [f"{old} is {new} there" for old, new in step.moved.items()]
    notes += [f"suspect: {text}" for text in step.suspects]
    if step.answered:
        notes.append(f"{step.answered} regions answered from memory")
    dropped = step.outcome in (Outcome.UPSTREAMED, Outcome.EMPTY)
    return Done(
        name=step.name, outcome=step.outcome, commit=step.commit or state.tip,
        tree=step.tree or step.parent_tree, notes=tuple(notes), dropped=dropped,
    )
