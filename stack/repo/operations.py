"""The log of changes, kept in git: one commit per change, so that undo finds what it needs.

`refs/stack/operations` points at the newest. Each commit has the operation as its message, the
one before as its first parent, and the heads before and after as further parents; its tree holds
the series files before and after. Nothing of it can be collected while the log stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.errors import StateError
from stack.model.line.records import Operation
from stack.model.objects import EMPTY_TREE, FOLDER, Commit, Entry, Person
from stack.repo.client import Git
from stack.repo.odb import ObjectStore

REF = "refs/stack/operations"


def record(odb: ObjectStore, previous: str | None, operation: Operation, seconds: int) -> str:
    """Put an operation into `odb`; the id of its commit."""
    changes: dict[bytes, Entry | None] = {}
    heads: list[str] = []
    for side, states in (("before", operation.before), ("after", operation.after)):
        for line, state in states.items():
            if tree := state.get("files"):
                changes[f"{side}/{line.replace('/', '%')}".encode()] = Entry(FOLDER, tree)
            for kept in (state.get("head"), state.get("work")):
                if kept and kept not in heads:
                    heads.append(kept)
    who = Person(b"stack", b"stack@localhost", b"%d +0000" % seconds)
    commit = Commit(
        tree=odb.edit(EMPTY_TREE, changes), author=who, committer=who,
        parents=tuple(([previous] if previous else []) + [h for h in heads if h != previous]),
        message=msgspec.json.encode(operation) + b"\n",
    )
    return odb.add("commit", commit.render())


def tip(git: Git) -> str | None:
    """The newest operation's commit."""
    found = git.run("rev-parse", "--verify", "--quiet", REF, ok=(0, 1, 128))
    return found.text or None


def read(git: Git) -> list[Operation]:
    """All operations of an upstream, oldest first."""
    start = tip(git)
    if start is None:
        return []
    listed = git.run("log", "--first-parent", "--format=%s", "--no-show-signature", start)
    rows = [line for line in listed.out.splitlines() if line.startswith(b"{")]
    try:
        return [msgspec.json.decode(row, type=Operation) for row in reversed(rows)]
    except msgspec.MsgspecError as wrong:
        raise StateError(
            f"{REF} of {git.git_dir}: damaged: {wrong}",
            hint="git update-ref -d takes the log away, and undo with it; patch files stay",
        ) from None


def undoable(operations: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
    """What `undo` and what `redo` would take, the next one last in each list."""
    by_number = {operation.number: operation for operation in operations}
    done: list[Operation] = []
    undone: list[Operation] = []
    for operation in operations:
        if operation.undoes is not None:
            done = [one for one in done if one.number != operation.undoes]
            undone.append(by_number[operation.undoes])
        elif operation.redoes is not None:
            undone = [one for one in undone if one.number != operation.redoes]
            done.append(by_number[operation.redoes])
        else:
            done.append(operation)
            undone.clear()
    return done, undone


def files_of(odb: ObjectStore, tree: str | None) -> dict[str, bytes]:
    """The series files of a recorded tree by name; none for a line that did not exist."""
    if tree is None:
        return {}
    if odb.read(tree) is None:
        raise StateError(f"the recorded files {tree} are gone from the repository")
    return {
        name.decode(): odb.blob(entry.oid)
        for name, (_, entry) in odb.changed(EMPTY_TREE, tree).items() if entry is not None
    }
