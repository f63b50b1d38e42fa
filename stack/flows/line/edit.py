"""Stand at a patch to edit it, with git or without; then replay what stands above."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stack.errors import StateError
from stack.flows.events import Emit, Said
from stack.flows.line import restack_state
from stack.flows.line.arrange import picks
from stack.flows.line.chain import receipt_of
from stack.flows.line.export import order
from stack.flows.line.matching import match, reworded
from stack.flows.line.restack import Plan, Restacked, restack
from stack.flows.line.standing import Standing, standing, work_commit
from stack.flows.transaction import Change, commit, read_receipt, workspace_of, writing
from stack.model.line.records import Editing, Receipt
from stack.model.line.restack import Pick
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.store.project import Line, Project

_ABORTED = "refs/stack/aborted"


class Edited(msgspec.Struct, frozen=True, kw_only=True):
    """An edit that began or was given up: where the workspace stands; `kept` has what was left."""

    line: str
    patch: str
    head: str
    tree: str
    above: tuple[str, ...] = ()
    kept: str | None = None


def start(
    project: Project, line: Line, name: str, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> Edited:
    """Bring the workspace to a patch; what stands above waits. Nothing of it is logged for undo.

    Raises `StateError` where the workspace holds work, or an edit is under way.
    """
    if dry_run:
        return _start(project, line, name, emit, None)
    with writing(project, f"edit {line.id}", emit):
        line = project.line(line.series.upstream, line.series.pin.label)
        return _start(project, line, name, emit, command)


def _start(
    project: Project, line: Line, name: str, emit: Emit, command: tuple[str, ...] | None
) -> Edited:
    restack_state.refuse_stopped(project)
    with standing(project, line, emit, mode="clean") as here:
        head = here.commit_of(name)
        full = here.receipt
        if full is None or not here.current:
            full = _full_receipt(here)
        at = [step.name for step in here.steps].index(name)
        below = receipt_of(line, full, {}, here.steps[: at + 1])
        receipt = msgspec.structs.replace(below, editing=Editing(patch=name, before=full))
        edited = Edited(
            line=line.id, patch=name, head=head, tree=str(here.workspace.tree),
            above=tuple(list(here.commits)[list(here.commits).index(name) + 1 :]),
        )
        if command is not None:
            here.odb.write(full.head)
            change = Change(
                upstream=line.series.upstream, label=line.series.pin.label, head=head,
                receipt=receipt,
            )
            commit(project, here.odb, change, command, f"edit {name}", logged=False)
        return edited


def _full_receipt(here: Standing) -> Receipt:
    """The receipt of the whole line, for a workspace that does not have it yet."""
    old = here.receipt or Receipt(
        line=here.line.id, label=here.line.series.pin.label, base=here.base.commit,
        base_tree=here.base.tree, source=here.base.source, digest="", selected=(), steps=(),
        head=here.base.commit, tree=here.base.tree,
        git_version=Git().run("version").text.removeprefix("git version "), stack_version="",
    )
    return receipt_of(here.line, old, {}, here.steps)


def editing(project: Project, line: Line) -> str | None:
    """The patch of a line that is being edited."""
    receipt = read_receipt(project, line.series.upstream, line.series.pin.label)
    return receipt.editing.patch if receipt and receipt.editing else None


def finish(
    project: Project, line: Line, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> Restacked:
    """Take the edit in: the workspace's commits and changes, and above them what waited.

    Commits may be new, reworded, split, reordered or gone; uncommitted changes go into the last
    one, or become the edited patch where its commit was taken back.
    """
    name = editing(project, line) or ""
    what = f"edit {name}"
    return restack(
        project, line, what, lambda here: _plan(here, name, what, emit), emit, mode="editing",
        dry_run=dry_run, command=command,
    )


def _plan(here: Standing, name: str, what: str, emit: Emit) -> Plan:
    now, was = here.now, here.receipt
    if now is None or was is None or not name:
        raise StateError(f"no patch of {here.line.id} is being edited", hint="stack edit PATCH")
    line = here.line
    known = set(here.names)
    if not set(was.selected) <= known or line.digest(was.selected) != was.digest:
        raise StateError(
            f"the patch files of {line.id} changed since the edit began",
            hint="git restores them; stack edit --abort keeps the edit's commits aside",
        )
    ids = here.workspace.commits(now.base)
    matches = match(here.odb, line, now, ids, set(known))
    chain = dict(reworded(here.odb, line, now.base, matches))
    own = [step.name for step in now.steps if step.name in here.commits]
    found = [Pick(name=one, commit=oid) for one, oid in chain.items()]
    work = here.work
    if work is not None:
        emit(Said(f"taking uncommitted changes into `{_into(chain, name)}`"))
    if work is not None and name not in chain:
        found.append(Pick(name=name, commit=work, like=here.commits[name]))
        chain[name] = work
    elif work is not None:
        found.append(Pick(name=_into(chain, name), commit=work, into=True))
    for gone in [one for one in own if one not in chain]:
        emit(Said(f"{gone}: its commit is gone, so it leaves the line", warning=True))
    at = list(here.commits).index(name)
    found += picks(here)[at + 1 :]
    cut = here.names.index(name) + 1
    front = msgspec.structs.replace(line.series, patch=line.series.patch[:cut])
    members = order(msgspec.structs.replace(line, series=front), now, chain)
    names = [*(member.name for member in members), *here.names[cut:]]
    new = [member for member in members if member.name not in known]
    applied = [one for one in names if one in here.held or one in chain]
    return Plan(what=what, picks=found, order=names, added=new, applied=applied, taken=work)


def _into(chain: Mapping[str, str], name: str) -> str:
    return list(chain)[-1] if name in chain else name


def abort(project: Project, line: Line, emit: Emit, *, command: tuple[str, ...] = ()) -> Edited:
    """Give an edit up: the workspace goes back; its commits and changes are kept under a ref."""
    with writing(project, f"edit --abort {line.id}", emit):
        line = project.line(line.series.upstream, line.series.pin.label)
        series = line.series
        workspace = workspace_of(project, series.upstream, series.pin.label)
        receipt = read_receipt(project, series.upstream, series.pin.label)
        if receipt is None or receipt.editing is None:
            raise StateError(f"no patch of {line.id} is being edited", hint="stack edit PATCH")
        if busy := [row for row in workspace.edited() if row.endswith(" in progress)")]:
            raise StateError(
                f"{project.shown(workspace.tree)}: git is at work there", context=busy,
                hint="end that first",
            )
        restack_state.discard(project, line)
        was, head = receipt.editing.before, workspace.head()
        with ObjectStore(workspace.repository) as odb:
            tree = workspace.written_tree()
            work = None
            if head is not None and tree != odb.commit(head).tree:
                work = work_commit(odb, tree, head)
                odb.write(work)
            kept = work or (head if head != receipt.head else None)
            if kept:
                workspace.repository.run("update-ref", f"{_ABORTED}/{series.pin.label}", kept)
            change = Change(
                upstream=series.upstream, label=series.pin.label, head=was.head, receipt=was,
                taken=work,
            )
            commit(project, odb, change, command, "edit --abort", logged=False)
        return Edited(
            line=line.id, patch=receipt.editing.patch, head=was.head, tree=str(workspace.tree),
            kept=kept,
        )
