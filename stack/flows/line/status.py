"""Where each workspace stands against its patch files; reads only."""

from __future__ import annotations

from typing import Literal

import msgspec

from stack.flows.line import restack_state
from stack.flows.rebase import tree as rebase_tree
from stack.flows.transaction import read_receipt, workspace_of
from stack.model.line.records import Receipt
from stack.store.paths import Paths
from stack.store.project import Project

State = Literal["absent", "clean", "edited", "ahead", "behind", "diverged", "editing"]


class LineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A line's workspace: `ahead` has commits to export, `behind` has patch files to apply."""

    line: str
    pin: str
    state: State
    applied: int
    selected: int
    head: str | None = None
    source: str | None = None
    edited: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def status(project: Project, upstreams: tuple[str, ...] | None = None) -> list[LineStatus]:
    """The status of every line (of these upstreams)."""
    return [
        line_status(project, upstream, label)
        for upstream in upstreams or tuple(project.settings.upstream)
        for label in project.labels(upstream)
    ]


def line_status(project: Project, upstream: str, label: str) -> LineStatus:
    """The status of one line."""
    line = project.line(upstream, label)
    series = line.series
    active = [member.name for member in series.patch if member.state == "active"]
    pin = series.pin.revision[:12]
    if not project.paths.workspace(upstream, label).joinpath("tree", ".git").exists():
        return LineStatus(
            line=line.id, pin=pin, state="absent", applied=0, selected=len(active),
            notes=tuple(_under_way(project, line.id, None)),
        )
    workspace = workspace_of(project, upstream, label)
    receipt = read_receipt(project, upstream, label)
    head = workspace.head()
    edited = tuple(workspace.edited())
    notes = _under_way(project, line.id, receipt)
    ahead = receipt is None or head != receipt.head
    behind = receipt is None
    if receipt is not None and receipt.editing is None:
        gone = [name for name in receipt.selected if name not in line.files]
        behind = bool(gone) or line.digest(receipt.selected) != receipt.digest
        if behind:
            notes.append("patch files changed since they were applied: stack apply")
        if ahead:
            notes.append("commits that are not in the patch files: stack export")
        if not behind and list(receipt.selected) != active:
            extra = [name for name in receipt.selected if name not in active]
            missing = [name for name in active if name not in receipt.selected]
            notes += [f"with {name}" for name in extra] + [f"without {name}" for name in missing]
    state: State = "clean"
    if receipt is not None and receipt.editing is not None:
        state = "editing"
    elif ahead and behind:
        state = "diverged"
    elif ahead:
        state = "ahead"
    elif behind:
        state = "behind"
    elif edited:
        state = "edited"
    if edited:
        notes.append(f"{len(edited)} uncommitted: {', '.join(edited[:3])}")
    return LineStatus(
        line=line.id, pin=pin, state=state, applied=len(receipt.selected) if receipt else 0,
        selected=len(active), head=head, source=receipt.source if receipt else None,
        edited=edited, notes=tuple(notes),
    )


def _under_way(project: Project, line: str, receipt: Receipt | None) -> list[str]:
    """What waits for `--continue` in a line."""
    notes = []
    if receipt is not None and receipt.editing is not None:
        notes.append(f"editing {receipt.editing.patch}: stack edit --continue or --abort")
    if (stopped := restack_state.load(project)) is not None and stopped.line == line:
        verb = stopped.what.split()[0]
        where = f"stopped at patch `{stopped.current}`" if stopped.stopped else "was interrupted"
        notes.append(f"`{stopped.what}` {where}: stack {verb} --continue or --abort")
    if (carried := rebase_tree.load(project)) is not None and carried.source == line:
        where = f"stopped at patch `{carried.current}`" if carried.stopped else "was interrupted"
        notes.append(f"rebase to {carried.target} {where}: stack rebase --continue or --abort")
    return notes


def pending(paths: Paths) -> bool:
    """Whether a killed command left a change that the next writing verb will complete."""
    return (paths.state / "journal.json").exists()
