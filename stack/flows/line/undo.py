"""Undo and redo: a recorded change is taken back exactly, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from stack.errors import StateError
from stack.flows.events import Emit
from stack.flows.transaction import (
    Change,
    commit,
    line_files,
    read_receipt,
    refuse_editing,
    workspace_of,
    writing,
)
from stack.model.line.records import Operation, Receipt
from stack.repo import operations
from stack.repo.odb import ObjectStore
from stack.repo.workspace import Workspace
from stack.store.project import Project


def history(project: Project, upstream: str | None = None) -> list[Operation]:
    """The recorded changes, oldest first, of one upstream or of all."""
    found: list[Operation] = []
    for name in [upstream] if upstream else list(project.settings.upstream):
        if (project.paths.repository(name) / "HEAD").exists():
            found += operations.read(workspace_of(project, name, "none").repository)
    return sorted(found, key=lambda operation: (operation.time, operation.number))


def undo(
    project: Project, emit: Emit, *, upstream: str | None = None, redo: bool = False,
    command: tuple[str, ...] = (),
) -> Operation:
    """Take back the newest change that stands (or, with `redo`, the newest that was taken back).

    Work that stood in the workspace before a change comes back with it, and the next undo puts it
    away again. Raises `StateError` where files or workspace are not as the log last left them.
    """
    with writing(project, "undo", emit):
        per_upstream = [upstream] if upstream else list(project.settings.upstream)
        candidates = []
        for name in per_upstream:
            past = history(project, name)
            done, undone = operations.undoable(past)
            if pile := (undone if redo else done):
                candidates.append((pile[-1], past))
        if not candidates:
            raise StateError(
                "nothing to " + ("redo" if redo else "undo"), hint="stack log lists what was done"
            )
        target, past = max(candidates, key=lambda pair: (pair[0].time, pair[0].number))
        for line in target.before:
            _restore(project, target, past, line, redo, command)
        return target


def _restore(
    project: Project, target: Operation, past: Sequence[Operation], line: str, redo: bool,
    command: tuple[str, ...],
) -> None:
    """Bring a line to the state before a change, or (`redo`) to what undo took away.

    The line must be as the newest change of the log left it: whatever it holds then is in the log.
    """
    left = next(one for one in reversed(past) if line in one.after)
    expected, wanted = left.after[line], target.before[line]
    if redo:
        wanted = next(one for one in reversed(past) if one.undoes == target.number).before[line]
    upstream, _, label = line.partition("/")
    workspace = workspace_of(project, upstream, label)
    refuse_editing(read_receipt(project, upstream, label))
    with ObjectStore(workspace.repository) as odb:
        files = line_files(project.paths.line(upstream, label))
        if (files or {}) != operations.files_of(odb, expected["files"]):
            raise StateError(
                f"the patch files of {line} changed since `{left.summary}`",
                hint="git restores single files; stack log shows what was done",
            )
        receipt = wanted["receipt"]
        kept = operations.files_of(odb, wanted["files"]) if wanted["files"] else None
        change = Change(
            upstream=upstream, label=label, files=kept,
            receipt=msgspec.json.decode(receipt, type=Receipt) if receipt else None,
        )
        if expected["head"] != wanted["head"] or expected.get("work") != wanted.get("work"):
            change = msgspec.structs.replace(
                change, head=wanted["head"], work=wanted.get("work"),
                taken=_taken(workspace, odb, expected, line, left),
            )
        word = "redid" if redo else "undid"
        commit(
            project, odb, change, command, f"{word}: {target.summary}",
            undoes=None if redo else target.number, redoes=target.number if redo else None,
        )


def _taken(
    workspace: Workspace, odb: ObjectStore, expected: Mapping[str, str | None], line: str,
    left: Operation,
) -> str | None:
    """The uncommitted work that the workspace still has from a change; `StateError` for other."""
    work = expected.get("work")
    if workspace.head() == expected["head"]:
        if work is not None and workspace.written_tree() == odb.commit(work).tree:
            return work
        if not workspace.edited():
            return None
    raise StateError(
        f"the workspace of {line} changed since `{left.summary}`",
        hint="stack export its commits, or take them back with git, then undo",
    )
