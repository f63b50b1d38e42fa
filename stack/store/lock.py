"""One writer at a time: flock on a file that says who holds it. Readers take no lock."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.errors import Locked

_held: set[int] = set()


@contextmanager
def hold(
    path: Path,
    what: str,
    *,
    wait: float = 0.0,
    on_wait: Callable[[str], None] = lambda holder: None,
) -> Iterator[None]:
    """Hold the lock at `path` while the block runs.

    `what` is the text that a process in our way is shown. Wait at most `wait` seconds, calling
    `on_wait` once with the holder's text; then raise `Locked`. The kernel frees the lock of a
    process that dies, once every program that it gave the lock to (`handles`) has ended too; a
    lock file that stays behind is harmless.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        deadline = time.monotonic() + wait
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(handle, 400, 0).decode("utf-8", "replace").strip()
                if not told:
                    on_wait(holder)
                    told = True
                if time.monotonic() >= deadline:
                    raise Locked(
                        f"{path}: held by {holder or 'another process'}",
                        hint="wait for it to end, then run the same command again",
                    ) from None
                time.sleep(0.05)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}: {what}\n".encode(), 0)
        _held.add(handle)
        yield
    finally:
        if handle in _held:
            _held.discard(handle)
            fcntl.flock(handle, fcntl.LOCK_UN)  # also for a program that has it and goes on
        os.close(handle)


def handles() -> tuple[int, ...]:
    """The locks held now, for a program that writes in their name.

    Should we be killed, they stay held until that program has ended.
    """
    return tuple(_held)


def holder(path: Path) -> str | None:
    """Who holds the lock at `path` now, by its own text; None where nobody does."""
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(handle, 400, 0).decode("utf-8", "replace").strip()
    finally:
        os.close(handle)
    return None


def share(path: Path, what: str) -> int:
    """Hold a lock together with others, until this process and what it becomes or starts ends.

    Whoever wants the lock alone (`hold`) is kept out and shown `what`. Raises `Locked` where
    somebody holds it alone now. The handle is passed on to programs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 400, 0).decode("utf-8", "replace").strip()
        os.close(handle)
        raise Locked(
            f"{path}: held by {holder or 'another process'}",
            hint="wait for it to end, then run the same command again",
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"process {os.getpid()}: {what}\n".encode(), 0)
    os.set_inheritable(handle, True)
    return handle
