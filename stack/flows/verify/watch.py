"""`watch`: what a verify or screen does now, from its lock, its ledger and its logs."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stack.errors import StateError
from stack.flows.measure.trials import ANNOUNCED, Announced
from stack.flows.verify.watch_page import Page, Rung
from stack.model.measure.screen import candidates
from stack.model.measure.screen_setting import label
from stack.model.measure.trial import Trial, VerdictRecord
from stack.store import lock
from stack.store.ledger import Ledger
from stack.store.project import Project

LOG_LINES = 12
_TAIL = 16 << 10
_LAST = 5
_HOLDER = re.compile(r"process (\d+): (stack (\S+).*? of (\S+))$")
_SCREEN = re.compile(r"stack screen (\S+) of ")


def look(project: Project) -> Page:
    """One look. Raises `StateError` where nobody measures in this project now."""
    path = project.paths.state / "measuring.lock"
    holder = lock.holder(path)
    match = _HOLDER.match(holder or "")
    if match is None:
        raise StateError(
            "nobody measures in this project now", hint="stack verify, or stack report for the last"
        )
    process, what, profile = int(match[1]), match[2], match[4]
    ledger = Ledger(project.paths.ledger)
    mine = f"-{process}-"
    trials = [one for one in ledger.trials(lambda _: None) if mine in one.run]
    run = trials[-1].run if trials else None
    records = [one for one in ledger.verdicts(lambda _: None) if one.profile == profile]
    page = Page(
        what=what, process=process, rungs=tuple(_rungs(project, what, profile, records, mine)),
        last=tuple(map(_told, [one for one in trials if one.run == run][-_LAST:])),
    )
    current = _current(project, process, {trial.id for trial in trials})
    if current is None:
        return page
    folder, said = current
    began = datetime.strptime(folder.name.partition("-")[0], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    seconds = max(0.0, time.time() - began.timestamp())
    return msgspec.structs.replace(
        page, now=said.label, seconds=seconds, done=said.done, planned=said.planned,
        left=max(0.0, said.each * (said.planned - said.done + 1) - seconds),
        log=tuple(_end(folder / "log.txt")),
    )


def _rungs(
    project: Project, what: str, profile: str, records: Sequence[VerdictRecord], mine: str
) -> Iterator[Rung]:
    """The settings of a screen or the active patches of a profile's lines, in their order.

    Each with its verdicts of this run, else with the last one of before.
    """
    screen = _SCREEN.match(what)
    by_name: dict[str, list[VerdictRecord]] = {}
    earlier: dict[str, VerdictRecord] = {}
    for record in records:
        if record.line.startswith("screen/") != bool(screen):
            continue
        if screen and record.line != f"screen/{screen[1]}":
            continue
        if mine in record.run:
            by_name.setdefault(record.patch, []).append(record)
        else:
            earlier[record.patch] = record
    names: list[str] = []
    if screen:
        known = project.settings.screen.get(screen[1])
        names = [label(setting) for setting in candidates(known)] if known else []
    elif profile in project.settings.profile:
        lines = [project.find(text) for text in project.settings.profile[profile].lines]
        names = [member.name for line in lines for member in line.series.select()]
    for name in dict.fromkeys([*names, *by_name]):
        found = by_name.get(name)
        if not found:
            before = earlier.get(name)
            note = f"{before.verdict} {before.time[:10]}: {before.note}" if before else ""
            yield Rung(name=name, note=note)
            continue
        for one in found:
            mode = "" if one.mode in ("marginal", "screen") else f" ({one.mode})"
            yield Rung(name=name + mode, verdict=one.verdict, note=one.note)


def _current(
    project: Project, process: int, finished: set[str]
) -> tuple[Path, Announced] | None:
    """The folder of the trial that runs: announced by that process, and not in the ledger yet."""
    root = project.paths.logs / "verify"
    try:
        folders = sorted(root.glob(f"*-{process}-*"), key=lambda one: one.name, reverse=True)
    except OSError:
        return None
    for folder in folders[:1]:
        try:
            said = msgspec.json.decode((folder / ANNOUNCED).read_bytes(), type=Announced)
        except (OSError, msgspec.DecodeError):
            return None
        return None if folder.name in finished else (folder, said)
    return None


def _told(trial: Trial) -> str:
    what = trial.role if trial.pair is None else f"{trial.role} {trial.pair}"
    if trial.figures:
        end = f"{trial.figures.value:.4g} {trial.figures.unit}"
    else:
        end = f"{trial.outcome}: {trial.cause}" if trial.cause else trial.outcome
    return f"{trial.bench} {what} {trial.prefix}: {end}, {trial.seconds:.0f} s"


def _end(log: Path) -> Iterator[str]:
    """The last lines of a log as text that cannot move a cursor."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in [line for line in lines if line.strip()][-LOG_LINES:]:
        text = line.decode("utf-8", "replace").rpartition("\r")[2]
        yield "".join(c if c.isprintable() else " " for c in text)
