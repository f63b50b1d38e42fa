"""Which patch owns each changed place of a workspace: the last that touched its lines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.flows.line.standing import Standing
from stack.model.diff.linediff import Change, changes, split
from stack.model.objects import SUBMODULE, SYMLINK, Entry
from stack.repo.odb import ObjectStore
from stack.repo.replay import show

BASE = ""
"""The owner of lines that no patch touched."""


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """A changed place of the workspace, the patch that it goes to, or why it goes nowhere.

    `line` counts from 1 in the file as committed; `change` is None for a file as a whole.
    """

    path: str
    line: int
    patch: str | None
    why: str = ""
    raw: bytes = b""
    change: Change | None = None


def owners(here: Standing, work: str) -> list[Hunk]:
    """Every changed place of the workspace with the patch that it belongs to."""
    odb, head = here.odb, here.odb.commit(here.workspace.head() or "").tree
    found: list[Hunk] = []
    for path, (left, right) in sorted(odb.changed(head, odb.commit(work).tree).items()):
        touched = [name for name, oid in here.commits.items() if _touches(odb, oid, path)]
        if left is None:
            found.append(_whole(path, None, "a new file: stack refresh PATCH takes it"))
            continue
        if not _mergeable(odb, left, right):
            one = touched[0] if len(touched) == 1 else None
            found.append(_whole(path, one, "" if one else _why(touched)))
            continue
        lines = _blame(here, path, touched)
        new = split(odb.blob(right.oid)) if right else []
        for change in changes(split(odb.blob(left.oid)), new):
            having = _owning(lines, change)
            patch = next(iter(having)) if len(having) == 1 else None
            found.append(
                Hunk(
                    path=show(path), line=change[0] + 1, patch=patch, raw=path, change=change,
                    why="" if patch else _why(sorted(having)),
                )
            )
    return found


def _whole(path: bytes, patch: str | None, why: str) -> Hunk:
    return Hunk(path=show(path), line=1, patch=patch, why=why, raw=path)


def _why(having: Sequence[str]) -> str:
    if not having:
        return "no patch touched these lines"
    return f"{' and '.join(having)} touched these lines"


def _mergeable(odb: ObjectStore, left: Entry, right: Entry | None) -> bool:
    """Whether a path changed in its lines only."""
    if right is None or left.mode != right.mode or left.mode in (SYMLINK, SUBMODULE):
        return False
    return not any(b"\0" in odb.blob(entry.oid)[:8000] for entry in (left, right))


def _touches(odb: ObjectStore, oid: str, path: bytes) -> bool:
    made = odb.commit(oid)
    return odb.find(made.tree, path) != odb.find(odb.commit(made.parents[0]).tree, path)


def _blame(here: Standing, path: bytes, touched: Sequence[str]) -> list[str]:
    """The patch that last added or changed each line of a file, `BASE` where none did."""
    odb = here.odb

    def content(commit: str) -> list[bytes]:
        entry = odb.find(odb.commit(commit).tree, path)
        return split(odb.blob(entry.oid)) if entry and entry.mode != SUBMODULE else []

    now = content(here.base.commit)
    found = [BASE] * len(now)
    for name in touched:
        new = content(here.commits[name])
        for a, b, c, d in reversed(changes(now, new)):
            found[a:b] = [name] * (d - c)
        now = new
    return found


def _owning(lines: Sequence[str], change: Change) -> set[str]:
    """The patches whose lines a change replaces, or between whose lines it inserts."""
    a, b, _, _ = change
    own = lines[a:b] if b > a else lines[max(a - 1, 0) : a + 1]
    return {name for name in own if name != BASE}
