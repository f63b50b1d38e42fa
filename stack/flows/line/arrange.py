"""Fold, drop and move patches of a line; each replays what stands above."""

from __future__ import annotations

from collections.abc import Sequence

from stack.errors import UsageError
from stack.flows.events import Emit
from stack.flows.line.restack import Plan, Restacked, restack
from stack.flows.line.standing import Standing
from stack.model.line.restack import Pick
from stack.store.project import Line, Project


def drop(
    project: Project, line: Line, names: Sequence[str], emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> Restacked:
    """Take patches out of a line."""
    what = f"drop {' '.join(names)}"

    def plan(here: Standing) -> Plan:
        for name in names:
            here.line.series.member(name)
        return Plan(
            what=what, picks=[pick for pick in picks(here) if pick.name not in names],
            order=[name for name in here.names if name not in names],
        )

    return restack(project, line, what, plan, emit, dry_run=dry_run, command=command)


def fold(
    project: Project, line: Line, name: str, into: str, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> Restacked:
    """Make one patch of two: `into` keeps place, message and author, and gets the changes."""
    if name == into:
        raise UsageError(f"`{name}` cannot be folded into itself")
    what = f"fold {name} into {into}"

    def plan(here: Standing) -> Plan:
        moved, kept = here.commit_of(name), here.commit_of(into)
        behind = here.names.index(name) > here.names.index(into)
        both = [
            Pick(name=into, commit=kept if behind else moved, like=None if behind else kept),
            Pick(name=into, commit=moved if behind else kept, into=True),
        ]
        found: list[Pick] = []
        for pick in picks(here):
            if pick.name == into:
                found += both
            elif pick.name != name:
                found.append(pick)
        return Plan(what=what, picks=found, order=[one for one in here.names if one != name])

    return restack(project, line, what, plan, emit, dry_run=dry_run, command=command)


def move(
    project: Project, line: Line, name: str, emit: Emit, *, before: str | None = None,
    after: str | None = None, dry_run: bool = False, command: tuple[str, ...] = (),
) -> Restacked:
    """Put a patch right before or right after another one."""
    other = before or after or ""
    if name == other:
        raise UsageError(f"`{name}` cannot be moved next to itself")
    what = f"move {name} {'before' if before else 'after'} {other}"

    def plan(here: Standing) -> Plan:
        for one in (name, other):
            here.line.series.member(one)
        order = [one for one in here.names if one != name]
        order.insert(order.index(other) + (0 if before else 1), name)
        ordered = sorted(picks(here), key=lambda pick: order.index(pick.name))
        return Plan(what=what, picks=ordered, order=order)

    return restack(project, line, what, plan, emit, dry_run=dry_run, command=command)


def picks(here: Standing) -> list[Pick]:
    """The active patches as they are."""
    return [Pick(name=name, commit=oid) for name, oid in here.commits.items()]
