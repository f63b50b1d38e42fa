"""Carry one patch to another tree by merging three: its own before, its own after, and there.

Only the paths that the patch changes are looked at. A path that nobody else touched costs no
merge: its new entry is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stack.model.merge3 import Answer, Merge, Region, merge
from stack.model.objects import FOLDER, SYMLINK, Entry
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.repo.replay import show


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why a path of a patch cannot be merged; `regions` where single places in it are to answer."""

    path: str
    why: str
    regions: tuple[Region, ...] = ()


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A patch at its new place.

    `tree` has every clean part and, where there is `trouble`, conflict markers (or the patch's own
    content where nothing can be marked). `merged` are the paths that needed a merge, `already` the
    paths whose change is wholly or partly there, with how many places, `moved` the renamed ones.
    """

    tree: str
    trouble: tuple[Trouble, ...] = ()
    merged: tuple[str, ...] = ()
    answered: int = 0
    already: Mapping[str, int] = {}
    moved: Mapping[str, str] = {}


class _Path(msgspec.Struct, kw_only=True):
    """What becomes of one path."""

    entries: dict[bytes, Entry | None]
    trouble: Trouble | None = None
    merge: Merge | None = None
    already: int = 0
    moved: bytes | None = None


def carry(
    odb: ObjectStore, before: str, after: str, onto: str, *, renames: Renames,
    answer: Answer = lambda region: None,
) -> Carried:
    """Bring the change from tree `before` to tree `after` into tree `onto`."""
    changes: dict[bytes, Entry | None] = {}
    trouble: list[Trouble] = []
    merged: list[str] = []
    already: dict[str, int] = {}
    moved: dict[str, str] = {}
    answered = 0
    for path, (base, side) in sorted(odb.changed(before, after).items()):
        target = odb.find(onto, path)
        if target == base:
            changes[path] = side
            continue
        one = _merge_path(odb, path, base, side, target, onto, renames, answer)
        changes |= one.entries
        name = show(path)
        if one.trouble:
            trouble.append(one.trouble)
        if one.already:
            already[name] = one.already
        if one.moved:
            moved[name] = show(one.moved)
        if one.merge is not None:
            merged.append(name)
            answered += len(one.merge.answered)
    try:
        tree = odb.edit(onto, changes)
    except NotADirectoryError as wrong:
        where = show(wrong.args[0])
        trouble.append(Trouble(path=where, why=f"{where} is a file there, and a folder here"))
        tree = onto
    return Carried(
        tree=tree, trouble=tuple(trouble), merged=tuple(merged), answered=answered,
        already=already, moved=moved,
    )


def _merge_path(
    odb: ObjectStore, path: bytes, base: Entry | None, side: Entry | None, target: Entry | None,
    onto: str, renames: Renames, answer: Answer,
) -> _Path:
    if target == side:
        return _Path(entries={}, already=1)
    if target is None and base is not None and side is not None:
        if (home := renames.find(path, base, onto)) is None:
            why = "the file is gone there" + renames.where(base, side)
            return _Path(entries={path: side}, trouble=Trouble(path=show(path), why=why))
        there = odb.find(onto, home)
        assert there is not None
        one = _merge_content(odb, home, base, side, there, answer)
        one.moved = home
        return one
    if side is None:
        if target is None:
            return _Path(entries={}, already=1)
        return _Path(
            entries={},
            trouble=Trouble(path=show(path), why="the patch deletes it, and it was changed there"),
        )
    if target is None:
        return _Path(entries={path: side})
    return _merge_content(odb, path, base, side, target, answer)


def _merge_content(
    odb: ObjectStore, path: bytes, base: Entry | None, side: Entry, target: Entry, answer: Answer
) -> _Path:
    kinds = {entry.mode for entry in (base, side, target) if entry is not None}
    if FOLDER in kinds or (SYMLINK in kinds and len(kinds) > 1):
        why = "a file on one side, a link or folder on the other"
        return _Path(entries={}, trouble=Trouble(path=show(path), why=why))
    mode = side.mode if base is None or side.mode != base.mode else target.mode
    if base is not None and side.oid == base.oid:
        return _Path(entries={path: Entry(mode, target.oid)})
    old = odb.blob(base.oid) if base else b""
    data = [old, odb.blob(target.oid), odb.blob(side.oid)]
    if SYMLINK in kinds or any(b"\0" in each[:8000] for each in data):
        why = "binary on both sides: no lines to merge"
        return _Path(entries={path: side}, trouble=Trouble(path=show(path), why=why))
    done = merge(*data, answer=answer)
    found = Entry(mode, odb.add("blob", done.data))
    trouble = None
    if done.regions:
        places = "1 place" if len(done.regions) == 1 else f"{len(done.regions)} places"
        why = f"both sides changed {places}" if base else "both sides made this file"
        trouble = Trouble(path=show(path), why=why, regions=done.regions)
    return _Path(entries={path: found}, trouble=trouble, merge=done, already=done.already)
