"""New commits on top of a line's become patches of it: the last step of every import."""

from __future__ import annotations

from collections.abc import Sequence

from stack.flows.transaction import Change, commit, line_files
from stack.model.line import edit
from stack.model.line.line import Member, Series
from stack.repo.client import Git
from stack.repo.format import format_commits
from stack.repo.odb import ObjectStore
from stack.store.project import SERIES, Project


def enter(
    project: Project, odb: ObjectStore, git: Git, series: Series, start: str, end: str,
    members: Sequence[Member], command: tuple[str, ...],
) -> None:
    """Add the commits `start..end` behind the patches of a line, each as the member beside it.

    A line without a folder begins. The caller holds the project's lock.
    """
    odb.write()
    texts = format_commits(git, start, end, context=series.context)
    files = {
        f"{member.name}.patch": text for member, text in zip(members, texts, strict=True)
    }
    held = line_files(project.paths.line(series.upstream, series.pin.label)) or {}
    toml = held.get(SERIES) or edit.new_series(series.upstream, series.pin, context=series.context)
    toml = edit.set_members(toml, [*series.patch, *members])
    change = Change(
        upstream=series.upstream, label=series.pin.label, files={**held, **files, SERIES: toml},
    )
    commit(project, odb, change, command, f"imported {len(members)} patches into {series.id}")

