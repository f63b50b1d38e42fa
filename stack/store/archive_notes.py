"""What was read from a release archive, kept beside it, so that it is read once."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stack.model.line.line import Pin
from stack.store import atomic


class _Read(msgspec.Struct, frozen=True):
    """The pin of an archive; `stamp` is the archive's size and time when it was read."""

    stamp: str
    pin: Pin


def known(archive: Path) -> Pin | None:
    """The pin that was read from an archive in the cache, if it has not changed since."""
    try:
        found = msgspec.json.decode(_note(archive).read_bytes(), type=_Read)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    return found.pin if found.stamp == _stamp(archive) else None


def keep(archive: Path, pin: Pin) -> None:
    """Remember the pin of an archive as it is now."""
    atomic.write(_note(archive), msgspec.json.encode(_Read(stamp=_stamp(archive), pin=pin)))


def _note(archive: Path) -> Path:
    return archive.with_name(archive.name + ".json")


def _stamp(archive: Path) -> str:
    stat = archive.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"
