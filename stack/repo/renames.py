"""Where a file went: the renames between two trees, looked for only when a file is missing."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping

from stack.model.diff.linediff import split
from stack.model.objects import EMPTY_TREE, FOLDER, SYMLINK, Entry
from stack.repo.odb import ObjectStore

LIKENESS = 0.5
_SURE = 0.75
"""A file of the same name that is so much alike is the one; no other is looked at."""
_CANDIDATES = 120
_MEMORY = 32 << 20
_TELLING = 12
_COMMON = 12
"""A line that stands in so many new files says nothing of where code went."""
_WORD = re.compile(rb"[a-z]+|[0-9]+")
_PIECE = re.compile(rb"[^\n]{0,63}\n|[^\n]{1,64}")


class Renames:
    """The files of `new` that `old` did not have, matched to those that went.

    Unless `deep`, only files of the same name or the same content are candidates. `known` keeps
    how much two blobs are alike: shared by several targets, it saves most of their reading.
    """

    def __init__(
        self, odb: ObjectStore, old: str, new: str, *, deep: bool = True,
        known: dict[tuple[str, str], float] | None = None,
    ) -> None:
        self.odb, self.old, self.new, self.deep = odb, old, new, deep
        self._alike = {} if known is None else known
        self._added: dict[bytes, Entry] | None = None
        self._found: dict[bytes, bytes | None] = {}
        self._joined: dict[bytes, tuple[bytes, list[int], list[bytes]]] = {}

    @property
    def added(self) -> dict[bytes, Entry]:
        """Paths that are in `new` and not in `old`."""
        if self._added is None:
            self._added = _new_files(self.odb, self.old, self.new)
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
        suffix = _suffix(path)
        words = _words(path)
        # the likeliest first, since only so many are read: same name, then most words in common
        candidates = sorted(
            (
                p
                for p in self.added
                if _is_near(p, name) or (self.deep and p.endswith(suffix))
            ),
            key=lambda p: (not _is_near(p, name), -len(words & _words(p)), p),
        )
        near = [p for p in candidates if _is_near(p, name)]
        found = self._best(base.oid, near)
        if found is None or found[0] < _SURE:
            found = self._best(base.oid, candidates[:_CANDIDATES])
        return found[1] if found else None

    def _best(self, own: str, paths: list[bytes]) -> tuple[float, bytes] | None:
        """Of new files the one most like a blob, if it is at least half alike."""
        ids = list(dict.fromkeys(self.added[path].oid for path in paths))
        unread = [oid for oid in ids if (own, oid) not in self._alike]
        if unread:
            mine = _telling(self.odb.blob(own))
            for oid, data in self.odb.blobs(unread):
                theirs = _telling(data)
                like = len(mine & theirs) / max(len(mine), len(theirs), 1)
                self._alike[own, oid] = like
        best: tuple[float, bytes] | None = None
        for path in paths:
            like = self._alike.get((own, self.added[path].oid), 0.0)
            if like >= LIKENESS and (best is None or like > best[0]):
                best = (like, path)
        return best

    def where(self, path: bytes, lines: Iterable[bytes]) -> str:
        """Where most of these lines of a file stand now, as text for a message; else empty.

        Looked for in the new files of the same kind.
        """
        gone = {line.strip() for line in lines if len(line.strip()) > _TELLING}
        if not gone:
            return ""
        text, starts, paths = self._text(_suffix(path))
        counts: dict[bytes, int] = {}
        for line in gone:
            hits: set[bytes] = set()
            at = text.find(line)
            while at >= 0 and len(hits) < _COMMON:
                number = bisect_right(starts, at) - 1
                hits.add(paths[number])
                following = starts[number + 1] if number + 1 < len(starts) else len(text)
                at = text.find(line, following)
            for hit in hits if len(hits) < _COMMON else ():
                counts[hit] = counts.get(hit, 0) + 1
        best = max(counts, key=lambda hit: (counts[hit], [-byte for byte in hit]), default=b"")
        if not best or counts[best] * 2 <= len(gone) - 1:  # fewer than half of them tell nothing
            return ""
        return f"; the lines that the patch changes stand in {best.decode('utf-8', 'replace')} now"

    def _text(self, suffix: bytes) -> tuple[bytes, list[int], list[bytes]]:
        """All new files of a kind one after another, where each begins, and their paths."""
        if suffix not in self._joined:
            named = {p: e.oid for p, e in sorted(self.added.items()) if p.endswith(suffix)}
            data = dict(self.odb.blobs(list(dict.fromkeys(named.values()))))
            parts: list[bytes] = []
            starts: list[int] = []
            paths: list[bytes] = []
            size = 0
            for path, oid in named.items():
                found = data.get(oid, b"")
                if size + len(found) > _MEMORY or b"\0" in found[:8000]:
                    continue
                starts.append(size)
                paths.append(path)
                parts.append(found + b"\n")
                size += len(found) + 1
            self._joined[suffix] = b"".join(parts), starts, paths
        return self._joined[suffix]


def _new_files(odb: ObjectStore, old: str, new: str) -> dict[bytes, Entry]:
    """The files that the tree `new` has at paths where `old` has nothing."""
    found: dict[bytes, Entry] = {}
    level = [(b"", old, new)]
    while level:
        odb.read_ahead(oid for _, *both in level for oid in both)
        below: list[tuple[bytes, str, str]] = []
        for prefix, left_tree, right_tree in level:
            before = odb.tree(left_tree)
            for name, entry in odb.tree(right_tree).items():
                was = before.get(name)
                if entry.mode == FOLDER:
                    inside = was.oid if was and was.mode == FOLDER else EMPTY_TREE
                    if inside != entry.oid:
                        below.append((prefix + name + b"/", inside, entry.oid))
                elif was is None or was.mode == FOLDER:
                    found[prefix + name] = entry
        level = below
    return found


def pairs(
    odb: ObjectStore, gone: Mapping[bytes, Entry], come: Mapping[bytes, Entry]
) -> dict[bytes, bytes]:
    """The files that went, with the path at which each came again; the most alike first."""
    counted = {
        entry.oid: Counter(_PIECE.findall(odb.blob(entry.oid)))
        for entry in (*gone.values(), *come.values()) if entry.mode != SYMLINK
    }
    found = sorted(
        (-likeness(counted[was.oid], counted[now.oid]), not _is_near(new, old.rpartition(b"/")[2]),
         old, new)
        for old, was in gone.items() for new, now in come.items()
        if SYMLINK not in (was.mode, now.mode)
    )
    chosen: dict[bytes, bytes] = {}
    for like, _, old, new in found:
        if -like >= LIKENESS and old not in chosen and new not in chosen.values():
            chosen[old] = new
    return chosen


def likeness(one: Counter[bytes], other: Counter[bytes]) -> float:
    """How much of the larger of two contents stands in both, from 0 to 1, as git counts it.

    Git compares lines, long ones in pieces of 64 bytes, as often as they occur (diffcore-delta.c).
    """
    return _size(one & other) / max(_size(one), _size(other), 1) if one != other else 1.0


def _size(pieces: Counter[bytes]) -> int:
    return sum(len(piece) * count for piece, count in pieces.items())


def _telling(data: bytes) -> set[bytes]:
    return {line for line in split(data) if line.strip()}


def _suffix(path: bytes) -> bytes:
    """`.py` of a path; its whole name where it has none."""
    name = path.rpartition(b"/")[2]
    dot = name.rfind(b".")
    return name[dot:] if dot > 0 else name


def _is_near(path: bytes, name: bytes) -> bool:
    return path.rpartition(b"/")[2] == name


def _words(path: bytes) -> set[bytes]:
    """The words of a path: `layers/mamba/linear_attn.py` has `mamba` and `attn` among them."""
    return set(_WORD.findall(path.lower()))
