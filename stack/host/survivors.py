"""The processes of a trial, also those that left its process group: what they use, their end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_SETTLE, _WAIT = 1.0, 5.0


def marked(mark: bytes) -> list[int]:
    """The processes of this user that were started with `mark` (`NAME=value`, or the beginning).

    A process has the environment that it was started with, whatever session or group it moved
    to. Where there is no /proc, the answer is empty.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if environment.startswith(mark) or b"\0" + mark in environment:
            found.append(pid)
    return found


def processor_seconds(mark: bytes) -> float:
    """The processor time that the marked processes, and children they waited for, have used."""
    ticks = 0
    for pid in marked(mark):
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def end(mark: bytes) -> int:
    """Kill every process that carries `mark`, and those they start meanwhile; how many.

    What was told to end already is given a second to go, and does not count.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + _SETTLE
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    deadline = time.monotonic() + _WAIT
    while (found := marked(mark)) and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
            ended.add(pid)
        time.sleep(0.02)
    return len(ended)
