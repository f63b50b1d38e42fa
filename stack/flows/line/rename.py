"""Give a patch another name: file, entry and receipt, and the needs of other lines are named."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from stack.errors import ConfigError, UsageError
from stack.flows.events import Emit, Said
from stack.flows.line import restack_state
from stack.flows.line.refresh import check_name
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
from stack.model.line.records import Receipt
from stack.model.measure.decision import renamed
from stack.repo.odb import ObjectStore
from stack.store.project import SERIES, Line, Project


def rename(
    project: Project, line: Line, old: str, new: str, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> None:
    """Rename a patch of a line; the workspace's files stay as they are, edited or not."""
    check_name(new)
    line.series.member(old)
    if new in {member.name for member in line.series.patch} or line.patch_path(new).exists():
        raise UsageError(f"{line.id} has a patch `{new}` already", hint="stack list")
    if dry_run:
        return
    with writing(project, f"rename {line.id}", emit):
        restack_state.refuse_stopped(project)
        line = project.line(line.series.upstream, line.series.pin.label)
        line.series.member(old)
        upstream, label = line.series.upstream, line.series.pin.label
        receipt = read_receipt(project, upstream, label)
        refuse_editing(receipt)
        files = dict(line_files(line.folder) or {})
        files[f"{new}.patch"] = files.pop(f"{old}.patch")
        if (evidence := files.pop(f"evidence/{old}.json", None)) is not None:
            try:
                files[f"evidence/{new}.json"] = renamed(evidence, new)
            except msgspec.MsgspecError as wrong:
                where = project.shown(line.folder / f"evidence/{old}.json")
                raise ConfigError(f"{where}: {wrong}", hint="git restores the file") from None
        files[SERIES] = edit.rename_member(files[SERIES], old, new)
        change = Change(
            upstream=upstream, label=label, files=files,
            receipt=UNSET if receipt is None else _renamed(line, receipt, old, new),
        )
        workspace = workspace_of(project, upstream, label)
        with ObjectStore(workspace.repository) as odb:
            commit(project, odb, change, command, f"rename {old} to {new} in {line.id}")
    for user in _users(project, line, old):
        emit(Said(f"{user} needs `{line.series.upstream}:{old}`: change its `needs`", warning=True))


def _renamed(line: Line, receipt: Receipt, old: str, new: str) -> Receipt:
    """The receipt with the new name; a stale one stays stale."""
    if old not in receipt.selected:
        return receipt

    def now(name: str) -> str:
        return new if name == old else name

    selected = tuple(map(now, receipt.selected))
    digest = receipt.digest
    if set(receipt.selected) <= line.files.keys() and line.digest(receipt.selected) == digest:
        files: Mapping[str, bytes] = {now(name): data for name, data in line.files.items()}
        digest = msgspec.structs.replace(line, files=files).digest(selected)
    steps = tuple(
        msgspec.structs.replace(step, name=now(step.name)) for step in receipt.steps
    )
    return msgspec.structs.replace(receipt, selected=selected, steps=steps, digest=digest)


def _users(project: Project, line: Line, name: str) -> list[str]:
    """The patches of all lines that need a patch by its name."""
    wanted = f"{line.series.upstream}:{name}"
    found = []
    for upstream in project.settings.upstream:
        for label in project.labels(upstream):
            series = project.series(upstream, label)
            found += [f"{series.id}:{m.name}" for m in series.patch if wanted in m.needs]
    return found
