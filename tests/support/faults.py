"""Runs the real program with one fault at a chosen point: a kill, a full disk, a refused write.

A point is a call that changes something: a file created or opened for writing, a rename, a link, a
removal, a flush to disk, a git command. `Server` keeps one warm process that forks for every run,
so that thousands of points can be tried; each run is the whole program in a process of its own.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stack.repo import client
from tests.support.warm import Warm

POINTS = (
    "fsync", "rename", "replace", "unlink", "mkdir", "rmdir", "symlink", "link", "truncate",
)  # fmt: skip
ERRORS = {"ENOSPC": errno.ENOSPC, "EACCES": errno.EACCES, "EIO": errno.EIO}
KINDS = ("kill", *ERRORS)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A run: exit code (minus the signal), output, the points passed, and where the fault was."""

    code: int
    out: str
    err: str
    points: int
    at: str | None = None


class Server:
    """A warm process of one's own that runs the program, with or without a fault."""

    def __init__(self) -> None:
        self._warm = Warm()

    def run(
        self, folder: Path, *arguments: str | Path, kind: str | None = None, point: int = 0
    ) -> Ran:
        """Run in `folder`; the fault `kind` strikes at the call number `point`, from 1."""
        code, out, err, report = self._warm.run(
            folder, [str(one) for one in arguments], os.environ, (kind, point)
        )
        rows = report.splitlines()
        return Ran(
            code=code, out=out.decode("utf-8", "replace"), err=err.decode("utf-8", "replace"),
            points=int(rows[0]) if rows else 0, at=rows[1] if len(rows) > 1 else None,
        )

    def close(self) -> None:
        self._warm.close()


class _Counter:
    """Counts the points of a run and strikes at one of them."""

    def __init__(self, kind: str | None, point: int, report: int) -> None:
        self.kind, self.point, self.report, self.passed = kind, point, report, 0

    def wrap(self, name: str, function: Callable[..., Any], where: Callable[..., bool]) -> Any:
        """The function, which may now be struck."""

        def called(*args: Any, **kwargs: Any) -> Any:
            if where(*args, **kwargs):
                self.passed += 1
                os.pwrite(self.report, b"%d\n" % self.passed, 0)
                if self.passed == self.point and self.kind:
                    self.strike(f"{name} {args[:2]}")
            return function(*args, **kwargs)

        return called

    def strike(self, what: str) -> None:
        os.pwrite(self.report, f"{self.passed}\n{what}\n".encode("utf-8", "replace"), 0)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        number = ERRORS[self.kind or ""]
        raise OSError(number, os.strerror(number), "/injected")


def arm(kind: str | None, point: int, report: int) -> None:
    """Count the points of this process from now on in the file `report`, and strike at one."""
    counter = _Counter(kind, point, report)
    for name in POINTS:
        setattr(os, name, counter.wrap(name, getattr(os, name), lambda *_, **__: True))
    os.open = counter.wrap("open", os.open, lambda _, flags=0, *__, **___: bool(flags & _WRITING))
    client.Git._start = counter.wrap("git", client.Git._start, lambda *_, **__: True)
