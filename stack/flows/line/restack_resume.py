"""Go on with a change of a line that stopped at a conflict, or give it up."""

from __future__ import annotations

from stack.errors import StateError
from stack.flows.events import Emit
from stack.flows.line.restack import Restacked, go_on, settle
from stack.flows.line.restack_state import digest_of, discard, need, save, worktree
from stack.flows.rebase import tree as trees
from stack.flows.transaction import workspace_of, writing
from stack.model.line.restack import Restack
from stack.repo.odb import ObjectStore
from stack.store.project import Line, Project
from stack.store.resolutions import Memory


def resume(project: Project, emit: Emit) -> Restacked:
    """Go on with what stands in the worktree of a conflict.

    Raises `StateError` while markers remain, and where line or workspace changed since.
    """
    with writing(project, "continue", emit):
        state = need(project)
        line = project.find(state.line)
        _refuse_changed(project, line, state)
        workspace = worktree(project, line)
        memory = Memory(project.paths.patches / line.series.upstream / "resolutions")
        if left := trees.unanswered(workspace, state.stopped):
            raise StateError(
                f"patch `{state.current}`: conflict markers remain", context=left,
                hint=f"edit them in {project.shown(workspace.tree)}, then --continue",
            )
        with ObjectStore(workspace.repository) as odb:
            if not state.stopped:  # killed after its answer was kept: the worktree shows nothing
                return go_on(project, line, odb, state, emit)
            tree = workspace.written_tree()
            remembered = trees.remember(workspace, state.stopped, memory, state.current)
            state = settle(odb, state, tree)
            odb.write(state.tip)
            save(project, line, odb, state)
            return go_on(project, line, odb, state, emit, remembered=remembered)


def abort(project: Project, emit: Emit) -> Restack:
    """Give a stopped change up; patch files and workspace are as they were all the time."""
    with writing(project, "abort", emit):
        state = need(project)
        discard(project, project.find(state.line))
        return state


def _refuse_changed(project: Project, line: Line, state: Restack) -> None:
    """Raise `StateError` where something else changed the line or its workspace meanwhile."""
    here = workspace_of(project, line.series.upstream, line.series.pin.label)
    changed = None
    if digest_of(line) != state.digest:
        changed = f"the patch files of {line.id}"
    elif here.head() != state.head:
        changed = f"the workspace of {line.id}"
    elif state.taken is not None:
        with ObjectStore(here.repository) as odb:
            if here.written_tree() != odb.commit(state.taken).tree:
                changed = f"the uncommitted work in {project.shown(here.tree)}"
    elif here.edited():
        changed = f"the workspace of {line.id}"
    if changed:
        raise StateError(
            f"{changed} changed since `{state.what}` stopped",
            hint="take that back, or --abort and begin again",
        )
