"""`diagnose`: how runs ended, why, and what their logs say about speed, memory and time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stack.bench import logs
from stack.errors import SystemFailure, UsageError
from stack.flows.measure.signatures import catalogue
from stack.store.project import Project

OK = "ok"


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one log under a title; the columns in `right` hold numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def right(self) -> tuple[str, ...]:
        return self.columns[1:]


def diagnose(
    project: Project | None, paths: Sequence[Path], *, layers: int | None = None
) -> list[dict[str, Any]]:
    """Read logs of any size; one document a log, as `logs.document` describes it.

    `layers` are the model's layers with experts, for the time of a token. The signatures are ours
    and the project's. Raises `UsageError` for a path that is no file, before anything is read.
    """
    for path in paths:
        _check(path)
    signatures = catalogue(project)
    return [
        logs.document(path, logs.read_log(logs.blocks(path), signatures), layers=layers)
        for path in paths
    ]


def _check(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a log", hint=f"stack diagnose {path}/*.log")
    if not path.exists():
        raise UsageError(f"{path}: no such file", hint="stack diagnose LOG...")
    if not os.access(path, os.R_OK):
        raise SystemFailure(f"{path}: may not be read", hint=f"ls -l {path}")


def facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a log says about its engine, as names and short texts."""
    figure = document.get
    if speed := figure("throughput"):
        yield "throughput", (
            f"{speed['output']:g} output tok/s, {speed['total']:g} total tok/s, "
            f"{speed['requests']:g} requests/s (line {speed['line']})"
        )
    yield from _joined(
        "tokens", _text("{:,} prompt", figure("prompt_tokens")),
        _text("{:,} output", figure("output_tokens")),
    )
    yield from _joined(
        "KV cache", _text("{:,} tokens", figure("kv_cache_tokens")),
        _text("{:g} GiB", figure("kv_cache_gib")),
        _text("{:g} requests of the longest context", figure("max_concurrency")),
    )
    yield from _joined(
        "graph capture", _text("{:g} s", figure("graph_seconds")),
        _text("{:g} GiB", figure("graph_gib")),
    )
    yield from _joined(
        "model", _text("{:g} GiB", figure("model_gib")),
        _text("{:g} s to load", figure("load_seconds")),
    )
    yield from _joined(
        "AOT compilation", figure("aot"), _text("hash {}", figure("aot_hash")),
        _text("{:g} s in torch.compile", figure("compile_seconds")),
    )
    yield from _joined("start", _text("{:g} s for the engine", figure("init_seconds")))
    yield from _joined("unknown switches", *figure("unknown_env", ()))


def _joined(name: str, *parts: str | None) -> Iterator[tuple[str, str]]:
    said = [printable(part) for part in parts if part]
    if said:
        yield name, ", ".join(said)


def _text(form: str, value: object) -> str | None:
    return None if value is None else form.format(value)


def tables(document: Mapping[str, Any]) -> Iterator[Table]:
    """The times of a log: summary, eager samples, printed steps, kernel waits, one token."""
    for key, title in (("timings", "decode timing"), ("eager_timings", "eager timing, a layer")):
        if found := document[key]:
            columns = ["label", "count", "total_ms", "avg_ms", "max_ms", "rank"]
            empty = [name for name in columns if all(row[name] is None for row in found)]
            columns = [name for name in columns if name not in empty]
            yield Table(
                title=title, columns=tuple(name.replace("_", " ") for name in columns),
                rows=tuple(tuple(_cell(row[name]) for name in columns) for row in found),
            )
    for key, title, first in (
        ("steps", "decode timing, each call", "label"), ("kernel_waits", "kernel waits", "kernel"),
    ):
        numbers = ("count", "median", "mean", "p95", "max")
        rows = [
            (printable(name), *(_cell(row[number]) for number in numbers))
            for name, row in document[key].items()
            if any(row[number] is not None for number in numbers)
        ]
        if rows:
            heads = (first, "count", *(f"{number} ms" for number in numbers[1:]))
            yield Table(title=title, columns=heads, rows=tuple(rows))
    if budget := document["budget"]:
        yield _budget(budget)


def _budget(budget: Mapping[str, Any]) -> Table:
    """Where the time of a token goes; parts may lie inside each other."""
    title = "one token"
    if budget["ms_per_token"] is not None:
        title += f", {budget['ms_per_token']:.1f} ms"
    if budget["layers"] is not None:
        title += f", {budget['layers']} layers with experts"
    rows = [
        (
            part["name"], _cell(part["per_layer_ms"]), _cell(part["per_token"]),
            _cell(part["ms"]), "" if part["share"] is None else f"{part['share']:.0%}",
        )
        for part in budget["parts"]
    ]
    if budget["rest_ms"] is not None:
        rows.append(("the forward pass besides", "", "", _cell(budget["rest_ms"]), ""))
    columns = ("part", "layer ms", "times", "ms", "share")
    return Table(title=title, columns=columns, rows=tuple(rows))


def _cell(value: float | str | None) -> str:
    """A number as it was printed, to a microsecond where it was computed."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return printable(str(value))


def printable(text: str) -> str:
    """A log's text for a terminal: what could move the cursor is escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
