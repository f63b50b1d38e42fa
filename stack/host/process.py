"""The only place that starts programs: own process group, log on disk, limits, no leftovers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from stack.errors import MissingTool

GRACE = 5.0


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. Times in seconds; `exit_code` is negative for a signal."""

    argv: tuple[str, ...]
    exit_code: int
    seconds: float
    timed_out: bool = False
    stalled: bool = False
    max_rss_kib: int = 0

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and not self.timed_out and not self.stalled


def which(name: str, *, hint: str) -> str:
    """The absolute path of a program, or `MissingTool` with the way to get it."""
    found = shutil.which(name)
    if found is None:
        raise MissingTool(f"`{name}` is not installed", hint=hint)
    return found


def capture(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 60.0,
    cwd: Path | None = None, stdin: bytes = b"",
) -> tuple[int, bytes, bytes]:
    """Run a short program; its exit code (124 past `timeout`), stdout and stderr."""
    try:
        done = subprocess.run(
            list(argv), env=dict(env) if env is not None else None, cwd=cwd, input=stdin,
            capture_output=True, timeout=timeout, check=False,
        )
    except subprocess.TimeoutExpired as late:
        return 124, late.stdout or b"", late.stderr or b""
    except FileNotFoundError:
        raise MissingTool(
            f"`{argv[0]}` is not installed", hint="stack doctor names what is missing"
        ) from None
    return done.returncode, done.stdout, done.stderr


def become(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> NoReturn:
    """Replace this process by a program: signals, input, output and exit code are its own.

    Looked for on the PATH of `env`; `MissingTool` where it is not there.
    """
    name = str(cwd.absolute() / argv[0]) if os.sep in argv[0] else argv[0]
    program = shutil.which(name, path=env.get("PATH", os.defpath))
    if program is None:
        raise MissingTool(
            f"`{argv[0]}` is neither in the environment nor on PATH",
            hint="stack run -- COMMAND; name the package that brings it in the profile",
        )
    sys.stdout.flush()
    sys.stderr.flush()
    for kept in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs do not expect it
        signal.signal(kept, signal.SIG_DFL)
    os.chdir(cwd)  # nothing of ours runs after this
    os.execve(program, list(argv), dict(env))  # noqa: S606 - the user's own command


def run(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str],
    cwd: Path,
    limit: float | None = None,
    stall: float | None = None,
    on_tick: Callable[[float, int], None] = lambda seconds, size: None,
) -> Finished:
    """Run a program in a session of its own with stdout and stderr in `log`.

    After `limit` seconds, or `stall` seconds without a byte of output, its whole process group
    gets TERM, then KILL; so does it when we are interrupted. Whatever it left running in its
    group is ended too. `on_tick(seconds, log_bytes)` is called a few times a second.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as sink:
        started = time.monotonic()
        try:
            child = subprocess.Popen(
                list(argv), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT,
                env=dict(env), cwd=cwd, start_new_session=True,
            )
        except FileNotFoundError:
            raise MissingTool(
                f"`{argv[0]}` is not there", hint="stack build makes the environment again"
            ) from None
        timed_out = stalled = False
        last_size, last_growth = 0, started
        try:
            while True:
                status = _poll(child)
                now = time.monotonic()
                if status is not None:
                    break
                size = os.fstat(sink.fileno()).st_size
                if size != last_size:
                    last_size, last_growth = size, now
                on_tick(now - started, size)
                timed_out = limit is not None and now - started > limit
                stalled = stall is not None and now - last_growth > stall
                if timed_out or stalled:
                    status = _end(child)
                    break
                time.sleep(0.1)
        except BaseException:
            _end(child)
            raise
        _kill_group(child.pid, signal.SIGKILL)
        code, rss = status
        return Finished(
            argv=tuple(argv), exit_code=code, seconds=time.monotonic() - started,
            timed_out=timed_out, stalled=stalled and not timed_out, max_rss_kib=rss,
        )


def guard(mark: str) -> int:
    """Have every process that carries `mark` (`NAME=value`) ended as soon as we are gone.

    The handle that is given back keeps it so; closing it ends them as well.
    """
    theirs, ours = os.pipe()
    try:
        argv = [sys.executable, "-P", "-m", "stack.host.guard", mark]
        env = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen(
            argv, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
            start_new_session=True,
        ) as child:
            child.wait()
    finally:
        os.close(theirs)
    return ours


def _poll(child: subprocess.Popen[bytes]) -> tuple[int, int] | None:
    """Exit code and peak memory of a child that has ended, else None."""
    pid, status, usage = os.wait4(child.pid, os.WNOHANG)
    if pid == 0:
        return None
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_maxrss


def _end(child: subprocess.Popen[bytes]) -> tuple[int, int]:
    """TERM to the group, KILL after a grace; exit code and peak memory of the child."""
    _kill_group(child.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    while time.monotonic() < deadline:
        if (status := _poll(child)) is not None:
            return status
        time.sleep(0.05)
    _kill_group(child.pid, signal.SIGKILL)
    while (status := _poll(child)) is None:
        time.sleep(0.02)
    return status


def _kill_group(group: int, which_signal: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, which_signal)
