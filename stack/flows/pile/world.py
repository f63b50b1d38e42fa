"""The worktree of a pile as it was after every input: what stood at each path, and by whom."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stack.errors import GitError
from stack.flows.pile.fit import Fit
from stack.model.objects import FOLDER, SUBMODULE, Entry
from stack.model.pile.lines import Lines
from stack.model.pile.sections import PileHunk
from stack.repo.odb import ObjectStore

BASE = ""
_KEPT_LINES = 160
_LEAST = 7


class Stood(msgspec.Struct, frozen=True, kw_only=True):
    """What stood at a path (None for nothing) after input `by`, which came at `turn`."""

    entry: Entry | None
    by: str
    turn: int


class World:
    """The states of one upstream's worktree, from its base on."""

    def __init__(self, odb: ObjectStore, base: str, tree: str | None = None) -> None:
        self.odb = odb
        self.base = base
        self.tree = tree or base
        self.states: dict[bytes, list[Stood]] = {}
        self.there: dict[tuple[bytes, str, tuple[PileHunk, ...]], Fit] = {}
        self.named: dict[bytes, list[tuple[int, str]]] = {}
        self._lines: dict[str, Lines] = {}
        self._upstream: dict[bytes, Entry | None] = {}

    def upstream(self, path: bytes) -> Entry | None:
        """The file that the base has at a path."""
        if path not in self._upstream:
            entry = self.odb.find(self.base, path)
            ok = entry is not None and entry.mode not in (FOLDER, SUBMODULE)
            self._upstream[path] = entry if ok else None
        return self._upstream[path]

    def folder(self, path: bytes) -> bool:
        """Whether the base has a folder there."""
        entry = self.odb.find(self.base, path) if path else Entry(FOLDER, "")
        return entry is not None and entry.mode == FOLDER

    def known(self, path: bytes) -> bool:
        """Whether the base or some input has ever had a file at a path."""
        return path in self.states or self.upstream(path) is not None

    def history(self, path: bytes) -> list[Stood]:
        """What stood at a path, the base's first."""
        base = Stood(entry=self.upstream(path), by=BASE, turn=-1)
        return [base, *self.states.get(path, ())]

    def now(self, path: bytes) -> Stood:
        rows = self.states.get(path)
        return rows[-1] if rows else Stood(entry=self.upstream(path), by=BASE, turn=-1)

    def lines(self, oid: str) -> Lines:
        """A blob as lines; the last ones are kept."""
        found = self._lines.pop(oid, None)
        if found is None:
            found = Lines(self.odb.blob(oid))
            if len(self._lines) >= _KEPT_LINES:
                del self._lines[next(iter(self._lines))]
        self._lines[oid] = found
        return found

    def foreign(self, oid: str) -> bytes | None:
        """A blob of some other commit of the upstream, where a repository at hand has it."""
        if len(oid) < _LEAST:
            return None
        try:
            found = self.odb.read(oid)
        except GitError:
            return None
        return found[1] if found is not None and found[0] == "blob" else None

    def apply(self, changes: Mapping[bytes, Entry | None], by: str, turn: int) -> str:
        """Take the changes of an input in; the new tree.

        Raises `NotADirectoryError` or `IsADirectoryError`, and nothing is changed then.
        """
        self.tree = self.odb.edit(self.tree, changes)
        for path, entry in changes.items():
            self.states.setdefault(path, []).append(Stood(entry=entry, by=by, turn=turn))
        return self.tree

    def adopt(self, tree: str, by: str, turn: int) -> None:
        """Take the next tree of a chain in as the work of `by`."""
        for path, (_, after) in self.odb.changed(self.tree, tree).items():
            self.states.setdefault(path, []).append(Stood(entry=after, by=by, turn=turn))
        self.tree = tree

    def retime(self, turns: Mapping[str, int]) -> None:
        """Set the turn of what some have made."""
        for path, rows in self.states.items():
            self.states[path] = [
                msgspec.structs.replace(row, turn=turns.get(row.by, row.turn)) for row in rows
            ]


class View:
    """A world during one input: what its sections did so far lies over the states."""

    def __init__(self, world: World, turn: int) -> None:
        self.world, self.turn = world, turn
        self.changes: dict[bytes, Entry | None] = {}

    def now(self, path: bytes) -> Entry | None:
        return self.changes[path] if path in self.changes else self.world.now(path).entry

    def at_turn(self, path: bytes) -> Entry | None:
        """What stood there when it was this input's turn, if later inputs are there already."""
        if path in self.changes:
            return self.changes[path]
        rows = self.world.states.get(path, ())
        for row in reversed(rows):
            if row.turn < self.turn:
                return row.entry
        return self.world.upstream(path)

    def is_named(self, path: bytes, entry: Entry | None) -> bool:
        """Whether a later input names this state of a path."""
        return entry is not None and any(
            turn > self.turn and entry.oid.startswith(oid)
            for turn, oid in self.world.named.get(path, ())
        )

    def by_id(self, path: bytes, oid: str) -> Stood | None:
        """The last state of a path whose blob has this id."""
        if path in self.changes:
            entry = self.changes[path]
            if entry is not None and entry.oid.startswith(oid):
                return Stood(entry=entry, by=BASE, turn=self.turn)
        for row in reversed(self.world.history(path)):
            if row.entry is not None and row.entry.oid.startswith(oid):
                return row
        return None
