"""Processes that a test starts beside itself and waits for; none outlives it, however it ends."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
_started: list[subprocess.Popen[bytes]] = []


def start(argv: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start without waiting, in a session of its own; `settings` are those of `Popen`."""
    process = subprocess.Popen(argv, start_new_session=True, **settings)
    _started.append(process)
    return process


def end_all() -> None:
    """End what is left of them, so that a test that fails disturbs no other."""
    while _started:
        process = _started.pop()
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def until(
    condition: Callable[[], T], seconds: float = 60.0, said: Callable[[], object] = lambda: None
) -> T:
    """Wait for what holds; its value. What was `said` is shown if it never does."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, said()
        time.sleep(0.05)
    return value
