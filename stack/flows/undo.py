"""Undo and redo: a recorded change is taken back exactly, or not at all."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

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
from stack.model.records import Operation, Receipt
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

    Raises `StateError` where files or workspace are not as that change left them.
    """
    with writing(project, "undo", emit):
        per_upstream = [upstream] if upstream else list(project.settings.upstream)
        candidates = []
        for name in per_upstream:
            done, undone = operations.undoable(history(project, name))
            if pile := (undone if redo else done):
                candidates.append(pile[-1])
        if not candidates:
            raise StateError(
                "nothing to " + ("redo" if redo else "undo"), hint="stack log lists what was done"
            )
        target = max(candidates, key=lambda operation: (operation.time, operation.number))
        for line in target.before:
            _restore(project, target, line, redo, command)
        return target


def _restore(
    project: Project, target: Operation, line: str, redo: bool, command: tuple[str, ...]
) -> None:
    expected, wanted = target.after[line], target.before[line]
    if redo:
        expected, wanted = wanted, expected
    upstream, _, label = line.partition("/")
    workspace = workspace_of(project, upstream, label)
    refuse_editing(read_receipt(project, upstream, label))
    with ObjectStore(workspace.repository) as odb:
        files = line_files(project.paths.line(upstream, label))
        if (files or {}) != operations.files_of(odb, expected["files"]):
            raise StateError(
                f"the patch files of {line} changed since `{target.summary}`",
                hint="git restores single files; stack log shows what was done",
            )
        moves = expected["head"] != wanted["head"] or expected.get("work") != wanted.get("work")
        if moves and not _untouched(workspace, odb, expected):
            raise StateError(
                f"the workspace of {line} changed since `{target.summary}`",
                hint="stack export its commits, or take them back with git, then undo",
            )
        receipt = wanted["receipt"]
        kept = operations.files_of(odb, wanted["files"]) if wanted["files"] else None
        change = Change(
            upstream=upstream, label=label, files=kept, head=wanted["head"] if moves else UNSET,
            taken=expected.get("work") if moves else None,
            work=wanted.get("work") if moves else None,
            receipt=msgspec.json.decode(receipt, type=Receipt) if receipt else None,
        )
        word = "redid" if redo else "undid"
        commit(
            project, odb, change, command, f"{word}: {target.summary}",
            undoes=None if redo else target.number, redoes=target.number if redo else None,
        )


def _untouched(
    workspace: Workspace, odb: ObjectStore, expected: Mapping[str, str | None]
) -> bool:
    """Whether a workspace is as a change left it, with the uncommitted work that it left."""
    if workspace.head() != expected["head"]:
        return False
    work = expected.get("work")
    if work is None:
        return not workspace.edited()
    return workspace.written_tree() == odb.commit(work).tree
