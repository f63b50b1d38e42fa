"""Git objects in memory: read through one `cat-file --batch`, written as one pack stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from stack.errors import GitError
from stack.model.objects import (
    EMPTY_TREE,
    FOLDER,
    Changed,
    Commit,
    Entry,
    differing,
    object_id,
    pack,
    parse_commit,
    parse_tree,
    render_tree,
)
from stack.repo.client import Git

_MEMORY = 48 << 20
_MANY = 3000
_BATCH = 900  # ids of 41 bytes: a request that fits into a pipe while git is still answering


class ObjectStore:
    """The objects of one repository, plus new ones that exist only here until `write`."""

    def __init__(self, git: Git) -> None:
        self.git = git
        self._process = git.start("cat-file", "--batch")
        self._new: dict[str, tuple[str, bytes]] = {}
        self._trees: dict[str, dict[bytes, Entry]] = {EMPTY_TREE: {}}
        self._raw: dict[str, bytes] = {EMPTY_TREE: b""}
        self._held: dict[str, bytes] = {}
        self._room = _MEMORY
        self._compared: tuple[str, str, Changed] = (EMPTY_TREE, EMPTY_TREE, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.proc.wait()
        self._process.stdout.close()
        self._process.stderr.close()

    def read(self, oid: str) -> tuple[str, bytes] | None:
        """Kind and data of an object, or None where the repository lacks it."""
        if oid in self._new:
            return self._new[oid]
        if oid in self._held:
            return "blob", self._held[oid]
        self._process.stdin.write(oid.encode() + b"\n")
        self._process.stdin.flush()
        return self._answer(oid)

    def _answer(self, oid: str) -> tuple[str, bytes] | None:
        """What git says next."""
        header = self._process.stdout.readline().split()
        if len(header) != 3:
            if len(header) == 2 and header[1] == b"missing":
                return None
            raise GitError(f"git cat-file gave no object for {oid}")
        data = self._process.stdout.read(int(header[2]) + 1)[:-1]
        return header[1].decode(), data

    def _hold(self, oid: str, kind: str, data: bytes) -> None:
        """Keep what was read: trees always, blobs while there is room for them."""
        if kind == "tree":
            self._raw[oid] = data
        elif kind == "blob" and len(data) <= self._room:
            self._room -= len(data)
            self._held[oid] = data

    def read_ahead(self, oids: Iterable[str]) -> None:
        """Read many objects in few round trips, for those who will ask for them one by one."""
        known = (self._new, self._raw, self._held)
        wanted = [oid for oid in dict.fromkeys(oids) if not any(oid in one for one in known)]
        for oid, kind, data in self._stream(wanted):
            self._hold(oid, kind, data)

    def blobs(self, oids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Read many blobs once, in few round trips, and keep none of them in memory."""
        stored = [oid for oid in oids if oid not in self._new and oid not in self._held]
        for oid in set(oids) - set(stored):
            yield oid, self.blob(oid)
        for oid, kind, data in self._stream(stored):
            if kind == "blob":
                yield oid, data

    def _stream(self, oids: Sequence[str]) -> Iterator[tuple[str, str, bytes]]:
        """Id, kind and data of stored objects; those that are missing are left out."""
        for at in range(0, len(oids), _BATCH):
            part = oids[at : at + _BATCH]
            self._process.stdin.write("".join(f"{oid}\n" for oid in part).encode())
            self._process.stdin.flush()
            for found in [(oid, self._answer(oid)) for oid in part]:
                if found[1] is not None:
                    yield found[0], *found[1]

    def read_paths(self, tree: str, paths: Iterable[bytes]) -> None:
        """Read ahead what stands at these paths of a tree, and the folders on the way."""
        level = [(tree, path.split(b"/")) for path in paths]
        while level:
            self.read_ahead(oid for oid, _ in level)
            below: list[tuple[str, list[bytes]]] = []
            blobs: list[str] = []
            for oid, (name, *rest) in level:
                entry = self.tree(oid).get(name)
                if entry is None:
                    continue
                if rest and entry.mode == FOLDER:
                    below.append((entry.oid, rest))
                elif not rest and entry.mode != FOLDER:
                    blobs.append(entry.oid)
            self.read_ahead(blobs)
            level = below

    def blob(self, oid: str) -> bytes:
        return self._expect(oid, "blob")

    def commit(self, oid: str) -> Commit:
        return parse_commit(self._expect(oid, "commit"))

    def tree(self, oid: str) -> dict[bytes, Entry]:
        """The entries of a tree; the caller must not change them."""
        if oid not in self._trees:
            raw = self._raw.get(oid)
            if raw is None:
                raw = self._raw[oid] = self._expect(oid, "tree")
            self._trees[oid] = parse_tree(raw)
        return self._trees[oid]

    def _expect(self, oid: str, kind: str) -> bytes:
        found = self.read(oid)
        if found is None or found[0] != kind:
            raise GitError(
                f"the repository has no {kind} {oid}",
                hint="stack gc, then stack apply fetches what is missing",
            )
        return found[1]

    def add(self, kind: str, data: bytes) -> str:
        """Keep a new object in memory; its id."""
        oid = object_id(kind, data)
        self._new.setdefault(oid, (kind, data))
        return oid

    def find(self, tree: str, path: bytes) -> Entry | None:
        """What stands at `path` in a tree, without following links."""
        *folders, name = path.split(b"/")
        for folder in folders:
            entry = self.tree(tree).get(folder)
            if entry is None or entry.mode != FOLDER:
                return None
            tree = entry.oid
        return self.tree(tree).get(name)

    def edit(self, tree: str, changes: Mapping[bytes, Entry | None]) -> str:
        """The tree with some paths set or (None) removed; only touched folders are made again.

        Raises `NotADirectoryError` where a path leads through something that is not a folder,
        `IsADirectoryError` where a folder stands that is not emptied.
        """
        here: dict[bytes, Entry | None] = {}
        below: dict[bytes, dict[bytes, Entry | None]] = {}
        for path, entry in changes.items():
            head, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(head, {})[rest] = entry
            else:
                here[head] = entry
        entries = dict(self.tree(tree))
        for name, entry in here.items():
            if entry is None:
                entries.pop(name, None)
        for name, inner in below.items():
            now = entries.get(name)
            if now is not None and now.mode != FOLDER:
                raise NotADirectoryError(name)
            made = self.edit(now.oid if now else EMPTY_TREE, inner)
            if made == EMPTY_TREE:
                entries.pop(name, None)
            else:
                entries[name] = Entry(FOLDER, made)
        for name, entry in here.items():
            if entry is None:
                continue
            now = entries.get(name)
            if now is not None and now.mode == FOLDER and entry.mode != FOLDER:
                raise IsADirectoryError(name)
            entries[name] = entry
        data = self._render(tree, entries, [*here, *below])
        oid = self.add("tree", data)
        self._trees.setdefault(oid, entries)
        self._raw.setdefault(oid, data)
        return oid

    def _render(self, tree: str, entries: dict[bytes, Entry], touched: Sequence[bytes]) -> bytes:
        """A tree's bytes, made from those of `tree` where only ids of its entries changed."""
        old, raw = self._trees[tree], self._raw[tree]
        for name in touched:
            was, now = old.get(name), entries.get(name)
            if was is None or now is None or was.mode != now.mode:
                return render_tree(entries)
            if was.oid != now.oid:
                head = b"%o %s\0" % (was.mode, name)
                raw = raw.replace(head + bytes.fromhex(was.oid), head + bytes.fromhex(now.oid), 1)
        return raw

    def changed(self, old: str, new: str) -> Changed:
        """The paths in which two trees differ, with the entry on both sides.

        Equal folders are not looked into; those of one depth are read in one go.
        """
        if self._compared[:2] != (old, new):
            self._compared = (old, new, self._compare(old, new))
        return self._compared[2]

    def _compare(self, old: str, new: str) -> Changed:
        found: dict[bytes, tuple[Entry | None, Entry | None]] = {}
        level = [(b"", old, new)] if old != new else []
        while level:
            self.read_ahead(oid for _, *both in level for oid in both)
            below: list[tuple[bytes, str, str]] = []
            for prefix, left_tree, right_tree in level:
                before, after = self.tree(left_tree), self.tree(right_tree)
                for name, left, right in differing(before, after):
                    both, path = (left, right), prefix + name
                    inside = [one.oid if one and one.mode == FOLDER else None for one in both]
                    if any(inside):
                        one, other = (oid or EMPTY_TREE for oid in inside)
                        below.append((path + b"/", one, other))
                    left, right = (None if o else e for e, o in zip(both, inside, strict=True))
                    if left or right:
                        found[path] = (left, right)
            level = below
        return found

    def forget(self) -> None:
        """Drop the new objects; what was read stays."""
        for oid in self._new:
            if oid != EMPTY_TREE:
                self._trees.pop(oid, None)
                self._raw.pop(oid, None)
        self._new.clear()

    def write(self, *tips: str) -> int:
        """Put new objects into the repository as one pack; how many.

        All of them, or only those that `tips` lead to; the others stay in memory.
        """
        wanted = self._reachable(tips) if tips else list(self._new)
        if len(wanted) > _MANY:  # a whole release: most of it is there from the one before
            asked = "".join(f"{oid}\n" for oid in wanted).encode()
            known = self.git.run("cat-file", "--batch-check", stdin=asked).out.splitlines()
            stored = {row[:40].decode() for row in known if not row.endswith(b" missing")}
            for oid in stored:
                self._hold(oid, *self._new.pop(oid))
            wanted = [oid for oid in wanted if oid not in stored]
        if wanted:
            stream = pack(self._new[oid] for oid in wanted)
            if self.git.write_beside():
                self.close()
                self._process = self.git.start("cat-file", "--batch")
            self.git.run("index-pack", "--stdin", "--fix-thin", stdin=stream)
            for oid in wanted:
                self._hold(oid, *self._new.pop(oid))
        return len(wanted)

    def _reachable(self, tips: Iterable[str]) -> list[str]:
        """The new objects that some lead to."""
        found: dict[str, None] = {}
        waiting = list(tips)
        while waiting:
            oid = waiting.pop()
            if oid in found or oid not in self._new:
                continue
            found[oid] = None
            kind, data = self._new[oid]
            if kind == "commit":
                commit = parse_commit(data)
                waiting += [commit.tree, *commit.parents]
            elif kind == "tree":
                waiting += [entry.oid for entry in self.tree(oid).values()]
        return list(found)
