"""Runs the real program with one fault at a chosen point: a kill, a full disk, a refused write.

A point is a call that changes something: a file created or opened for writing, a rename, a link, a
removal, a flush to disk, a git command. A git command can also die in its middle, of a limit to the
size of files at its first or a later write, with stack (`cut`) or alone (`git`). `Server` keeps one
warm process that forks for every run, so that thousands of points can be tried; each run is the
whole program in a process of its own.
"""

from __future__ import annotations

import errno
import os
import resource
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
OF_GIT = ("cut", "git")
KINDS = ("kill", *ERRORS, *OF_GIT)
_SIZES = (0, 90)  # bytes that a git to be killed may write to a file
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A run: exit code (minus the signal), output, the points passed, and where the fault was.

    `gits` are the points that are git commands, to which the kinds of `OF_GIT` count.
    """

    code: int
    out: str
    err: str
    points: int
    gits: int
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
        points, gits = map(int, rows[0].split()) if rows else (0, 0)
        return Ran(
            code=code, out=out.decode("utf-8", "replace"), err=err.decode("utf-8", "replace"),
            points=points, gits=gits, at=rows[1] if len(rows) > 1 else None,
        )

    def close(self) -> None:
        self._warm.close()


class _Counter:
    """Counts the points of a run and strikes at one of them."""

    def __init__(self, kind: str | None, point: int, report: int) -> None:
        self.kind, self.point, self.report, self.passed, self.gits = kind, point, report, 0, 0

    def wrap(self, name: str, function: Callable[..., Any], where: Callable[..., bool]) -> Any:
        """The function, which may now be struck."""

        def called(*args: Any, **kwargs: Any) -> Any:
            if where(*args, **kwargs):
                self.passed += 1
                self.gits += name == "git"
                self.tell("")
                if self.kind in OF_GIT:
                    if name == "git" and self.gits == self.point:
                        return self.limited(function, *args, **kwargs)
                elif self.passed == self.point and self.kind:
                    self.strike(f"{name} {args[:2]}")
            return function(*args, **kwargs)

        return called

    def tell(self, what: str) -> None:
        text = f"{self.passed} {self.gits}\n{what}"
        os.pwrite(self.report, text.encode("utf-8", "replace"), 0)

    def strike(self, what: str) -> None:
        self.tell(f"{what}\n")
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        number = ERRORS[self.kind or ""]
        raise OSError(number, os.strerror(number), "/injected")

    def limited(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start a git that dies of its first write, or of a later one, and maybe we with it."""
        git, arguments, worktree, *_ = args
        self.tell(f"git {arguments}\n")
        if worktree is not None:
            git._without_filters()  # a git command of its own, with its answer kept
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_SIZES[self.point % len(_SIZES)], hard))
        try:
            started = function(*args, **kwargs)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if self.kind == "cut":
            ended = client._ended

            def last(*args: Any) -> Any:
                ended(*args)
                os.kill(os.getpid(), signal.SIGKILL)

            client._ended = last  # type: ignore[assignment]
        return started


def arm(kind: str | None, point: int, report: int) -> None:
    """Count the points of this process from now on in the file `report`, and strike at one."""
    counter = _Counter(kind, point, report)
    for name in POINTS:
        setattr(os, name, counter.wrap(name, getattr(os, name), lambda *_, **__: True))
    os.open = counter.wrap("open", os.open, lambda _, flags=0, *__, **___: bool(flags & _WRITING))
    client.Git._start = counter.wrap("git", client.Git._start, lambda *_, **__: True)
