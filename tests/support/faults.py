"""Runs the real program with one fault at a chosen point: a kill, a full disk, a refused write.

A point is a call that changes something: a file created or opened for writing, a rename, a link, a
removal, a flush to disk, a git command. `Server` keeps one warm process that forks for every run,
so that thousands of points can be tried; each run is the whole program in a process of its own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

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
    """A warm process that runs the program, with or without a fault."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.faults"], cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(
        self, folder: Path, *arguments: str | Path, kind: str | None = None, point: int = 0
    ) -> Ran:
        """Run in `folder`; the fault `kind` strikes at the call number `point`, from 1."""
        request = {
            "folder": str(folder), "arguments": [str(one) for one in arguments], "kind": kind,
            "point": point,
        }  # fmt: skip
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Ran)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


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


def _child(request: dict[str, Any], files: list[Path]) -> int:
    """The run itself, after the fork."""
    os.chdir(request["folder"])
    out, err, report = (os.open(path, os.O_RDWR | os.O_CREAT) for path in files)
    os.dup2(out, 1)
    os.dup2(err, 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    counter = _Counter(request["kind"], request["point"], report)
    from stack import cli
    from stack.repo import client

    for name in POINTS:
        setattr(os, name, counter.wrap(name, getattr(os, name), lambda *_, **__: True))
    os.open = counter.wrap("open", os.open, lambda _, flags=0, *__, **___: bool(flags & _WRITING))
    client.Git._start = counter.wrap("git", client.Git._start, lambda *_, **__: True)
    code = cli.main(request["arguments"])
    with contextlib.suppress(ValueError, OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def serve() -> None:
    """Answer requests, one JSON document a line, until stdin ends."""
    from stack import cli, commands  # noqa: F401 - warm
    from stack.repo import client

    client._gitpython()
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch) / name for name in ("out", "err", "report")]
        for line in sys.stdin:
            for path in files:
                path.write_bytes(b"")
            child = os.fork()
            if child == 0:
                code = 70
                try:
                    code = _child(json.loads(line), files)
                finally:
                    os._exit(code)
            status = os.waitpid(child, 0)[1]
            rows = files[2].read_text().splitlines()
            ran = Ran(
                code=os.waitstatus_to_exitcode(status),
                out=files[0].read_text("utf-8", "replace"),
                err=files[1].read_text("utf-8", "replace"),
                points=int(rows[0]) if rows else 0, at=rows[1] if len(rows) > 1 else None,
            )  # fmt: skip
            sys.stdout.write(msgspec.json.encode(ran).decode() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    serve()
