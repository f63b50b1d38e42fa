"""TOML documents into typed values; every error names file, line and key."""

from __future__ import annotations

import re
import tomllib
from typing import Any, TypeVar

import msgspec

from stack.errors import ConfigError, SchemaTooNew

T = TypeVar("T")
# Python's parser takes memory by the square of a key's parts.
_LONG_KEY = re.compile(rb"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){64}""")
_ESCAPED_NUL = re.compile(rb"\\u0000|\\U00000000")


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
    """Parse TOML; what cannot be read, or only at a price that none is worth, names its line."""
    if data.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(f"{name}:1: begins with a byte order mark", hint="save it without one")
    if deep := _LONG_KEY.search(data):
        raise ConfigError(f"{name}:{_row(data, deep)}: a key of more than 64 parts")
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except UnicodeDecodeError as wrong:
        line = data.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(f"{name}:{line}: not UTF-8") from None
    except tomllib.TOMLDecodeError as wrong:
        text = re.sub(r" \(at (line \d+, column \d+|end of document)\)", "", str(wrong))
        match = re.search(r"line (\d+)", str(wrong))
        line = int(match[1]) if match else data.count(b"\n") + 1
        raise ConfigError(f"{name}:{line}: {text}") from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply") from None
    except ValueError as wrong:  # a number of more digits than Python converts
        raise ConfigError(f"{name}: {str(wrong).partition(';')[0]}") from None
    if (nul := _ESCAPED_NUL.search(data)) and _has_nul(document):
        raise ConfigError(f"{name}:{_row(data, nul)}: a NUL character in a text")
    return document


def _row(data: bytes, found: re.Match[bytes]) -> int:
    return data.count(b"\n", 0, found.start()) + 1


def _has_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_nul(part) for pair in value.items() for part in pair)
    return any(map(_has_nul, value)) if isinstance(value, list) else "\0" in str(value)


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
