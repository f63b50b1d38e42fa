"""The results in one file, whatever it is: JSON of a benchmark, a table, a log."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from stack.bench import logs
from stack.errors import ConfigError
from stack.flows.measure.signatures import catalogue
from stack.model.exchange.documents import results as json_results
from stack.model.exchange.evidence import Result
from stack.model.exchange.table import RULE, csv_results, markdown_results
from stack.store.project import Project

_GENERIC = ("result", "results", "log", "throughput", "latency", "serve")
_SNIFF = 1 << 20
_LARGEST = 256 << 20


def read(project: Project, path: Path) -> list[Result]:
    """The results of one file, by what it holds: JSON, a table, else a log."""
    with path.open("rb") as file:
        head = file.read(_SNIFF)
    said = head.lstrip()[:1] in (b"{", b"[") and path.stat().st_size <= _LARGEST
    if said and (found := _json(path)) is not None:
        return found
    if path.suffix == ".csv":
        return csv_results(_text(path))
    lines = head.decode("utf-8", "replace").splitlines()
    tables = any("|" in line and RULE.match(line) for line in lines)
    if tables and (found := markdown_results(_text(path))):
        return found
    return [_log(project, path)]


def _name(path: Path) -> str:
    """What a run is called that does not say so itself: its file, or the folder of a `result`."""
    return path.parent.name or path.stem if path.stem in _GENERIC else path.stem


def _text(path: Path) -> str:
    return path.read_bytes()[:_LARGEST].decode("utf-8", "replace")


def _json(path: Path) -> list[Result] | None:
    """One document, or one a line; None where it is neither, as a log may begin so too."""
    data = path.read_bytes()
    try:
        return _checked(json_results(msgspec.json.decode(data), _name(path)), path)
    except msgspec.DecodeError:
        pass
    try:
        documents = [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    except msgspec.DecodeError:
        return None
    return _checked([one for said in documents for one in json_results(said, _name(path))], path)


def _checked(found: list[Result], path: Path) -> list[Result]:
    """The same, with the types of the document's values looked at."""
    try:
        return [msgspec.convert(msgspec.to_builtins(one), Result) for one in found]
    except msgspec.ValidationError as wrong:
        raise ConfigError(f"{path}: {wrong}") from None


def _log(project: Project, path: Path) -> Result:
    """How the run of a log ended; its lengths are those of a name like `x-p512n256-y.log`."""
    read_ = logs.read_log(logs.blocks(path), catalogue(project))
    speed = read_.facts.throughput[-1] if read_.facts.throughput else None
    match = re.search(r"(?:^|[^a-z0-9])p(\d+)n(\d+)(?:[^0-9]|$)", path.name)
    outcome, cause = read_.diagnosis.outcome, read_.diagnosis.cause
    return Result(
        run=_name(path), log=path.name, outcome=outcome, cause=cause,
        prompt=int(match[1]) if match else None, output=int(match[2]) if match else None,
        output_rate=speed.output if speed and speed.output > 0 else None,
        total_rate=speed.total if speed and speed.total > 0 else None,
        request_rate=speed.requests if speed and speed.requests > 0 else None,
    )
