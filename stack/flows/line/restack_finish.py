"""The end of a restack: the commits become the line's files, and the workspace follows."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from stack.errors import StateError
from stack.flows.events import Emit, Said
from stack.flows.line.chain import files_of, proven, read_items, receipt_of
from stack.flows.line.standing import work_commit
from stack.flows.transaction import Change, commit, line_files, read_receipt, workspace_of
from stack.model.line import edit
from stack.model.line.outcome import Outcome, Step
from stack.model.line.restack import Restack
from stack.repo.odb import ObjectStore
from stack.repo.replay import replay
from stack.store.project import SERIES, Line, Project


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """What a restack wrote, or would write: names of patches by what becomes of their files."""

    written: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    emptied: tuple[str, ...]
    reordered: bool
    head: str | None
    tree: str

    @property
    def differs(self) -> bool:
        return bool(self.written or self.added or self.removed or self.reordered)


def finish(
    project: Project, line: Line, odb: ObjectStore, state: Restack, emit: Emit, *, dry_run: bool
) -> Finished:
    """Write the line's files, move the workspace and log it, all in one transaction."""
    last = {made.name: made for made in state.made}
    chain = {name: made.commit for name, made in last.items() if not made.empty}
    emptied = [name for name, made in last.items() if made.empty]
    if lost := [pick.name for pick in state.picks if pick.into and pick.name in emptied]:
        raise StateError(
            f"nothing would be left of patch `{lost[0]}`",
            hint=f"stack drop {lost[0]} takes it out of the line",
        )
    for name in emptied:
        emit(Said(f"{name}: its whole effect is there before it; it leaves the line", warning=True))
    workspace = workspace_of(project, line.series.upstream, line.series.pin.label)
    files, changed = files_of(odb, workspace.repository, line, state.base, chain, exact=True)
    steps = proven(odb, state.base, chain, files)
    known = {member.name: member for member in (*line.series.patch, *state.added)}
    members = [known[name] for name in state.order if name not in emptied]
    names, before = [member.name for member in members], [m.name for m in line.series.patch]
    held = line_files(line.folder) or {}
    gone = {f"{name}.patch" for name in before if name not in names}
    new = {name: data for name, data in held.items() if name not in gone}
    new |= {f"{name}.patch": data for name, data in files.items()}
    new[SERIES] = edit.set_members(held[SERIES], members)
    done = Finished(
        written=tuple(name for name in changed if name in before),
        added=tuple(name for name in names if name not in before),
        removed=tuple(name for name in before if name not in names), emptied=tuple(emptied),
        reordered=[n for n in names if n in before] != [n for n in before if n in names],
        head=None, tree=odb.commit(state.tip).tree,
    )
    if dry_run:
        return done
    change = Change(upstream=line.series.upstream, label=line.series.pin.label, files=new)
    if state.applied is not None:
        change = _follow(project, line, odb, state, change, steps, emptied)
        head = None if change.head is UNSET else change.head
        done = msgspec.structs.replace(done, head=head)
    commit(project, odb, change, state.command, f"{state.what} in {line.id}")
    return done


def _follow(
    project: Project, line: Line, odb: ObjectStore, state: Restack, change: Change,
    steps: list[Step], emptied: list[str],
) -> Change:
    """The change with the workspace in it: it will have the patches that it had."""
    series = line.series
    now = read_receipt(project, series.upstream, series.pin.label)
    files = {n.removesuffix(".patch"): data for n, data in _files(change).items() if n != SERIES}
    applied = [name for name in state.applied or () if name not in emptied]
    if applied != [step.name for step in steps]:
        steps = replay(odb, state.base, read_items(applied, files))
        if any(step.outcome is Outcome.CONFLICT for step in steps):
            raise StateError(
                f"the patches that the workspace of {line.id} has do not apply alone any more",
                hint=f"stack apply --line {line.id} applies all of them; then again",
            )
    if now is None:
        return change
    was = now.editing.before if now.editing else now
    receipt = receipt_of(line, was, files, steps)
    work = work_commit(odb, state.left, receipt.head) if state.left else None
    if work is not None and state.left == receipt.tree:
        work = None
    return msgspec.structs.replace(
        change, head=receipt.head, receipt=receipt, taken=state.taken, work=work,
        undo_to=was if now.editing else None,
    )


def _files(change: Change) -> dict[str, bytes]:
    return dict(change.files) if isinstance(change.files, dict) else {}
