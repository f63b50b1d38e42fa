"""The written list of an import: what became of every input; the memory of the next import."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from stack.errors import StateError
from stack.flows.pile.replay import Row
from stack.store import atomic
from stack.store.project import Project

NAME = "imported.toml"
_HEAD = """\
# What `stack import` made of every file of a pile; what it was set aside for stands in `reason`.
# Importing again adds only what is not here, or what is not in its line any more.
schema = 1
"""


def path_of(project: Project) -> Path:
    """Where the list stands: in git, beside the lines."""
    return project.paths.patches / NAME


def read(project: Project) -> list[Row]:
    """The rows of the last list; `StateError` where somebody damaged it."""
    path = path_of(project)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        if document.get("schema") != 1:
            raise StateError(f"{project.shown(path)}: schema {document.get('schema')} is newer")
        return [
            Row(
                file=row["file"], upstream=row.get("upstream"), result=row["result"],
                patches=tuple(row.get("patches", ())), reason=row.get("reason", ""),
                digest=row.get("digest", ""),
            )
            for row in document.get("input", ())
        ]
    except FileNotFoundError:
        return []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as wrong:
        raise StateError(
            f"{project.shown(path)}: damaged: {wrong}",
            hint="restore it from git, or remove it: the next import looks at every file anew",
        ) from None


def write(project: Project, rows: Iterable[Row]) -> Path:
    """Write the list: the rows of this import, and those of files that it did not see."""
    rows = list(rows)
    here = {(row.file, row.upstream) for row in rows}
    digests = {row.digest for row in rows if row.digest}
    kept = [
        row for row in read(project)
        if (row.file, row.upstream) not in here and row.digest not in digests
    ]
    path = path_of(project)
    atomic.write_if_changed(path, (_HEAD + "".join(map(_entry, [*kept, *rows]))).encode())
    return path


def _entry(row: Row) -> str:
    values: Mapping[str, object] = {
        "file": row.file, "upstream": row.upstream, "result": row.result,
        "patches": list(row.patches), "reason": row.reason, "digest": row.digest,
    }
    lines = [
        f"{key} = {json.dumps(value).replace(chr(0x7F), chr(92) + 'u007f')}"
        for key, value in values.items()
        if value
    ]
    return "\n[[input]]\n" + "\n".join(lines) + "\n"


def known(
    rows: Iterable[Row], patches: Mapping[str, set[str]]
) -> dict[tuple[str, str], Row]:
    """The rows that still hold, by upstream and digest; `patches` are the names in the lines."""
    return {
        (row.upstream, row.digest): row
        for row in rows
        if row.upstream and row.digest and not row.aside and row.upstream in patches
        and set(row.patches) <= patches[row.upstream]
    }
