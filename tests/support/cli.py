"""Runs the real program in a process of its own, as a person would."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.support.warm import Warm

_warm = Warm()
_cold = ContextVar("_cold", default=os.environ.get("STACK_TEST_COLD") == "1")


@contextlib.contextmanager
def cold() -> Iterator[None]:
    """Give every run a Python of its own, a child of this process: for what is timed or counted."""
    token = _cold.set(True)
    try:
        yield
    finally:
        _cold.reset(token)


def close() -> None:
    """End the process from which runs are forked."""
    _warm.close()


class Output:
    """What a run gave: exit code, stdout and stderr as text."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Stack:
    """`stack` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str | Path, env: dict[str, str] | None = None) -> Output:
        """Run to the end, whatever the exit code."""
        whole = {**os.environ, **(env or {})}
        if _cold.get() or not _warm.suits(whole):
            done = subprocess.run(
                self.argv(*arguments), cwd=self.folder, env=whole, capture_output=True,
                check=False, timeout=600,
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        else:
            code, out, err, _ = _warm.run(self.folder, [str(one) for one in arguments], whole)
        return Output(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def ok(self, *arguments: str | Path, env: dict[str, str] | None = None) -> Output:
        """Run; anything but exit code 0 fails the test with the whole output."""
        output = self(*arguments, env=env)
        assert output.code == 0, output
        return output

    def start(self, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Start without waiting, in a session of its own, so that it can be killed."""
        return processes.start(
            self.argv(*arguments), cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @staticmethod
    def argv(*arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "stack", *map(str, arguments)]
