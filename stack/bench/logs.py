"""Reads logs of engines from disk: outcome class, cause, and the numbers in them, in one pass."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stack.model.log.budget import token_budget
from stack.model.log.ending import Ending
from stack.model.log.engine import PATTERNS, EngineFacts, read_line
from stack.model.log.findings import Diagnosis
from stack.model.log.lines import clean
from stack.model.log.scan import BLOCK, Scanner, joined
from stack.model.log.signatures import Catalogue, Classifier
from stack.model.log.timing import PATTERNS as TIMING_PATTERNS
from stack.model.log.timing import Timings

_LONGEST_LINE = 4 * BLOCK
_PATTERNS = (*PATTERNS, *TIMING_PATTERNS)


class LogReport(NamedTuple):
    """One log: how the run ended, what it said about itself, and about time."""

    diagnosis: Diagnosis
    facts: EngineFacts
    timings: Timings


def catalogue(*extra: Mapping[str, Any]) -> Catalogue:
    """The signatures that we ship, then those of parsed TOML documents, which win by name.

    Raises ValueError when one of them is no signature.
    """
    return Catalogue.load(_shipped(), *extra)


@cache
def _shipped() -> dict[str, Any]:
    text = Path(__file__).with_name("signatures.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in pieces of about 1 MiB that end where a line ends.

    A line of more than 4 MiB is cut, so that memory stays bounded.
    """
    with path.open("rb", buffering=0) as file:
        rest = b""
        while piece := file.read(BLOCK):
            cut = piece.rfind(b"\n") + 1
            if cut:
                yield rest + piece[:cut]
                rest = piece[cut:]
            else:
                rest += piece
                if len(rest) > _LONGEST_LINE:
                    yield rest
                    rest = b""
        if rest:
            yield rest


def read_log(
    pieces: Iterable[bytes],
    signatures: Catalogue,
    *,
    exit_code: int | None = None,
    signal: int | None = None,
    timed_out: bool = False,
    stalled: bool = False,
    result: bool | None = None,
) -> LogReport:
    """Diagnose a log given in pieces of whole lines; the rest as in `signatures.classify`."""
    scanner = Scanner(signatures.needles(_PATTERNS))
    classifier = Classifier(signatures)
    facts, timings = EngineFacts(), Timings()

    def watched() -> Iterator[bytes]:
        for block in joined(pieces):
            yield timings.block(block)

    first, last = len(signatures.signatures), len(signatures.signatures) + len(PATTERNS)
    for candidate in scanner.scan(watched()):
        classifier.line(candidate)
        for index in candidate.patterns:
            if first <= index < last:
                read_line(facts, index - first, candidate.number, candidate.line)
        if timings.wants_all or any(
            last <= index < last + len(TIMING_PATTERNS) for index in candidate.patterns
        ):
            text = clean(candidate.line)
            timings.line(text.process, text.body)
        scanner.follow = classifier.wants_all or timings.wants_all
    ending = Ending.of(exit_code, signal, timed_out=timed_out, stalled=stalled, result=result)
    diagnosis = classifier.finish(ending, lines=scanner.lines, last=scanner.last)
    return LogReport(diagnosis, facts, timings)


def document(path: Path, report: LogReport, *, layers: int | None = None) -> dict[str, Any]:
    """What `diagnose --json` says of one log, as plain values; `layers` are those with experts.

    Times in seconds where a name says so, else in milliseconds; memory in GiB.
    """
    diagnosis, facts, timings = report
    waits = timings.all_waits()
    median = waits.median if waits else timings.prose.median
    last = facts.throughput[-1] if facts.throughput else None
    budget = token_budget(
        rows=timings.rows,
        steps=timings.steps(),
        waits=median,
        output_tokens_per_second=last.output if last else None,
        layers=layers,
    )
    figures = msgspec.to_builtins(facts)
    figures["throughput"] = last._asdict() if last else None
    return {
        "path": str(path),
        **msgspec.to_builtins(diagnosis),
        **figures,
        "timings": msgspec.to_builtins(timings.rows),
        "eager_timings": msgspec.to_builtins(timings.eager),
        "steps": msgspec.to_builtins(timings.steps()),
        "kernel_waits": msgspec.to_builtins({**timings.waits(), "all": waits or timings.prose}),
        "budget": msgspec.to_builtins(budget),
    }
