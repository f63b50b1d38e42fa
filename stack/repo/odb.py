"""Git objects in memory: read through one `cat-file --batch`, written as one pack stream."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from stack.errors import GitError
from stack.model.objects import (
    EMPTY_TREE,
    FILE,
    FOLDER,
    Commit,
    Entry,
    object_id,
    pack,
    parse_commit,
    parse_tree,
    render_tree,
)
from stack.repo.client import Git


class ObjectStore:
    """The objects of one repository, plus new ones that exist only here until `write`."""

    def __init__(self, git: Git) -> None:
        self.git = git
        self._process = git.start("cat-file", "--batch")
        self._new: dict[str, tuple[str, bytes]] = {}
        self._trees: dict[str, dict[bytes, Entry]] = {EMPTY_TREE: {}}

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
        self._process.stdin.write(oid.encode() + b"\n")
        self._process.stdin.flush()
        header = self._process.stdout.readline().split()
        if len(header) != 3:
            if len(header) == 2 and header[1] == b"missing":
                return None
            raise GitError(f"git cat-file gave no object for {oid}")
        data = self._process.stdout.read(int(header[2]) + 1)[:-1]
        return header[1].decode(), data

    def blob(self, oid: str) -> bytes:
        return self._expect(oid, "blob")

    def commit(self, oid: str) -> Commit:
        return parse_commit(self._expect(oid, "commit"))

    def tree(self, oid: str) -> dict[bytes, Entry]:
        """The entries of a tree; the caller must not change them."""
        if oid not in self._trees:
            self._trees[oid] = parse_tree(self._expect(oid, "tree"))
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
        data = render_tree(entries)
        oid = self.add("tree", data)
        self._trees.setdefault(oid, entries)
        return oid

    def changed(
        self, old: str, new: str, prefix: bytes = b""
    ) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """The paths in which two trees differ, with the entry on both sides.

        Equal folders are not looked into.
        """
        found: dict[bytes, tuple[Entry | None, Entry | None]] = {}
        if old == new:
            return found
        before, after = self.tree(old), self.tree(new)
        for name in (*before, *(name for name in after if name not in before)):
            left, right = before.get(name), after.get(name)
            if left == right:
                continue
            path = prefix + name
            left_folder = left is not None and left.mode == FOLDER
            right_folder = right is not None and right.mode == FOLDER
            if left_folder or right_folder:
                found |= self.changed(
                    left.oid if left and left_folder else EMPTY_TREE,
                    right.oid if right and right_folder else EMPTY_TREE,
                    path + b"/",
                )
            if (left and not left_folder) or (right and not right_folder):
                found[path] = (
                    left if left and not left_folder else None,
                    right if right and not right_folder else None,
                )
        return found

    def write(self) -> int:
        """Put every new object into the repository as one pack; how many."""
        count = len(self._new)
        if count:
            self.git.run("index-pack", "--stdin", "--fix-thin", stdin=pack(self._new.values()))
            self._new.clear()
        return count


def entry_mode(entry: Entry | None) -> int:
    """The mode of an entry, an ordinary file's where there is none."""
    return entry.mode if entry else FILE
