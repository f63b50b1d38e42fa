"""Have every Python process of a trial report which patched files it loads, by their hash.

The harness puts this folder first on PYTHONPATH, so that Python imports this module at its start,
in workers too. `STACK_WATCHED` is a JSON file whose keys are paths below an import folder; each of
them that is imported adds a line `{"pid", "name", "file", "sha256"}` to the file `STACK_LOADED`.
Only imports are slowed, by one look-up each. Only the standard library is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any


def watch(names: frozenset[str], report: str) -> None:
    """Report each of these files when a module of it is loaded."""
    plain = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.path
        parts = Path(path).parts
        depth = fullname.count(".") + 1 + (parts[-1] == "__init__.py")
        name = "/".join(parts[-depth:])
        if name in names:
            _tell(report, name, path)
        return plain(self, fullname)

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def _tell(report: str, name: str, path: str) -> None:
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    said: dict[str, Any] = {"pid": os.getpid(), "name": name, "file": path, "sha256": digest}
    handle = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, json.dumps(said).encode() + b"\n")
    finally:
        os.close(handle)


if "STACK_WATCHED" in os.environ and "STACK_LOADED" in os.environ:
    watch(
        frozenset(json.loads(Path(os.environ["STACK_WATCHED"]).read_bytes())),
        os.environ["STACK_LOADED"],
    )
