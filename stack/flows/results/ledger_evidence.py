"""The evidence beside the lines: files of results that other labs measured, as history."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stack.model import toml
from stack.model.exchange.evidence import EVIDENCE_SCHEMA, FOLDER, Evidence
from stack.model.project.settings import Profile
from stack.report import markdown
from stack.store.project import Line, Project


def of_line(project: Project, line: Line) -> Iterator[tuple[Path, Evidence]]:
    """The files of a line's evidence by name. Raises `ConfigError` with file and line."""
    for path in sorted((line.folder / FOLDER).glob("*.toml")):
        yield path, read(project, path)


def of_profile(project: Project, profile: Profile) -> list[tuple[Line, Path, Evidence]]:
    """The evidence of every line of a profile."""
    lines = [project.find(text) for text in profile.lines]
    return [(line, path, found) for line in lines for path, found in of_line(project, line)]


def read(project: Project, path: Path) -> Evidence:
    """One file of evidence; raises `ConfigError` with file and line."""
    return toml.load(path.read_bytes(), Evidence, project.shown(path), schema=EVIDENCE_SCHEMA)


def place(line: Line, by: str, model: str | None, machine: str | None) -> Path:
    """The file of a lab's results of one model on one machine."""
    words = "-".join(part for part in (by, model, machine) if part)
    name = re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-.")[:80] or "results"
    return line.folder / FOLDER / f"{name}.toml"


def rows(found: Sequence[Evidence]) -> list[tuple[str, ...]]:
    """The cells of results under `COLUMNS`, numbers as they were given."""
    return [
        (
            result.run,
            f"{result.prompt or '-'}/{result.output or '-'}",
            number(result.output_rate), number(result.total_rate),
            result.verdict or "-",
            result.note or "" if result.outcome == "ok"
            else f"{result.outcome}: {result.cause}" if result.cause else result.outcome,
        )
        for evidence in found for result in evidence.result
    ]


def documents(found: Sequence[tuple[Line, Path, Evidence]], project: Project) -> list[Any]:
    """`history` of a JSON document: one entry a file, never among the patches that were tested."""
    return [
        {"line": line.id, "path": project.shown(path), **msgspec.to_builtins(evidence)}
        for line, path, evidence in found
    ]


def facts(evidence: Evidence) -> list[str]:
    """The numbers that are no rates, one a line."""
    return [
        f"{fact.what}: {fact.value!r}{f' {fact.unit}' if fact.unit else ''}"
        f"{f' ({fact.note})' if fact.note else ''}"
        for fact in evidence.fact
    ]


def to_markdown(found: Sequence[tuple[Line, Path, Evidence]]) -> str:
    """A table a lab, each under whose it is."""
    parts = []
    for line, _, evidence in found:
        text = title(evidence)
        parts.append(f"\n{line.id}, {text}. No verdict of ours rests on it.\n\n")
        parts.append(markdown.table(COLUMNS, rows([evidence]), right=RIGHT))
        if evidence.fact:
            parts.append("\n" + "".join(f"- {fact}\n" for fact in facts(evidence)))
    return "".join(parts)


COLUMNS = ("run", "prompt/output", "output tok/s", "total tok/s", "said", "note")
RIGHT = ("prompt/output", "output tok/s", "total tok/s")


def number(value: float | None) -> str:
    """A rate with all its digits, but two decimals at least, or `-`."""
    if value is None:
        return "-"
    whole, _, decimals = f"{value:.9f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


def title(evidence: Evidence) -> str:
    """Whose results these are, in one line."""
    where = ", ".join(part for part in (evidence.machine, evidence.model, evidence.engine) if part)
    who = f"{evidence.by}, with these patches" if evidence.ours else evidence.by
    return f"measured by {who}: {where or 'on a machine that is not told'}"
