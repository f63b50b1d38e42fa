"""Promote or park a patch on recorded verdicts, and keep them as evidence beside its line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import msgspec

from stack.errors import ConfigError, SchemaTooNew, StateError
from stack.flows.events import Emit, Said
from stack.flows.line import restack_state
from stack.flows.measure.staleness import machine_now, why_stale
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
from stack.model.line.line import Reason
from stack.model.mail.mail import parse_mail
from stack.model.measure.decision import (
    DECISION_SCHEMA,
    Action,
    Decision,
    Evidence,
    missing,
    written,
)
from stack.model.measure.trial import VerdictRecord
from stack.repo.odb import ObjectStore
from stack.store.ledger import Ledger
from stack.store.project import SERIES, Line, Project
from stack.store.stamps import now


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided: the state before, the file of the evidence, what it says."""

    line: str
    patch: str
    before: str
    file: str
    decision: Decision


def decide(
    project: Project, line: Line, name: str, action: Action, emit: Emit, *,
    profile_name: str | None = None, reason: Reason | None = None, note: str | None = None,
    force: bool = False, dry_run: bool = False, command: tuple[str, ...] = (),
) -> Decided:
    """Put a patch into its new state, and what the ledger says of it into `evidence/NAME.json`.

    Raises `StateError` where no verdict bears the decision out, unless `force`, which the evidence
    then says. The workspace stays as it is until `stack apply`.
    """
    if dry_run:
        return _decide(project, line, name, action, emit, profile_name, reason, note, force)[0]
    with writing(project, f"{action} {name}", emit):
        restack_state.refuse_stopped(project)
        line = project.line(line.series.upstream, line.series.pin.label)
        decided, files = _decide(
            project, line, name, action, emit, profile_name, reason, note, force
        )
        upstream, label = line.series.upstream, line.series.pin.label
        refuse_editing(read_receipt(project, upstream, label))
        workspace = workspace_of(project, upstream, label)
        with ObjectStore(workspace.repository) as odb:
            change = Change(upstream=upstream, label=label, files=files)
            commit(project, odb, change, command, f"{action} {name} of {line.id}")
    return decided


def _decide(
    project: Project, line: Line, name: str, action: Action, emit: Emit, profile_name: str | None,
    reason: Reason | None, note: str | None, force: bool,
) -> tuple[Decided, dict[str, bytes]]:
    member = line.series.member(name)
    if action == "parked" and member.state == "parked" and member.reason == reason:
        raise StateError(f"patch `{name}` is parked as {reason} already", hint=f"stack show {name}")
    verdicts, stale = _measured(project, line, name, profile_name, emit)
    lacking = missing(action, reason, verdicts, stale)
    if lacking is not None and not force:
        raise StateError(
            f"{name} of {line.id}: {lacking}",
            context=[
                f"{one.bench} ({one.mode}): {one.verdict}, {one.time[:10]}"
                + (f"; {stale[one.id]}" if one.id in stale else "") for one in verdicts
            ],
            hint=f"stack verify {name}{_flag(profile_name)}, or --force, which the evidence says",
        )
    ids = {one.machine for one in verdicts}
    decision = Decision(
        action=action, time=now(), line=line.id, reason=reason, note=note,
        diff=hashlib.sha256(parse_mail(line.files[name], f"{name}.patch").diff).hexdigest(),
        forced=lacking is not None, missing=lacking, verdicts=tuple(verdicts), stale=stale,
        machines={
            one.id: one.facts
            for one in Ledger(project.paths.ledger).machines(_warn(emit)) if one.id in ids
        },
    )
    files = dict(line_files(line.folder) or {})
    file = f"evidence/{name}.json"
    kept = _read(project, line, file, files.get(file), name)
    evidence = msgspec.structs.replace(kept, decisions=(*kept.decisions, decision))
    files[file] = written(evidence)
    state = "active" if action == "promoted" else "parked"
    files[SERIES] = edit.set_state(files[SERIES], name, state, reason)
    shown = project.shown(line.folder / file)
    return Decided(
        line=line.id, patch=name, before=member.state, file=shown, decision=decision
    ), files


def _measured(
    project: Project, line: Line, name: str, profile_name: str | None, emit: Emit
) -> tuple[list[VerdictRecord], dict[str, str]]:
    """The last verdicts, and why some may not hold; none in a project without profiles."""
    if profile_name is None and not project.settings.profile:
        return [], {}
    profile_id, profile = project.profile(profile_name)
    verdicts = last_verdicts(project, profile_id, line.id, name, emit)
    machine = machine_now(project, profile_id, profile)
    checked = [
        (one.id, why_stale(project, profile, one, machine, strict=True)) for one in verdicts
    ]
    return verdicts, {one: why for one, why in checked if why}


def _flag(profile: str | None) -> str:
    return f" --profile {profile}" if profile else ""


def last_verdicts(
    project: Project, profile: str, line: str, patch: str, emit: Emit
) -> list[VerdictRecord]:
    """The last verdict of a patch in each bench and mode, without those that were corrected."""
    last: dict[tuple[str, str], VerdictRecord] = {}
    for one in Ledger(project.paths.ledger).verdicts(_warn(emit)):
        if (one.profile, one.line, one.patch) == (profile, line, patch) and one.mode != "screen":
            last[one.bench, one.mode] = one
    return list(last.values())


def _read(project: Project, line: Line, file: str, data: bytes | None, name: str) -> Evidence:
    if data is None:
        return Evidence(patch=name)
    where = project.shown(line.folder / file)
    try:
        found = msgspec.json.decode(data, type=Evidence)
    except msgspec.MsgspecError as wrong:
        raise ConfigError(f"{where}: {wrong}", hint="git restores the file") from None
    if found.schema > DECISION_SCHEMA:
        raise SchemaTooNew(f"{where}: schema {found.schema} is newer than {DECISION_SCHEMA}")
    return found


def _warn(emit: Emit) -> Callable[[str], None]:
    return lambda text: emit(Said(text, warning=True))
