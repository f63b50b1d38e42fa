"""Where a stopped restack waits: its state, its worktree, and the refs that keep its commits."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from stack.errors import StateError
from stack.flows.rebase import tree as trees
from stack.flows.transaction import line_files
from stack.model.line.restack import Restack
from stack.repo.mirror import ensure_repository
from stack.repo.odb import ObjectStore
from stack.repo.workspace import Workspace
from stack.store import atomic, documents
from stack.store.project import Line, Project

_REFS = "refs/stack/restack"


def _path(project: Project) -> Path:
    return project.paths.state / "restack" / "state.json"


def load(project: Project) -> Restack | None:
    """The change of a line that has stopped, if there is one."""
    hint = "patch files and workspace are as they were: remove the file and begin again"
    state = documents.read(project, _path(project), Restack, hint=hint)
    if state is None:
        return None
    ended = state.ends is not None and trees.logged(project, state.line, state.ends, state.command)
    return None if ended else state  # killed between its end and its clearing away


def ending(project: Project) -> None:
    """Note in the state of a change that had stopped which operation ends it.

    What was made since it stopped is not kept: after a kill it is made again.
    """
    if (state := load(project)) is not None:
        state = msgspec.structs.replace(state, ends=trees.next_number(project, state.line))
        atomic.write(_path(project), msgspec.json.format(msgspec.json.encode(state)))


def need(project: Project) -> Restack:
    """The change that has stopped, or `StateError`."""
    if (state := load(project)) is None:
        raise StateError("nothing has stopped that could go on", hint="stack status")
    return state


def refuse_stopped(project: Project) -> None:
    """Raise `StateError` where a change waits for an answer."""
    if (state := load(project)) is not None:
        where = f"has stopped at patch `{state.current}` and waits for an answer"
        raise StateError(
            f"`{state.what}` {where if state.stopped else 'was interrupted'}",
            hint=f"stack {state.what.split()[0]} --continue or --abort",
        )


def save(project: Project, line: Line, odb: ObjectStore, state: Restack) -> None:
    """Write the state, once everything that it names is in the repository and kept there."""
    git = worktree(project, line).repository
    kept = {state.tip, *(pick.commit for pick in state.picks)}
    kept |= {oid for oid in (state.head, state.taken) if oid}
    kept |= {pick.like for pick in state.picks if pick.like}
    odb.write(*kept)
    rows = [f"update {_REFS}/{number} {oid}\n" for number, oid in enumerate(sorted(kept))]
    git.run("update-ref", "--stdin", stdin="".join(rows).encode())
    atomic.write(_path(project), msgspec.json.format(msgspec.json.encode(state)))


def discard(project: Project, line: Line) -> None:
    """Forget a stopped change: its state first, so that a kill leaves only what can be swept."""
    _path(project).unlink(missing_ok=True)
    if not (project.paths.state / "restack").exists():
        return
    workspace = worktree(project, line)
    trees.remove(workspace)
    held = workspace.repository.run("for-each-ref", "--format=delete %(refname)", f"{_REFS}/")
    if held.out:
        workspace.repository.run("update-ref", "--stdin", stdin=held.out)
    atomic.discard(project.paths.state / "restack")


def worktree(project: Project, line: Line) -> Workspace:
    """The worktree in which a conflict is shown."""
    git = ensure_repository(project.paths.repository(line.series.upstream))
    return Workspace(git, project.paths.state / "restack", "stack-restack")


def digest_of(line: Line) -> str:
    """What changes whenever a file of the line does."""
    found = hashlib.sha256()
    for name, data in sorted((line_files(line.folder) or {}).items()):
        found.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
    return found.hexdigest()
