"""Carry a whole series to another base: a chain of new commits, all of it in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from stack.model.linediff import changes, split
from stack.model.merge3 import Answer
from stack.model.objects import FOLDER
from stack.model.outcome import Outcome
from stack.repo.carry import Trouble, carry
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.repo.replay import Item, make_commit, replay
from stack.repo.semantics import suspects

OnConflict = Literal["stop", "assume"]


class CarriedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One patch of a carried series.

    `tree` and `commit` are what stands after it; in a conflict `tree` has the markers. `shrunk`
    says how many of its places the target had already, per path.
    """

    name: str
    outcome: Outcome
    before: str
    after: str
    parent_tree: str
    commit: str | None = None
    tree: str | None = None
    trouble: tuple[Trouble, ...] = ()
    answered: int = 0
    merged: tuple[str, ...] = ()
    shrunk: Mapping[str, int] = {}
    moved: Mapping[str, str] = {}
    suspects: tuple[str, ...] = ()


def carry_series(
    odb: ObjectStore, items: Sequence[Item], old_base: str, new_base: str, *,
    answer: Answer = lambda region: None, on_conflict: OnConflict = "stop",
    start: tuple[int, str] | None = None,
) -> list[CarriedStep]:
    """Carry `items`, made for the commit `old_base`, to the commit `new_base`.

    At a conflict either stop (the rest is NOT_TRIED) or `assume` the patch's own side, so that a
    forecast can look at those behind it. `start` is `(index, commit)`: begin there instead.
    """
    old_steps = replay(odb, old_base, items)
    old_tree = odb.commit(old_base).tree
    renames = Renames(odb, old_tree, odb.commit(new_base).tree)
    first, parent = start or (0, new_base)
    tree = odb.commit(parent).tree
    before = old_steps[first - 1].tree or old_tree if first else old_tree
    out: list[CarriedStep] = []
    stopped = False
    for item, old in zip(items[first:], old_steps[first:], strict=True):
        after = old.tree or before
        common = {"name": item.name, "before": before, "after": after, "parent_tree": tree}
        if old.outcome is Outcome.CONFLICT or stopped:
            outcome = Outcome.NOT_TRIED if stopped else Outcome.CONFLICT
            why = tuple(Trouble(path=c.path, why=f"does not apply at its own pin: {c.why}") for c in old.clashes)
            out.append(CarriedStep(**common, outcome=outcome, trouble=() if stopped else why))  # type: ignore[arg-type]
            stopped = stopped or on_conflict == "stop"
            continue
        done = carry(odb, before, after, tree, renames=renames, answer=answer)
        if done.trouble:
            out.append(
                CarriedStep(
                    **common, outcome=Outcome.CONFLICT, tree=done.tree, trouble=done.trouble,  # type: ignore[arg-type]
                    answered=done.answered, merged=done.merged,
                )
            )
            if on_conflict == "stop":
                stopped = True
            else:
                tree = _assumed(odb, before, after, tree, renames, answer)
                parent = make_commit(odb, tree, parent, item.mail)
        else:
            outcome = Outcome.CLEAN
            if after == before:
                outcome = Outcome.EMPTY
            elif done.tree == tree:
                outcome = Outcome.UPSTREAMED
            elif done.answered or (done.merged and _body(odb, before, after) != _body(odb, tree, done.tree)):
                outcome = Outcome.MODIFIED
            doubts = suspects(odb, before, after, tree, done.tree) if done.tree != tree else ()
            if done.tree != tree:
                parent = make_commit(odb, done.tree, parent, item.mail)
            tree = done.tree
            out.append(
                CarriedStep(
                    **common, outcome=outcome, commit=parent, tree=tree, answered=done.answered,  # type: ignore[arg-type]
                    merged=done.merged, moved=done.moved, suspects=doubts,
                    shrunk=done.already if outcome is not Outcome.UPSTREAMED else {},
                )
            )
        before = after
    return out


def _assumed(
    odb: ObjectStore, before: str, after: str, tree: str, renames: Renames, answer: Answer
) -> str:
    """The tree as if every conflict had been answered with the patch's own lines."""

    def mine(region):  # type: ignore[no-untyped-def]
        reply = answer(region)
        return region.patch if reply is None else reply

    return carry(odb, before, after, tree, renames=renames, answer=mine).tree


def _body(odb: ObjectStore, old: str, new: str) -> list[tuple[str, tuple[bytes, ...]]]:
    """The removed and added lines of a change, without places and context."""
    lines: list[tuple[str, tuple[bytes, ...]]] = []
    for path, (left, right) in sorted(odb.changed(old, new).items()):
        name = path.rpartition(b"/")[2].decode("utf-8", "replace")
        texts = [
            split(odb.blob(entry.oid)) if entry is not None and entry.mode != FOLDER else []
            for entry in (left, right)
        ]
        for a, b, c, d in changes(*texts):
            lines.append((f"-{name}", tuple(texts[0][a:b])))
            lines.append((f"+{name}", tuple(texts[1][c:d])))
    return lines
