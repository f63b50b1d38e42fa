"""Where a file went: the renames between two trees, looked for only when a file is missing."""

from __future__ import annotations

from stack.model.linediff import split
from stack.model.objects import FOLDER, Entry
from stack.repo.odb import ObjectStore

LIKENESS = 0.5
_CANDIDATES = 400


class Renames:
    """The files of `new` that `old` did not have, matched to those that went.

    Unless `deep`, only files of the same name or the same content are candidates.
    """

    def __init__(self, odb: ObjectStore, old: str, new: str, *, deep: bool = True) -> None:
        self.odb, self.old, self.new, self.deep = odb, old, new, deep
        self._added: dict[bytes, Entry] | None = None
        self._lines: dict[str, set[bytes]] = {}
        self._found: dict[bytes, bytes | None] = {}

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
        near = [p for p in self.added if p.rpartition(b"/")[2] == name]
        far = [] if not self.deep else [p for p in self.added if p.endswith(b"." + suffix) and p not in near]
        best: tuple[float, bytes] | None = None
        own = self._set(base.oid)
        for other in [*near, *far][:_CANDIDATES]:
            theirs = self._set(self.added[other].oid)
            like = len(own & theirs) / max(len(own), len(theirs), 1)
            if like >= LIKENESS and (best is None or like > best[0]):
                best = (like, other)
        return best[1] if best else None

    def where(self, base: Entry, side: Entry) -> str:
        """Where the lines that a patch changes stand now, as text for a message; else empty."""
        before, after = self._set(base.oid), self._set(side.oid)
        gone = [line for line in before - after if len(line.strip()) > 12]
        if not gone:
            return ""
        hits: list[tuple[int, bytes]] = []
        for path, entry in self.added.items():
            count = sum(line in self._set(entry.oid) for line in gone)
            if count:
                hits.append((count, path))
        if not hits:
            return ""
        _, path = max(hits)
        return f"; the lines that the patch changes stand in {path.decode('utf-8', 'replace')} now"

    def _set(self, oid: str) -> set[bytes]:
        if oid not in self._lines:
            data = self.odb.blob(oid)
            self._lines[oid] = {line for line in split(data) if line.strip()}
        return self._lines[oid]
