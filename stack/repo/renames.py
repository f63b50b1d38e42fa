"""Where a file went: the renames between two trees, looked for only when a file is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from stack.model.linediff import split
from stack.model.objects import FOLDER, Entry
from stack.repo.odb import ObjectStore

LIKENESS = 0.5
_CANDIDATES = 400
_MEMORY = 32 << 20
_TELLING = 12
_WORD = re.compile(rb"[a-z]+|[0-9]+")


class Renames:
    """The files of `new` that `old` did not have, matched to those that went.

    Unless `deep`, only files of the same name or the same content are candidates.
    """

    def __init__(self, odb: ObjectStore, old: str, new: str, *, deep: bool = True) -> None:
        self.odb, self.old, self.new, self.deep = odb, old, new, deep
        self._added: dict[bytes, Entry] | None = None
        self._lines: dict[str, set[bytes]] = {}
        self._found: dict[bytes, bytes | None] = {}
        self._held: dict[str, bytes] = {}
        self._room = _MEMORY

    @property
    def added(self) -> dict[bytes, Entry]:
        """Paths that are in `new` and not in `old`."""
        if self._added is None:
            changed = self.odb.changed(self.old, self.new)
            self._added = {
                path: right
                for path, (left, right) in changed.items()
                if left is None and right is not None and right.mode != FOLDER
            }
        return self._added

    def find(self, path: bytes, base: Entry, onto: str) -> bytes | None:
        """The path under which a file of `old` stands in `onto` now, at least half of it alike."""
        if path not in self._found:
            self._found[path] = self._search(path, base)
        found = self._found[path]
        return found if found is not None and self.odb.find(onto, found) is not None else None

    def _search(self, path: bytes, base: Entry) -> bytes | None:
        for other, entry in self.added.items():
            if entry.oid == base.oid:
                return other
        name = path.rpartition(b"/")[2]
        suffix = name.rpartition(b".")[2]
        words = _words(path)
        # the likeliest first, since only so many are read: same name, then most words in common
        candidates = sorted(
            (
                p
                for p in self.added
                if _is_near(p, name) or (self.deep and p.endswith(b"." + suffix))
            ),
            key=lambda p: (not _is_near(p, name), -len(words & _words(p)), p),
        )
        best: tuple[float, bytes] | None = None
        own = self._set(base.oid)
        for other in candidates[:_CANDIDATES]:
            theirs = self._set(self.added[other].oid)
            like = len(own & theirs) / max(len(own), len(theirs), 1)
            if like >= LIKENESS and (best is None or like > best[0]):
                best = (like, other)
        return best[1] if best else None

    def where(self, lines: Iterable[bytes]) -> str:
        """Where most of these lines stand now, as text for a message; empty if nowhere new."""
        gone = {line.strip() for line in lines if len(line.strip()) > _TELLING}
        if not gone:
            return ""
        best, place = (len(gone) - 1) // 2, b""  # fewer than half of them tell nothing
        for path, entry in sorted(self.added.items()):
            data = self._data(entry.oid)
            count = sum(line in data for line in gone)
            if count > best:
                best, place = count, path
        if not place:
            return ""
        return f"; the lines that the patch changes stand in {place.decode('utf-8', 'replace')} now"

    def _data(self, oid: str) -> bytes:
        """A blob; as many stay in memory as fit, since every conflict asks for the same."""
        if oid not in self._held:
            data = self.odb.blob(oid)
            if self._room < len(data):
                return data
            self._room -= len(data)
            self._held[oid] = data
        return self._held[oid]

    def _set(self, oid: str) -> set[bytes]:
        if oid not in self._lines:
            data = self._data(oid)
            self._lines[oid] = {line for line in split(data) if line.strip()}
        return self._lines[oid]


def _is_near(path: bytes, name: bytes) -> bool:
    return path.rpartition(b"/")[2] == name


def _words(path: bytes) -> set[bytes]:
    """The words of a path: `layers/mamba/linear_attn.py` has `mamba` and `attn` among them."""
    return set(_WORD.findall(path.lower()))
