"""Where a line and its workspace stand when a verb begins to change them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Literal

from stack.errors import StateError, UsageError
from stack.flows.base import Base, open_base
from stack.flows.events import Emit
from stack.flows.line.apply import refuse_unexported
from stack.flows.line.chain import OWN_COMMIT
from stack.flows.prefixes import items, refuse_conflict
from stack.flows.transaction import read_receipt, refuse_editing, workspace_of
from stack.model.line.line import near
from stack.model.line.records import Receipt
from stack.model.objects import Commit, Person
from stack.repo.odb import ObjectStore
from stack.repo.replay import replay
from stack.repo.workspace import Workspace
from stack.store.project import Line, Project

Mode = Literal["clean", "work", "editing"]
"""What the workspace may hold: nothing of its own, uncommitted work, or an edit under way."""


class Standing:
    """A line replayed in memory, and its workspace.

    `commits` are the commits of the active patches by name, in order; a patch that changes nothing
    has none. `receipt` says where the workspace stood before an edit, if one is under way.
    """

    def __init__(
        self, project: Project, line: Line, base: Base, odb: ObjectStore, workspace: Workspace,
        receipt: Receipt | None,
    ) -> None:
        self.project, self.line, self.base, self.odb = project, line, base, odb
        self.workspace = workspace
        self.now = receipt
        self.receipt = receipt.editing.before if receipt and receipt.editing else receipt
        self.steps = replay(odb, base.commit, items(line, line.series.select(), project))
        refuse_conflict(project, line, self.steps)
        self.commits: Mapping[str, str] = {
            step.name: step.commit
            for step in self.steps
            if step.commit and step.outcome in OWN_COMMIT
        }

    @property
    def names(self) -> list[str]:
        """The names of all members, in order."""
        return [member.name for member in self.line.series.patch]

    @cached_property
    def held(self) -> set[str]:
        """The patches that the workspace is to have: those it had, or all where files changed."""
        if self.receipt is None:
            return set()
        if self.current:
            return set(self.receipt.selected)
        return {member.name for member in self.line.series.select()}

    @property
    def current(self) -> bool:
        """Whether the workspace has what the patch files say now."""
        if self.receipt is None:
            return False
        chosen = self.receipt.selected
        known = set(chosen) <= set(self.names)
        return known and self.line.digest(chosen) == self.receipt.digest

    def commit_of(self, name: str) -> str:
        """The commit of an active patch; `UsageError` where there is none."""
        member = self.line.series.member(name)
        if name not in self.commits:
            why = "is parked" if member.state == "parked" else "changes nothing here"
            raise UsageError(
                f"patch `{name}` of {self.line.id} {why}",
                hint=near(name, list(self.commits), "stack list"),
            )
        return self.commits[name]

    def last_applied(self) -> str | None:
        """The last patch that the workspace has."""
        found = [name for name in self.commits if name in self.held]
        return found[-1] if found else None

    @cached_property
    def work(self) -> str | None:
        """The uncommitted work of the workspace as a commit on its HEAD; None where it is clean."""
        head = self.workspace.head()
        if head is None:
            return None
        tree = self.workspace.written_tree()
        if tree == self.odb.commit(head).tree:
            return None
        return work_commit(self.odb, tree, head)


def work_commit(odb: ObjectStore, tree: str, head: str) -> str:
    """A commit that only keeps uncommitted work; its id depends on nothing but that."""
    who = Person(b"stack", b"stack@localhost", b"0 +0000")
    made = Commit(
        tree=tree, parents=(head,), author=who, committer=who, message=b"uncommitted work\n"
    )
    return odb.add("commit", made.render())


@contextmanager
def standing(project: Project, line: Line, emit: Emit, *, mode: Mode) -> Iterator[Standing]:
    """The line's standing; `StateError` where the workspace holds what the verb would not take."""
    series = line.series
    workspace = workspace_of(project, series.upstream, series.pin.label)
    receipt = read_receipt(project, series.upstream, series.pin.label)
    if mode == "clean":
        refuse_unexported(project, line, workspace, receipt)
    else:
        _refuse_unfit(project, line, workspace, receipt, mode)
    if not workspace.exists:
        receipt = None
    base = open_base(project, series, emit, source=receipt.source if receipt else None)
    with ObjectStore(base.git) as odb:
        yield Standing(project, line, base, odb, workspace, receipt)


def _refuse_unfit(
    project: Project, line: Line, workspace: Workspace, receipt: Receipt | None, mode: Mode
) -> None:
    """Raise `StateError` where there is no work that could be taken, or more than that."""
    where = project.shown(workspace.tree)
    if not workspace.exists or receipt is None:
        raise StateError(
            f"{line.id} has no workspace, so no changes to take",
            hint=f"stack apply --line {line.id}",
        )
    if busy := [row for row in workspace.edited() if row.endswith(" in progress)")]:
        raise StateError(f"{where}: git is at work there", context=busy, hint="end that first")
    if mode == "editing":
        if receipt.editing is None:
            raise StateError(f"no patch of {line.id} is being edited", hint="stack edit PATCH")
        return
    refuse_editing(receipt)
    if workspace.head() != receipt.head:
        raise StateError(
            f"{where}: holds commits that are not in the patch files",
            hint=f"stack export --line {line.id} takes them in",
        )
