"""Results out of tables: CSV, and pipe tables of Markdown as people paste them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stack.model.exchange.evidence import Result

RULE = re.compile(r"^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$")
_RUN = ("run", "name", "config", "configuration", "experiment", "bench", "patch")
_FIELDS = {
    "output tok/s": "output_rate", "output tokens/s": "output_rate", "tok/s": "output_rate",
    "output rate": "output_rate", "total tok/s": "total_rate", "total tokens/s": "total_rate",
    "total rate": "total_rate", "requests/s": "request_rate", "request rate": "request_rate",
    "latency": "latency", "ttft ms": "first_token_ms", "first token ms": "first_token_ms",
    "prompt": "prompt", "input": "prompt", "input len": "prompt", "output": "output",
    "output len": "output", "verdict": "verdict", "notes": "note", "note": "note",
    "outcome": "outcome", "cause": "cause", "against": "against", "log": "log",
}
_COUNTS = ("prompt", "output")
_TEXTS = ("verdict", "note", "outcome", "cause", "against", "log")
_NUMBER = re.compile(r"^[0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")


def csv_results(text: str) -> list[Result]:
    """The rows of a CSV document with a header; a comment line begins with `#`."""
    lines = [line for line in io.StringIO(text) if not line.startswith("#")]
    rows = [row for row in csv.reader(lines) if any(cell.strip() for cell in row)]
    return list(_rows(rows[0], rows[1:])) if rows else []


def markdown_results(text: str) -> list[Result]:
    """The rows of every pipe table with a run and a rate; a row may stand on several lines."""
    found: list[Result] = []
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if at and RULE.match(line) and "|" in lines[at - 1]:
            columns = _cells(lines[at - 1])
            found += _rows(columns, list(_body(lines[at + 1 :], len(columns))))
    return found


def _body(lines: Sequence[str], width: int) -> Iterator[list[str]]:
    held = ""
    for line in lines:
        if "|" not in line:
            return
        joined = f"{held} {line.strip()}" if held else line.strip()
        cells = _cells(joined)
        if len(cells) < width:
            held = joined
            continue
        held = ""
        yield cells[:width]


def _cells(line: str) -> list[str]:
    """The cells of a row; an escaped pipe is text, and so are other escaped signs."""
    cut = re.split(r"(?<!\\)\|", line.strip().removeprefix("|"))
    if not cut[-1].strip():
        cut.pop()
    return [re.sub(r"\\([\\|<*_`])", r"\1", cell).strip().strip("`") for cell in cut]


def _rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Result]:
    heads = [re.sub(r"[\s_-]+", " ", column).strip().lower() for column in columns]
    run = next((at for at, head in enumerate(heads) if head in _RUN), None)
    rated = any(_FIELDS.get(head, "").endswith("rate") for head in heads)
    if run is None or not rated:
        return
    for row in rows:
        if len(row) <= run or not row[run]:
            continue
        said: dict[str, Any] = {}
        knobs: dict[str, str] = {}
        for head, column, cell in zip(heads, columns, row, strict=False):
            if cell in ("", "-"):
                continue
            if head == "prompt/output":
                said |= _lengths(cell)
            elif head in _FIELDS:
                said |= _field(_FIELDS[head], cell)
            elif re.fullmatch(r"[A-Z][A-Z0-9_]+", column.strip()):
                knobs[column.strip()] = cell
        yield Result(run=row[run], knobs=knobs, **said)


def _lengths(cell: str) -> Mapping[str, int]:
    match = re.match(r"(\d+)\s*/\s*(\d+)", cell)
    return {"prompt": int(match[1]), "output": int(match[2])} if match else {}


def _field(field: str, cell: str) -> Mapping[str, Any]:
    if field in _TEXTS:
        return {field: cell}
    match = _NUMBER.match(cell)
    if match is None:
        return {"note": cell}
    value = float(match[0].replace(",", ""))
    if field in _COUNTS:
        return {field: int(value)}
    return {field: value} if value > 0 else {}
