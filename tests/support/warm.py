"""A warm process that forks the real program for every run, since imports cost more than most runs.

Each run is a process of its own with its own folder, environment and files, forked after everything
is imported. Whatever a start of Python itself would see differently (its own variables, the
locale, another PATH) is run cold by `tests.support.cli`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TIME = 600.0  # seconds
_START = ("PYTHON", "LC_", "LANG", "LD_", "PATH", "TZ")


class Warm:
    """The process; it begins with the first run and ends with whoever made it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._begun: dict[str, str] = {}

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether Python would start in this environment as it did in the process."""
        return self._begun == {} or self._begun == _of_start(environment)

    def run(
        self, folder: Path, arguments: Sequence[str], environment: Mapping[str, str],
        fault: tuple[str | None, int] | None = None,
    ) -> tuple[int, bytes, bytes, str]:
        """Exit code (minus the signal), stdout, stderr, and what the `fault` has to report."""
        request = {
            "folder": str(folder), "arguments": list(arguments), "environment": dict(environment),
            "fault": fault,
        }
        process = self._process or self._begin(environment)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            assert select.select([process.stdout], [], [], _TIME)[0], f"no end: {request}"
            code, files = json.loads(process.stdout.readline())
        except BaseException:  # an answer that nobody waits for must not meet the next question
            self.close(kill=True)
            raise
        out, err, report = (Path(name).read_bytes() for name in files)
        return code, out, err, report.decode("utf-8", "replace")

    def _begin(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        self._begun = _of_start(environment)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm"], cwd=Path(__file__).parents[2],
            env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )
        return self._process

    def close(self, *, kill: bool = False) -> None:
        """End it; with `kill` at once, and what it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        if kill:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        process.stdout.close()


def _of_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if key.startswith(_START)}


def _become(request: Any, files: Sequence[Path]) -> int:
    """The run itself, after the fork; its exit code."""
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None
    os.chdir(request["folder"])
    out, err = (os.open(path, os.O_WRONLY | os.O_APPEND) for path in files[:2])
    report = os.open(files[2], os.O_WRONLY)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    from stack import __main__ as program

    sys.argv = [program.__file__, *request["arguments"]]
    if request["fault"] is not None:
        from tests.support import faults

        faults.arm(*request["fault"], report)
    try:
        code = program.main()
    except SystemExit as end:  # from here on as the interpreter would end
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(ValueError, OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    return code


def _import_everything() -> None:
    import stack

    for module in pkgutil.walk_packages(stack.__path__, "stack."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)
    from stack.repo import client

    client._gitpython()


def serve() -> None:
    """Answer requests, one JSON document a line, until nobody can ask any more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _import_everything()
    scratch = tempfile.mkdtemp(prefix="warm-")  # a run's own end must not remove it
    files = [Path(scratch, name) for name in ("out", "err", "report")]
    try:
        for line in sys.stdin:
            for path in files:
                path.unlink(missing_ok=True)  # a program that was left running may still write
                path.touch()
            child = os.fork()
            if child == 0:
                code = 70
                try:
                    answers.close()
                    code = _become(json.loads(line), files)
                finally:
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answers.write(json.dumps([code, [str(path) for path in files]]) + "\n")
            answers.flush()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    serve()
