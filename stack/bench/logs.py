"""Reads logs of engines from disk: outcome class, cause, and the numbers in them, in one pass."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from stack.model.ending import Ending
from stack.model.engine_log import PATTERNS, EngineFacts, read_line
from stack.model.findings import Diagnosis
from stack.model.scan import BLOCK, Scanner
from stack.model.signatures import Catalogue, Classifier

_LONGEST_LINE = 4 * BLOCK


class LogReport(msgspec.Struct, frozen=True, kw_only=True):
    """One log: how the run ended, and what it said about itself."""

    diagnosis: Diagnosis
    facts: EngineFacts


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
    scanner = Scanner(signatures.needles(PATTERNS))
    classifier = Classifier(signatures)
    facts = EngineFacts()
    for candidate in scanner.scan(pieces):
        classifier.line(candidate)
        scanner.follow = classifier.wants_all
        for index in candidate.patterns:
            reader = index - len(signatures.signatures)
            if 0 <= reader < len(PATTERNS):
                read_line(facts, reader, candidate.number, candidate.line)
    ending = Ending.of(exit_code, signal, timed_out=timed_out, stalled=stalled, result=result)
    diagnosis = classifier.finish(ending, lines=scanner.lines, last=scanner.last)
    return LogReport(diagnosis=diagnosis, facts=facts)
