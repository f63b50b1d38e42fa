"""TOML documents into typed values; every error names file, line and key."""

from __future__ import annotations

import re
import tomllib
from typing import Any, TypeVar

import msgspec

from stack.errors import ConfigError, SchemaTooNew

T = TypeVar("T")


def load(data: bytes, kind: type[T], name: str, *, schema: int) -> T:
    """Decode a document of `schema` into `kind`; unknown keys are errors.

    Raises `ConfigError` beginning with `name:line`, `SchemaTooNew` for a newer document.
    """
    document = parse(data, name)
    found = document.get("schema")
    if not isinstance(found, int):
        raise ConfigError(
            f"{name}:1: no `schema` number", hint=f"begin it with `schema = {schema}`"
        )
    if found > schema:
        raise SchemaTooNew(
            f"{name}: schema {found} is newer than {schema}, the newest that this release reads",
            hint="upgrade stack",
        )
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as wrong:
        text, _, path = str(wrong).partition(" - at `$")
        path = path.rstrip("`").lstrip(".")
        unknown = re.search(r"unknown field `([^`]+)`", text)
        key = f"{path}.{unknown[1]}".lstrip(".") if unknown else path
        what = f"unknown key `{key}`" if unknown else f"`{key}`: {text}" if key else text
        raise ConfigError(
            f"{name}:{line_of(data, document, key)}: {what}",
            hint="the keys are described in ARCHITECTURE.md" if unknown else None,
        ) from None


def parse(data: bytes, name: str) -> dict[str, Any]:
    """Parse TOML; a syntax error names file and line."""
    try:
        return tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as wrong:
        line = data.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(f"{name}:{line}: not UTF-8") from None
    except tomllib.TOMLDecodeError as wrong:
        text = re.sub(r" \(at (line \d+, column \d+|end of document)\)", "", str(wrong))
        match = re.search(r"line (\d+)", str(wrong))
        line = int(match[1]) if match else data.count(b"\n") + 1
        raise ConfigError(f"{name}:{line}: {text}") from None


def line_of(data: bytes, document: dict[str, Any], path: str) -> int:
    """The line (from 1) of the key at `path` (`patch[2].kind`), as well as text tells."""
    wanted = re.findall(r"[^.\[\]]+|\[\d+\]", path.replace("[...]", ""))
    lines = data.decode("utf-8", "replace").splitlines()
    start, stop = 0, len(lines)
    table: list[str] = []
    for depth, part in enumerate(wanted):
        if part.startswith("["):
            continue
        table.append(part)
        index = wanted[depth + 1] if depth + 1 < len(wanted) else ""
        number = int(index[1:-1]) if index.startswith("[") else 0
        header = re.compile(
            r"\s*\[\[?\s*" + r"\s*\.\s*".join(f'"?{re.escape(p)}"?' for p in table) + r"\s*\]"
        )
        hits = [at for at in range(len(lines)) if header.match(lines[at])]
        if number < len(hits):
            start = hits[number]
            stop = next(
                (at for at in range(start + 1, len(lines)) if lines[at].startswith("[")), len(lines)
            )
            continue
        key = re.compile(rf'\s*"?{re.escape(part)}"?\s*[=.]|.*[{{,]\s*"?{re.escape(part)}"?\s*=')
        inner = next((at for at in range(start, stop) if key.match(lines[at])), None)
        if inner is not None:
            start = inner
    return start + 1
