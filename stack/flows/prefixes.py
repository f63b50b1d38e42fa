"""A line replayed on its pin: the tree of every prefix, in memory until somebody writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from stack.errors import Conflict, StackError
from stack.flows.base import open_base
from stack.flows.events import Emit
from stack.model.diff.parse import parse_diff
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome, Step
from stack.model.mail.mail import parse_mail
from stack.model.project.settings import SourceKind
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.repo.replay import Item, replay
from stack.store.project import Line, Project


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """The first patches of a line, up to and with `name`; None is the base without any."""

    name: str | None
    commit: str
    tree: str
    member: Member | None = None


class Replayed(msgspec.Struct, kw_only=True):
    """A replay: its objects, the base and what each patch gave; `prefixes` begins with the base."""

    odb: ObjectStore
    git: Git
    base: str
    source: SourceKind
    steps: list[Step]
    prefixes: list[Prefix]


def items(line: Line, members: Sequence[Member], project: Project) -> list[Item]:
    """The parsed patches of a line; `BadPatch` names file and line of the first that is damaged."""
    found = []
    for member in members:
        name = project.shown(line.patch_path(member.name))
        mail = parse_mail(line.files[member.name], name)
        files = parse_diff(mail.diff, name, first=mail.diff_line)
        found.append(Item(name=member.name, mail=mail, files=files))
    return found


@contextmanager
def replayed(
    project: Project, line: Line, members: Sequence[Member], emit: Emit, *,
    source: SourceKind | None = None, strict: bool = True,
) -> Iterator[Replayed]:
    """Replay `members` on the line's pin.

    Raises `Conflict` where a patch does not apply, unless `strict` is false; its `data` holds the
    steps for `--json`.
    """
    parsed = items(line, members, project)
    base = open_base(project, line.series, emit, source=source)
    with ObjectStore(base.git) as odb:
        steps = replay(odb, base.commit, parsed)
        if strict:
            refuse_conflict(project, line, steps)
        prefixes = [Prefix(name=None, commit=base.commit, tree=base.tree)]
        for member, step in zip(members, steps, strict=True):
            if step.commit and step.tree:
                prefixes.append(
                    Prefix(name=step.name, commit=step.commit, tree=step.tree, member=member)
                )
        yield Replayed(
            odb=odb, git=base.git, base=base.commit, source=base.source, steps=steps,
            prefixes=prefixes,
        )


class ConflictIn(Conflict):
    """A conflict with the steps up to it."""

    def __init__(self, error: StackError, data: dict[str, object]) -> None:
        super().__init__(error.message, context=error.context, hint=error.hint)
        self.data = data


def refuse_conflict(project: Project, line: Line, steps: Sequence[Step]) -> None:
    """Raise `Conflict` naming patch, file, hunk and what stands there instead."""
    for step in steps:
        if step.outcome is Outcome.CONFLICT:
            path = project.shown(line.patch_path(step.name))
            error = Conflict(
                f"{path}:{step.clashes[0].patch_line}: patch `{step.name}` does not apply "
                f"on {line.id}",
                context=[text for clash in step.clashes for text in clash.describe()],
                hint="nothing was changed; correct the patch file, or leave it out with "
                f"--without {step.name}",
            )
            raise ConflictIn(error, {"line": line.id, "patches": patch_rows(line, steps)})


def patch_rows(line: Line, steps: Sequence[Step]) -> list[dict[str, object]]:
    """`patches` of the `--json` document: name, state, outcome and ids of each patch."""
    rows: list[dict[str, object]] = []
    for step in steps:
        member = line.series.member(step.name)
        rows.append(
            {
                "name": step.name, "state": member.state, "kind": member.kind,
                "outcome": step.outcome.value, "commit": step.commit, "tree": step.tree,
                "offsets": list(step.offsets), "paths": list(step.paths),
                "clashes": [msgspec.to_builtins(clash) for clash in step.clashes],
            }
        )
    return rows
