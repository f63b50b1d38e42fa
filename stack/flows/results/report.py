"""The last verdicts of a project as rows, for the table, the JSON document and the reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stack.errors import StateError
from stack.flows.events import Emit, Said
from stack.flows.measure.staleness import machine_now, why_stale
from stack.model.measure.trial import Machine, Trial, VerdictRecord
from stack.report import markdown, sheet
from stack.store.ledger import Ledger
from stack.store.project import Project

COLUMNS = ("patch", "state", "outcome", "verdict", "ratio", "pairs", "note")
RIGHT = ("ratio", "pairs")
# Of several benches of one patch, the verdict that says most comes first.
_TELLING = (
    "BROKEN", "STALLED", "SLOWER", "UNBLOCKED", "FASTER", "UNCLEAR", "SAME", "BLOCKED",
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The last verdict of each patch and bench in the order of the lines, and their trials.

    `stale` says of a verdict, by its id, why it may not hold any more.
    """

    profile: str
    verdicts: tuple[VerdictRecord, ...]
    trials: Mapping[str, Trial]
    machines: Mapping[str, Machine]
    stale: Mapping[str, str] = {}


def report(project: Project, profile_name: str | None, emit: Emit) -> Report:
    """Read the ledger. Raises `StateError` where it holds no verdict of the profile."""
    name, profile = project.profile(profile_name)
    ledger = Ledger(project.paths.ledger)

    def warn(text: str) -> None:
        emit(Said(text, warning=True))

    last: dict[tuple[str, ...], VerdictRecord] = {}
    for record in ledger.verdicts(warn):
        if record.profile == name:
            last[record.line, record.patch, record.bench, record.mode] = record
    order = {
        (line.id, member.name): at
        for line in (project.find(text) for text in profile.lines)
        for at, member in enumerate(line.series.patch)
    }
    found = [record for record in last.values() if (record.line, record.patch) in order]
    if not found:
        raise StateError(
            f"the ledger holds no verdict for profile `{name}`",
            hint=f"stack verify --profile {name}",
        )
    found.sort(key=lambda record: (record.line, order[record.line, record.patch]))
    wanted = {trial for record in found for trial in record.trials}
    machine = machine_now(project, name, profile)
    checked = [(record.id, why_stale(project, profile, record, machine)) for record in found]
    return Report(
        profile=name, verdicts=tuple(found),
        trials={trial.id: trial for trial in ledger.trials(warn) if trial.id in wanted},
        machines={machine.id: machine for machine in ledger.machines(warn)},
        stale={one: why for one, why in checked if why},
    )


def rows(
    verdicts: Sequence[VerdictRecord], stale: Mapping[str, str] | None = None
) -> list[tuple[str, ...]]:
    """The cells under `COLUMNS`; a patch with several benches has a row for each."""
    names = [record.patch for record in verdicts]
    doubts = {one: f"; may not hold any more: {why}" for one, why in (stale or {}).items()}
    return [
        (
            record.patch, record.state, record.outcome, record.verdict, ratio(record),
            str(record.pairs or "-"),
            (f"{asked(record)}: " if names.count(record.patch) > 1 else "") + record.note
            + doubts.get(record.id, ""),
        )
        for record in verdicts
    ]


def asked(record: VerdictRecord) -> str:
    """The bench, and the mode where it is another than the usual one."""
    return record.bench if record.mode == "marginal" else f"{record.bench} ({record.mode})"


def ratio(record: VerdictRecord) -> str:
    """After to before with its bounds, `1.021 [1.012, 1.030]`, or `-`."""
    if record.ratio is None:
        return "-"
    if record.low is None or record.high is None:
        return f"{record.ratio:.3f}"
    return f"{record.ratio:.3f} [{record.low:.3f}, {record.high:.3f}]"


def documents(
    verdicts: Sequence[VerdictRecord], trials: Mapping[str, Trial],
    stale: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """`patches` of the JSON document: one entry a patch, all of its benches in `benches`."""
    by_patch: dict[tuple[str, str], list[VerdictRecord]] = {}
    for record in verdicts:
        by_patch.setdefault((record.line, record.patch), []).append(record)
    found = []
    for records in by_patch.values():
        benches = [
            {**_document(record, trials), "stale": (stale or {}).get(record.id)}
            for record in records
        ]
        first = min(
            zip(records, benches, strict=True),
            key=lambda pair: (pair[0].holds is not False, _TELLING.index(pair[0].verdict)),
        )[1]
        found.append({**first, "benches": benches})
    return found


def _document(record: VerdictRecord, trials: Mapping[str, Trial]) -> dict[str, Any]:
    bounds = None if record.low is None else [record.low, record.high]
    return {
        "name": record.patch, "line": record.line, "state": record.state,
        "outcome": record.outcome, "bench": record.bench, "verdict": record.verdict,
        "claim": record.claim, "holds": record.holds, "ratio": record.ratio,
        "interval": bounds, "level": record.level, "pairs": record.pairs, "unit": record.unit,
        "p": record.p, "detectable": record.detectable, "calibrated": record.calibrated,
        "before": {"prefix": record.before, "value": record.before_value},
        "after": {"prefix": record.after, "value": record.after_value},
        "method": record.method, "mode": record.mode, "note": record.note, "cause": record.cause,
        "machine": record.machine, "time": record.time,
        "trials": [msgspec.to_builtins(trials[one]) for one in record.trials if one in trials],
    }


def to_markdown(found: Report) -> str:
    """The table, and a line that says where and when it was measured."""
    times = sorted(record.time[:10] for record in found.verdicts)
    when = times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}"
    machines = [_machine(found.machines.get(record.machine)) for record in found.verdicts]
    where = "; ".join(dict.fromkeys(machines))
    table = markdown.table(COLUMNS, rows(found.verdicts, found.stale), right=RIGHT)
    return f"{table}\nMeasured by `stack verify --profile {found.profile}`, {when}, on {where}.\n"


def _machine(machine: Machine | None) -> str:
    if machine is None:
        return "a machine that the ledger does not describe"
    facts = machine.facts
    if several := facts.get("machines"):
        return f"{len(several)} machines"
    cards = ", ".join(facts.get("gpus", ()))
    shown = f"{facts.get('cpu')} with {facts.get('cpus')} processors"
    return f"{shown}, {cards}" if cards else shown


def to_csv(found: Report) -> str:
    """One line a verdict, with the numbers unrounded."""
    names = [name for name in VerdictRecord.__struct_fields__ if name != "trials"]
    rows = (
        [*(getattr(record, name) for name in names), " ".join(record.trials)]
        for record in found.verdicts
    )
    return sheet.table([*names, "trials"], rows)
