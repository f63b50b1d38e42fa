"""Carry a whole series to another base: a chain of new commits, all of it in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from stack.model.diff.linediff import Change
from stack.model.diff.merge3 import Answer, Region
from stack.model.line.outcome import Outcome
from stack.repo.carry import WHOLE, Merger, Trouble, carry
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.repo.replay import Item, make_commit, replay, show
from stack.repo.semantics import suspects

OnConflict = Literal["stop", "assume"]


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """Places of one path that the target had before the patch came.

    `hunk_of` is the hunk (from 1) of each place, None where the whole file is there. `hunks` are
    those of the patch's `total` hunks of this path that are wholly there; `partly` those of which
    only some lines are.
    """

    path: str
    places: tuple[Change, ...]
    hunk_of: tuple[int | None, ...]
    hunks: tuple[int, ...]
    partly: tuple[int, ...]
    total: int

    def __str__(self) -> str:
        rows = [f"hunk {number} of {self.total} is there already" for number in self.hunks]
        rows += [f"hunk {number} of {self.total} is there in part" for number in self.partly]
        return f"{self.path}: " + (", ".join(rows) or "it is there already")


class CarriedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One patch of a carried series.

    `tree` and `commit` are what stands after it; in a conflict `tree` has the markers. `shrunk`
    are its places that the target had already.
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
    shrunk: tuple[Shrunk, ...] = ()
    moved: Mapping[str, str] = {}
    suspects: tuple[str, ...] = ()


def carry_series(
    odb: ObjectStore, items: Sequence[Item], old_base: str, new_base: str, *,
    answer: Answer = lambda region: None, on_conflict: OnConflict = "stop",
    start: tuple[int, str] | None = None, merger: Merger | None = None, explain: bool = True,
) -> list[CarriedStep]:
    """Carry `items`, made for the commit `old_base`, to the commit `new_base`.

    At a conflict either stop (the rest is NOT_TRIED) or `assume` the patch's own side, so that a
    forecast can look at those behind it. `start` is `(index, commit)`: begin there instead. With
    `explain` a trouble says where the code went.
    """
    old_tree, new_tree = odb.commit(old_base).tree, odb.commit(new_base).tree
    paths = {path for item in items for file in item.files for path in (file.old, file.path)}
    odb.read_paths(old_tree, paths)
    odb.read_paths(new_tree, paths)
    old_steps = replay(odb, old_base, items)
    merger = merger or Merger(odb)
    renames = Renames(odb, old_tree, new_tree, known=merger.alike)
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
            why = tuple(
                Trouble(path=c.path, why=f"does not apply at its own pin: {c.why}")
                for c in old.clashes
            )
            out.append(CarriedStep(**common, outcome=outcome, trouble=() if stopped else why))  # type: ignore[arg-type]
            stopped = stopped or on_conflict == "stop"
            continue
        done = carry(merger, before, after, tree, renames=renames, answer=answer, explain=explain)
        if done.trouble:
            out.append(
                CarriedStep(
                    **common, outcome=Outcome.CONFLICT, tree=done.tree, trouble=done.trouble,  # type: ignore[arg-type]
                    answered=done.answered, merged=done.merged, moved=done.moved,
                )
            )
            if on_conflict == "stop":
                stopped = True
            else:
                tree = _assumed(merger, before, after, tree, renames, answer)
                parent = make_commit(odb, tree, parent, item.mail)
        else:
            outcome = Outcome.CLEAN
            if after == before:
                outcome = Outcome.EMPTY
            elif done.tree == tree:
                outcome = Outcome.UPSTREAMED
            elif done.altered:
                outcome = Outcome.MODIFIED
            doubts = suspects(merger, before, after, tree, done) if done.tree != tree else ()
            if done.tree != tree:
                parent = make_commit(odb, done.tree, parent, item.mail)
            tree = done.tree
            out.append(
                CarriedStep(
                    **common, outcome=outcome, commit=parent, tree=tree, answered=done.answered,  # type: ignore[arg-type]
                    merged=done.merged, moved=done.moved, suspects=doubts,
                    shrunk=() if outcome is Outcome.UPSTREAMED else tuple(
                        _shrunk(merger, item, before, after, path, places)
                        for path, places in done.there.items()
                    ),
                )
            )
        before = after
    return out


def _assumed(
    merger: Merger, before: str, after: str, tree: str, renames: Renames, answer: Answer
) -> str:
    """The tree as if every conflict had been answered with the patch's own lines."""

    def mine(region: Region) -> bytes:
        reply = answer(region)
        return region.patch if reply is None else reply

    return carry(merger, before, after, tree, renames=renames, answer=mine, explain=False).tree


def _shrunk(
    merger: Merger, item: Item, before: str, after: str, path: str, places: tuple[Change, ...]
) -> Shrunk:
    """Which hunks of a patch are the places that the target has."""
    file = next((file for file in item.files if show(file.path) == path), None)
    hunks = file.hunks if file else ()
    if places == WHOLE or file is None:
        numbers = tuple(range(1, len(hunks) + 1))
        return Shrunk(
            path=path, places=places, hunk_of=(None,) * len(places), hunks=numbers, partly=(),
            total=len(hunks),
        )
    old = merger.odb.find(before, file.old)
    new = merger.odb.find(after, file.path)
    every = merger.changes(old.oid if old else "", new.oid if new else "")
    whole: list[int] = []
    partly: list[int] = []
    numbered: dict[Change, int] = {}
    for number, hunk in enumerate(hunks, 1):
        start = hunk.old_start - 1
        own = {one for one in every if start <= one[0] and one[1] <= start + len(hunk.old) + 1}
        have = own & set(places)
        numbered |= dict.fromkeys(have, number)
        if have:
            (whole if have == own else partly).append(number)
    return Shrunk(
        path=path, places=places, hunk_of=tuple(numbered.get(one) for one in places),
        hunks=tuple(whole), partly=tuple(partly), total=len(hunks),
    )
