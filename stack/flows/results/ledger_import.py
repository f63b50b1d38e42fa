"""`ledger import`: results of other labs into the evidence beside a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from stack.errors import UsageError
from stack.flows.events import Emit, Progress, Said
from stack.flows.results import ledger_evidence
from stack.flows.results.ledger_read import read
from stack.model.exchange.evidence import EVIDENCE_SCHEMA, Evidence, Result, merged
from stack.model.exchange.evidence_text import dump
from stack.store import atomic
from stack.store.project import Line, Project


class Lab(msgspec.Struct, frozen=True, kw_only=True):
    """Who measured what, where; see `Evidence`."""

    by: str
    ours: bool = False
    machine: str | None = None
    model: str | None = None
    engine: str | None = None


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Where the results went; `fresh` are those that were not there before."""

    path: Path
    evidence: Evidence
    fresh: tuple[Result, ...]
    known: int


def import_(
    project: Project, line: Line, paths: Sequence[Path], lab: Lab, emit: Emit, *,
    dry_run: bool = False,
) -> Imported:
    """Read every file, then write the lab's evidence in one go; what stands there is not repeated.

    Raises `UsageError` for a path that is no file or holds no result, before anything is written.
    """
    found: list[Result] = []
    for at, path in enumerate(paths):
        emit(Progress(label="reading", done=at, total=len(paths), detail=path.name))
        if not path.is_file():
            raise UsageError(f"{path}: no such file", hint="stack ledger import PATH...")
        these = read(project, path)
        if not these:
            raise UsageError(
                f"{path}: no result in it",
                hint="vLLM's bench JSON, logs, or CSV and Markdown tables with a run and a rate",
            )
        emit(Said(f"{path.name}: {len(these)} results"))
        found += these
    place = ledger_evidence.place(line, lab.by, lab.model, lab.machine)
    if place.exists():
        held = ledger_evidence.read(project, place)
    else:
        held = Evidence(schema=EVIDENCE_SCHEMA, **msgspec.structs.asdict(lab))
    evidence, fresh = merged(held, found)
    if fresh and not dry_run:
        atomic.write_if_changed(place, dump(evidence))
    return Imported(path=place, evidence=evidence, fresh=fresh, known=len(found) - len(fresh))
