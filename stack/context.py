"""What every verb is given: the project, its settings and the console; made once, passed down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from stack.console import Console
from stack.errors import StateError
from stack.store import paths
from stack.store.project import Project


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a verb found out: `data` for `--json`, `show` for people, and the exit code."""

    data: Mapping[str, Any]
    show: Callable[[Console], None] = lambda console: None
    exit_code: int = 0
    partial: bool = False


class Context:
    """One run of the program in one folder."""

    def __init__(self, folder: Path, console: Console, command: tuple[str, ...]) -> None:
        self.folder = folder
        self.console = console
        self.command = command

    @cached_property
    def project(self) -> Project:
        """The project around the folder; `StateError` outside of one."""
        root = paths.find_root(self.folder)
        if root is None:
            raise StateError(
                f"{self.folder.resolve()}: no stack.toml here or in a folder above",
                hint="stack init",
            )
        return Project(paths.Paths(root, paths.cache_home()))


Verb = Callable[[Context], Answer]
