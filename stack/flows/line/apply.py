"""Apply a line in its workspace: all or nothing, one commit per patch, with a receipt."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack import __version__
from stack.errors import StateError
from stack.flows import needs
from stack.flows.events import Emit
from stack.flows.prefixes import replayed
from stack.flows.transaction import (
    Change,
    commit,
    read_receipt,
    refuse_editing,
    workspace_of,
    writing,
)
from stack.model.line.line import Member
from stack.model.line.outcome import Step
from stack.model.line.records import Receipt
from stack.model.project.settings import SourceKind
from stack.repo.client import Git
from stack.repo.workspace import Workspace
from stack.store.project import Line, Project


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What `apply` did: the receipt, the workspace's folder, and whether anything moved.

    `left_out` are the files of upstream that the source does not have and the worktree goes
    without.
    """

    receipt: Receipt
    tree: str
    changed: bool
    left_out: tuple[str, ...] = ()


def apply(
    project: Project, line: Line, members: Sequence[Member], emit: Emit, *,
    source: SourceKind | None = None, dry_run: bool = False, command: tuple[str, ...] = (),
) -> Applied:
    """Make the workspace of a line stand at the last of `members`.

    Raises `Conflict` with everything as it was; `StateError` where the workspace holds work that
    is not in the patch files.
    """
    if dry_run:
        return _apply(project, line, members, emit, source, None)
    with writing(project, f"apply {line.id}", emit):
        now = project.line(line.series.upstream, line.series.pin.label)
        members = _chosen(line, now, members)
        return _apply(project, now, members, emit, source, command)


def _chosen(line: Line, now: Line, members: Sequence[Member]) -> Sequence[Member]:
    """The members chosen of a line as it is now: completing a cut-off change may change it."""
    if tuple(members) == line.series.select():
        return now.series.select()
    names = {member.name for member in members}
    return [member for member in now.series.patch if member.name in names]


def apply_profile(
    project: Project, name: str, emit: Emit, *, source: SourceKind | None = None,
    dry_run: bool = False, command: tuple[str, ...] = (),
) -> list[tuple[Line, Applied]]:
    """Apply every line of a profile, once it is sure that each of them can be.

    Raises `StateError` naming the `needs` between lines that are not met, and what `apply` raises.
    """
    chosen = needs.lines_of(project, name)
    needs.check(project, name, chosen)
    found = [
        (line, apply(project, line, members, emit, source=source, dry_run=True))
        for line, members in chosen
    ]
    if dry_run:
        return found
    return [
        (line, apply(project, line, members, emit, source=source, command=command))
        for line, members in chosen
    ]


def _apply(
    project: Project, line: Line, members: Sequence[Member], emit: Emit,
    source: SourceKind | None, command: tuple[str, ...] | None,
) -> Applied:
    series = line.series
    workspace = workspace_of(project, series.upstream, series.pin.label)
    before = read_receipt(project, series.upstream, series.pin.label)
    lost = before is None and workspace.exists  # somebody removed the receipt
    if not lost:
        refuse_unexported(project, line, workspace, before)
    with replayed(project, line, members, emit, source=source) as found:
        names = [member.name for member in members]
        head = found.prefixes[-1]
        if lost and workspace.head() != head.commit:
            refuse_unexported(project, line, workspace, before)
        receipt = Receipt(
            line=series.id, label=series.pin.label, base=found.base,
            base_tree=found.prefixes[0].tree, source=found.source, digest=line.digest(names),
            selected=tuple(names), steps=tuple(found.steps), head=head.commit, tree=head.tree,
            git_version=Git().run("version").text.removeprefix("git version "),
            stack_version=__version__,
        )
        if command is None:
            return Applied(receipt=receipt, tree=str(workspace.tree), changed=False)
        change = Change(
            upstream=series.upstream, label=series.pin.label, head=head.commit, receipt=receipt
        )
        made = commit(
            project, found.odb, change, command, f"applied {len(names)} patches of {series.id}"
        )
        return Applied(
            receipt=receipt, tree=str(workspace.tree), changed=made is not None,
            left_out=tuple(workspace.left_out()),
        )


def refuse_unexported(
    project: Project, line: Line, workspace: Workspace, receipt: Receipt | None
) -> None:
    """Raise `StateError` where the workspace holds work that the patch files do not have."""
    if not workspace.exists:
        return
    refuse_editing(receipt)
    where = project.shown(workspace.tree)
    if edited := workspace.edited():
        more = [f"... and {len(edited) - 6} more"] if len(edited) > 6 else []
        raise StateError(
            f"{where}: uncommitted work would be overwritten", context=[*edited[:6], *more],
            hint="commit it there and `stack export`, or take it back with git, then apply again",
        )
    head = workspace.head()
    if receipt is None or head != receipt.head:
        raise StateError(
            f"{where}: holds commits that are not in the patch files",
            context=[
                f"HEAD {str(head)[:12]}, applied {receipt.head[:12] if receipt else 'nothing'}"
            ],
            hint=f"stack export --line {line.id} keeps them; git reset in the workspace drops them",
        )


def outcome_counts(steps: Sequence[Step]) -> str:
    """`4 clean, 1 empty`, in the order of the outcomes."""
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.outcome.value] = counts.get(step.outcome.value, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no patches"
