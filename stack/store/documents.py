"""JSON documents of our own under `.stack/`: whole, absent, or damaged in one line that says so."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from stack.errors import StateError
from stack.store.project import Project

T = TypeVar("T")


def read(project: Project, path: Path, kind: type[T], *, hint: str) -> T | None:
    """What a file holds, None where there is none; `StateError` with `hint` for a damaged one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as wrong:
        raise StateError(f"{project.shown(path)}: damaged: {wrong}", hint=hint) from None
