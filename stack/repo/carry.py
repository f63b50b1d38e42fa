"""Carry one patch to another tree by merging three: its own before, its own after, and there.

Only the paths that the patch changes are looked at. A path that nobody else touched costs no
merge: its new entry is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stack.model.diff.linediff import Change, changes, split
from stack.model.diff.merge3 import Answer, Merge, Region, merge_lines
from stack.model.objects import FOLDER, SYMLINK, Changed, Entry
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames, pairs
from stack.repo.replay import show

_KEPT_FILES = 64
WHOLE: tuple[Change, ...] = ((0, 0, 0, 0),)
"""Stands for a whole file where its single places are not told apart."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why a path of a patch cannot be merged; `regions` where single places in it are to answer."""

    path: str
    why: str
    regions: tuple[Region, ...] = ()


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A patch at its new place.

    `tree` has every clean part and, where there is `trouble`, conflict markers (or the patch's own
    content where nothing can be marked). `merged` are the paths that needed a merge, `there` the
    places of each path that the target has already, `moved` the renamed paths. `altered` says that
    not the very lines of the patch came in, but fewer or others.
    """

    tree: str
    altered: bool = False
    trouble: tuple[Trouble, ...] = ()
    merged: tuple[str, ...] = ()
    answered: int = 0
    there: Mapping[str, tuple[Change, ...]] = {}
    moved: Mapping[str, str] = {}


class MergedPath(msgspec.Struct, kw_only=True):
    """What becomes of one path: its new entries, or the trouble, and what is `there` already."""

    entries: dict[bytes, Entry | None]
    trouble: Trouble | None = None
    merge: Merge | None = None
    there: tuple[Change, ...] = ()
    moved: bytes | None = None


class Merger:
    """Merges the files of one object store; a comparison that was made once is not made again."""

    def __init__(self, odb: ObjectStore) -> None:
        self.odb = odb
        self._lines: dict[str, list[bytes]] = {}
        self._changes: dict[tuple[str, str], list[Change]] = {}
        self._binary: dict[str, bool] = {}
        self.alike: dict[tuple[str, str], float] = {}

    def lines(self, oid: str) -> list[bytes]:
        """The lines of a blob; no lines for the empty id."""
        if (found := self._lines.get(oid)) is None:
            data = self.odb.blob(oid) if oid else b""
            found = split(data)
            self._binary[oid] = b"\0" in data[:8000]
            if len(self._lines) >= _KEPT_FILES:
                del self._lines[next(iter(self._lines))]
            self._lines[oid] = found
        return found

    def changes(self, old: str, new: str) -> list[Change]:
        """What differs between two blobs."""
        if (found := self._changes.get((old, new))) is None:
            found = self._changes[old, new] = changes(self.lines(old), self.lines(new))
        return found

    def merge(self, base: str, target: str, patch: str, answer: Answer) -> Merge:
        """The merge of three blobs."""
        return merge_lines(
            self.lines(base), self.lines(target), self.lines(patch), self.changes(base, target),
            self.changes(base, patch), answer=answer,
        )

    def path(
        self, path: bytes, base: Entry | None, side: Entry | None, target: Entry | None,
        answer: Answer = lambda region: None,
    ) -> MergedPath:
        """Merge one path: `base` became `side`, and `target` is what stands where it has to go."""
        if target == base:
            return MergedPath(entries={path: side})
        if target == side:
            return MergedPath(entries={}, there=WHOLE)
        if side is None:
            if target is None:
                return MergedPath(entries={}, there=WHOLE)
            why = "the patch deletes it, and it was changed there"
            return MergedPath(entries={}, trouble=Trouble(path=show(path), why=why))
        if target is None:
            if base is None:
                return MergedPath(entries={path: side})
            gone = Trouble(path=show(path), why="the file is gone there")
            return MergedPath(entries={path: side}, trouble=gone)
        return self._content(path, base, side, target, answer)

    def _content(
        self, path: bytes, base: Entry | None, side: Entry, target: Entry, answer: Answer
    ) -> MergedPath:
        kinds = {entry.mode for entry in (base, side, target) if entry is not None}
        if FOLDER in kinds or (SYMLINK in kinds and len(kinds) > 1):
            why = "a file on one side, a link or folder on the other"
            return MergedPath(entries={}, trouble=Trouble(path=show(path), why=why))
        mode = side.mode if base is None or side.mode != base.mode else target.mode
        if base is not None and side.oid == base.oid:
            return MergedPath(entries={path: Entry(mode, target.oid)})
        ids = (base.oid if base else "", target.oid, side.oid)
        if SYMLINK in kinds or any(self._is_binary(oid) for oid in ids):
            why = "binary on both sides: no lines to merge"
            return MergedPath(entries={path: side}, trouble=Trouble(path=show(path), why=why))
        done = self.merge(*ids, answer)
        found = Entry(mode, self.odb.add("blob", done.data))
        trouble = None
        if done.regions:
            places = "1 place" if len(done.regions) == 1 else f"{len(done.regions)} places"
            why = f"both sides changed {places}" if base else "both sides made this file"
            trouble = Trouble(path=show(path), why=why, regions=done.regions)
        return MergedPath(
            entries={path: found}, trouble=trouble, merge=done, there=done.there
        )

    def _is_binary(self, oid: str) -> bool:
        if oid not in self._binary:
            self.lines(oid)
        return self._binary[oid]


def carry(
    merger: Merger, before: str, after: str, onto: str, *, renames: Renames,
    answer: Answer = lambda region: None, explain: bool = True,
) -> Carried:
    """Bring the change from tree `before` to tree `after` into tree `onto`.

    With `explain` a trouble also says where lost code went, which is looked for in all new files.
    """
    odb = merger.odb
    entries: dict[bytes, Entry | None] = {}
    trouble: list[Trouble] = []
    merged: list[str] = []
    there: dict[str, tuple[Change, ...]] = {}
    moved: dict[str, str] = {}
    answered = 0
    changed = odb.changed(before, after)
    homes = _renamed_by_patch(odb, changed, onto)
    for path, (base, side) in sorted(changed.items()):
        if path in homes.values():
            continue  # with the path that it was
        target = odb.find(onto, path)
        if target == base:
            entries[path] = side
            continue
        if (home := homes.get(path)) is not None:
            one = merger.path(home, base, changed[home][1], target, answer)
            one.entries = {path: None, home: changed[home][1], **one.entries}
        else:
            one = _path(merger, path, base, side, target, onto, renames, answer, explain)
        entries |= one.entries
        name = show(path)
        if one.trouble:
            trouble.append(one.trouble)
        if one.there:
            there[name] = one.there
        if one.moved:
            moved[name] = show(one.moved)
        if one.merge is not None:
            merged.append(name)
            answered += len(one.merge.answered)
    try:
        tree = odb.edit(onto, entries)
    except (NotADirectoryError, IsADirectoryError) as wrong:
        where = show(wrong.args[0])
        trouble.append(
            Trouble(path=where, why=f"{where} is a file on one side and a folder on the other")
        )
        tree = onto
    return Carried(
        tree=tree, altered=bool(answered or there), trouble=tuple(trouble), merged=tuple(merged),
        answered=answered, there=there, moved=moved,
    )


def _renamed_by_patch(odb: ObjectStore, changed: Changed, onto: str) -> dict[bytes, bytes]:
    """Where the patch itself takes files that the target has changed, by the path that they had."""
    gone = {
        path: base for path, (base, side) in changed.items()
        if base is not None and side is None and odb.find(onto, path) not in (None, base)
    }
    if not gone:
        return {}
    come = {
        path: side for path, (base, side) in changed.items()
        if base is None and side is not None and odb.find(onto, path) is None
    }
    return pairs(odb, gone, come)


def _path(
    merger: Merger, path: bytes, base: Entry | None, side: Entry | None, target: Entry | None,
    onto: str, renames: Renames, answer: Answer, explain: bool,
) -> MergedPath:
    """Merge one path, or follow it to where it was renamed."""
    home = path
    if target is None and base is not None and side is not None:
        found = renames.find(path, base, onto)
        if found is None:
            why = "the file is gone there"
            if explain:
                why += renames.where(path, _surroundings(merger, base, side))
            return MergedPath(entries={path: side}, trouble=Trouble(path=show(path), why=why))
        home, target = found, merger.odb.find(onto, found)
    one = merger.path(home, base, side, target, answer)
    if home != path:
        one.moved = home
    if explain and one.trouble and one.trouble.regions and target:
        here = set(merger.lines(target.oid))
        lines = {line for region in one.trouble.regions for line in split(region.base)}
        one.trouble = msgspec.structs.replace(
            one.trouble, why=one.trouble.why + renames.where(home, lines - here)
        )
    return one


def _surroundings(merger: Merger, base: Entry, side: Entry) -> set[bytes]:
    """The lines that a patch changes in a file, with three around each."""
    old = merger.lines(base.oid)
    return {
        line
        for a, b, _, _ in merger.changes(base.oid, side.oid)
        for line in old[max(a - 3, 0) : b + 3]
    }
