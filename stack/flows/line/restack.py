"""Replay a line's patches in another order or with other content, in memory; stop at a conflict.

The patch files and the workspace stay as they are until the whole line is there; then both change
in one transaction. A conflict waits in the worktree `.stack/restack/tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stack.flows.events import Emit, Said
from stack.flows.line.restack_finish import Finished, finish
from stack.flows.line.restack_state import (
    digest_of,
    discard,
    ending,
    refuse_stopped,
    save,
    worktree,
)
from stack.flows.line.standing import Mode, Standing, standing
from stack.flows.rebase import tree as trees
from stack.flows.transaction import writing
from stack.model.line.line import Member
from stack.model.line.rebase import Place
from stack.model.line.restack import Made, Pick, Restack
from stack.model.objects import Commit
from stack.repo.carry import Merger, carry
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.repo.semantics import suspects
from stack.store.project import Line, Project
from stack.store.resolutions import Memory


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb wants of a line; the fields are those of `Restack`."""

    what: str
    picks: Sequence[Pick]
    order: Sequence[str]
    added: Sequence[Member] = ()
    applied: Sequence[str] | None = None
    taken: str | None = None
    left: str | None = None


class Restacked(msgspec.Struct, frozen=True, kw_only=True):
    """Where it stands: stopped at a conflict while `finished` is None."""

    state: Restack
    finished: Finished | None
    dry_run: bool = False
    remembered: int = 0


def restack(
    project: Project, line: Line, what: str, plan: Callable[[Standing], Plan], emit: Emit, *,
    dry_run: bool = False, mode: Mode = "clean", command: tuple[str, ...] = (),
) -> Restacked:
    """Make of a line what `plan` says, given where it stands.

    Raises `StateError` where the workspace holds what is not exported and the `mode` does not take.
    """
    if dry_run:
        return _begin(project, line, plan, emit, mode, None)
    with writing(project, f"{what} {line.id}", emit):
        line = project.line(line.series.upstream, line.series.pin.label)
        return _begin(project, line, plan, emit, mode, command)


def _begin(
    project: Project, line: Line, plan: Callable[[Standing], Plan], emit: Emit, mode: Mode,
    command: tuple[str, ...] | None,
) -> Restacked:
    refuse_stopped(project)
    with standing(project, line, emit, mode=mode) as here:
        wanted = plan(here)
        applied = wanted.applied
        if applied is None and here.receipt is not None:
            new = {member.name for member in wanted.added}
            applied = [name for name in wanted.order if name in new or name in here.held]
        state = Restack(
            line=line.id, what=wanted.what, command=command or (), base=here.base.commit,
            source=here.base.source, digest=digest_of(line), order=tuple(wanted.order),
            picks=tuple(wanted.picks), added=tuple(wanted.added),
            applied=None if applied is None else tuple(applied), head=here.workspace.head(),
            taken=wanted.taken, left=wanted.left,
        )
        return go_on(project, line, here.odb, state, emit, dry_run=command is None)


def go_on(
    project: Project, line: Line, odb: ObjectStore, state: Restack, emit: Emit, *,
    dry_run: bool = False, remembered: int = 0,
) -> Restacked:
    """Pick from `state.at` on, to the end or to the next conflict."""
    memory = Memory(project.paths.patches / line.series.upstream / "resolutions")
    merger = Merger(odb)
    while state.at < len(state.picks):
        pick = state.picks[state.at]
        picked = odb.commit(pick.commit)
        if not pick.into and pick.like is None and picked.parents[0] == state.tip:
            state = _with(state, Made(name=pick.name, commit=pick.commit))
            continue
        before, onto = odb.commit(picked.parents[0]).tree, odb.commit(state.tip).tree
        done = carry(
            merger, before, picked.tree, onto, renames=Renames(odb, before, onto),
            answer=memory.answer,
        )
        if done.trouble:
            if dry_run:
                places = tuple(
                    Place(path=one.path, why=one.why, regions=one.regions) for one in done.trouble
                )
                return Restacked(state=_at(state, places), finished=None, dry_run=True)
            places = trees.present(
                odb, worktree(project, line), state.tip, done.trouble, done.tree
            )
            state = _at(state, places)
            save(project, line, odb, state)
            return Restacked(state=state, finished=None, remembered=remembered)
        for text in suspects(merger, before, picked.tree, onto, done) if done.tree != onto else ():
            emit(Said(f"{pick.name}: suspect: {text}", warning=True))
        state = settle(odb, state, done.tree)
    if not dry_run:
        ending(project)
    done_now = finish(project, line, odb, state, emit, dry_run=dry_run)
    if not dry_run:
        discard(project, line)
    return Restacked(state=state, finished=done_now, dry_run=dry_run, remembered=remembered)


def settle(odb: ObjectStore, state: Restack, tree: str) -> Restack:
    """The state with its next pick made, which gives `tree`."""
    pick = state.picks[state.at]
    last = state.made[-1] if state.made else None
    parent, like = state.tip, pick.like or pick.commit
    if pick.into and last is not None and last.name == pick.name and not last.empty:
        parent, like = odb.commit(last.commit).parents[0], last.commit
    elif pick.into:
        like = next((p.like or p.commit for p in state.picks if p.name == pick.name), like)
    if tree == odb.commit(parent).tree:
        return _with(state, Made(name=pick.name, commit=parent, empty=True, moved=True))
    words = odb.commit(like)
    made = Commit(
        tree=tree, parents=(parent,), author=words.author, committer=words.author,
        message=words.message,
    )
    return _with(state, Made(name=pick.name, commit=odb.add("commit", made.render()), moved=True))


def _with(state: Restack, made: Made) -> Restack:
    return msgspec.structs.replace(state, made=(*state.made, made), stopped=())


def _at(state: Restack, places: Sequence[Place]) -> Restack:
    return msgspec.structs.replace(state, stopped=tuple(places))
