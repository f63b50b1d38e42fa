"""`ledger out`: what was measured here, in forms that others read."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from stack.errors import StateError, UsageError
from stack.flows.events import Emit, Said
from stack.model.exchange.localmaxxing import localmaxxing
from stack.model.exchange.out import COLUMNS, cells, pytorch_records
from stack.model.exchange.samples import Sample, samples
from stack.model.line.line import near
from stack.model.project.settings import Profile
from stack.report import markdown, sheet
from stack.store.ledger import Ledger
from stack.store.project import Project


def collect(
    project: Project, profile_name: str | None, benches: Sequence[str], emit: Emit
) -> list[Sample]:
    """The samples of a profile. Raises `StateError` where the ledger holds none."""
    name, _ = project.profile(profile_name)

    def warn(text: str) -> None:
        emit(Said(text, warning=True))

    ledger = Ledger(project.paths.ledger)
    machines = {machine.id: machine for machine in ledger.machines(warn)}
    trials = [trial for trial in ledger.trials(warn) if trial.profile == name]
    found = samples(trials, machines)
    known = {sample.bench for sample in found}
    for bench in benches:
        if bench not in known:
            hint = near(bench, sorted(known), "stack ledger out")
            raise UsageError(f"the ledger holds no timed trial of bench `{bench}`", hint=hint)
    if not found:
        raise StateError(
            f"the ledger holds no timed trial for profile `{name}`",
            hint=f"stack verify --profile {name}",
        )
    return [sample for sample in found if not benches or sample.bench in benches]


def vllm(found: Sequence[Sample]) -> str:
    """PyTorch benchmark records, one JSON array."""
    records = [record for sample in found for record in pytorch_records(sample)]
    return msgspec.json.format(msgspec.json.encode(records), indent=1).decode() + "\n"


def payloads(
    project: Project, found: Sequence[Sample], *, model: str | None, quantization: str | None,
    emit: Emit,
) -> str:
    """LocalMaxxing payloads, one a line: each is the body of a POST to /api/benchmarks.

    Raises `UsageError` without the two things that a ledger does not know.
    """
    if not model or not quantization:
        raise UsageError(
            "a LocalMaxxing payload names the model and its quantization",
            hint="--model OWNER/NAME --quantization int4",
        )
    lines = []
    for sample in found:
        profile = project.settings.profile.get(sample.profile, Profile())
        payload = localmaxxing(
            sample, model=model, quantization=quantization, memory=profile.hardware.memory,
            version=_version(profile),
        )
        if payload is None:
            text = f"{sample.run}: no output rate in its logs, which LocalMaxxing asks for"
            emit(Said(text, warning=True))
            continue
        lines.append(msgspec.json.encode(payload).decode() + "\n")
    return "".join(lines)


def _version(profile: Profile) -> str | None:
    for text in profile.packages:
        if match := re.match(r"vllm(?:-cpu)?\s*==\s*([\w.+]+)", text):
            return match[1]
    return None


def to_csv(found: Sequence[Sample]) -> str:
    return sheet.table(COLUMNS, map(cells, found))


def to_markdown(found: Sequence[Sample]) -> str:
    return markdown.table(COLUMNS, [cells(sample) for sample in found], right=COLUMNS[1:9])
