"""Export: the workspace's commits become the patch files, changing no byte that need not change."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stack.errors import StateError
from stack.flows.events import Emit, Said
from stack.flows.line.chain import OWN_COMMIT, files_of, proven, receipt_of
from stack.flows.line.matching import Match, match, reworded
from stack.flows.transaction import (
    Change,
    commit,
    line_files,
    read_receipt,
    refuse_editing,
    workspace_of,
    writing,
)
from stack.model.line import edit
from stack.model.line.line import Member
from stack.model.line.records import Receipt
from stack.repo.odb import ObjectStore
from stack.store.project import SERIES, Line, Project


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What `export` wrote or would write: file names by what happens to them.

    `plan` says which patch each commit is, in order, and what told.
    """

    written: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    reordered: bool
    uncommitted: tuple[str, ...]
    plan: tuple[Match, ...] = ()

    @property
    def differs(self) -> bool:
        return bool(self.written or self.added or self.removed or self.reordered)


def export(
    project: Project, line: Line, emit: Emit, *, check: bool = False, force: bool = False,
    command: tuple[str, ...] = (),
) -> Exported:
    """Write the workspace's commits back to the line's patch files.

    With `check` nothing is written. A file is written only where replaying it would not give the
    commit again. Raises `StateError` where both the files and the workspace changed, unless
    `force`; what is overwritten then can be had back with `stack undo`.
    """
    if check:
        return _export(project, line, emit, None, force=True)
    with writing(project, f"export {line.id}", emit):
        line = project.line(line.series.upstream, line.series.pin.label)
        return _export(project, line, emit, command, force=force)


def _export(
    project: Project, line: Line, emit: Emit, command: tuple[str, ...] | None, *, force: bool
) -> Exported:
    series = line.series
    workspace = workspace_of(project, series.upstream, series.pin.label)
    receipt = read_receipt(project, series.upstream, series.pin.label)
    if not workspace.exists or receipt is None:
        raise StateError(
            f"{line.id} has no workspace to export", hint=f"stack apply --line {line.id}"
        )
    refuse_editing(receipt)
    known = {member.name for member in series.patch}
    stale = not set(receipt.selected) <= known or line.digest(receipt.selected) != receipt.digest
    if stale and not force:
        raise StateError(
            f"the patch files of {line.id} changed since they were applied",
            hint="stack apply brings them into the workspace; stack export --force overwrites them",
        )
    uncommitted = tuple(workspace.edited())
    if uncommitted and command is not None:
        count = f"{len(uncommitted)} uncommitted changes in the workspace are not exported"
        emit(Said(count, warning=True))
    with ObjectStore(workspace.repository) as odb:
        ids = workspace.commits(receipt.base)
        on_disk = line_files(line.folder) or {}
        taken = known | {name.removesuffix(".patch") for name in on_disk}
        matches = match(odb, line, receipt, ids, taken)
        matched = reworded(odb, line, receipt.base, matches)
        files, changed = files_of(odb, workspace.git, line, receipt.base, matched)
        members = order(line, receipt, matched)
        text = edit.set_members((line.folder / SERIES).read_bytes(), members)
        before = [member.name for member in series.patch]
        names = set(before)
        now = [member.name for member in members]
        exported = Exported(
            written=tuple(name for name in changed if name in names),
            added=tuple(name for name in matched if name not in names),
            removed=tuple(sorted(names - set(now))),
            reordered=[n for n in now if n in names] != [n for n in before if n in now],
            uncommitted=uncommitted, plan=tuple(matches),
        )
        if command is not None and (exported.differs or stale):
            gone = {f"{name}.patch" for name in names - set(now)}
            new = {name: data for name, data in on_disk.items() if name not in gone}
            new |= {f"{name}.patch": data for name, data in files.items()}
            steps = proven(odb, receipt.base, matched, files)
            fresh = receipt_of(line, receipt, files, steps)
            change = Change(
                upstream=series.upstream, label=series.pin.label, files={**new, SERIES: text},
                head=fresh.head, receipt=fresh,
            )
            commit(project, odb, change, command, f"exported {_summary(exported)} of {line.id}")
        return exported


def order(line: Line, receipt: Receipt, matched: Mapping[str, str]) -> list[Member]:
    """The members in their new order; one without a commit stays behind its neighbour."""
    applied = {step.name for step in receipt.steps if step.outcome in OWN_COMMIT}
    behind: dict[str | None, list[Member]] = {}
    anchor: str | None = None
    for member in line.series.patch:
        if member.name in applied:
            if member.name in matched:
                anchor = member.name
        else:
            behind.setdefault(anchor, []).append(member)
    known = {member.name: member for member in line.series.patch}
    ordered = list(behind.get(None, ()))
    for name in matched:
        ordered.append(known.get(name) or Member(name=name))
        ordered += behind.get(name, ())
    return ordered


def _summary(exported: Exported) -> str:
    parts = [
        f"{len(names)} {word}"
        for names, word in (
            (exported.written, "changed"), (exported.added, "new"), (exported.removed, "removed"),
        )
        if names
    ]
    if not parts:
        return "the order"
    return ", ".join(parts) + (", reordered" if exported.reordered else "")
