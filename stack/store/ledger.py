"""The append-only record of what was measured: JSON lines that are never rewritten."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from stack.errors import SchemaTooNew
from stack.model.trial import LEDGER_SCHEMA, Machine, Record, Trial, VerdictRecord
from stack.store import atomic

_FILES = {Trial: "trials.jsonl", VerdictRecord: "verdicts.jsonl", Machine: "machines.jsonl"}


class _Head(msgspec.Struct):
    schema: int


class Ledger:
    """The records in a folder, one file a kind. Writers take turns by flock, readers take none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, record: Record) -> None:
        """Add a record: one write at the end of its file, on disk when this returns.

        A line that a killed writer left half written stays as it is; the record begins after it.
        """
        path = self.folder / _FILES[type(record)]
        data = msgspec.json.encode(record) + b"\n"
        fresh = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                data = b"\n" + data
            written = os.write(handle, data)
            if written != len(data):
                raise OSError(28, "no space left for the record", str(path))
            os.fsync(handle)
        finally:
            os.close(handle)
        if fresh:
            atomic.sync_folder(path.parent)

    def trials(self, warn: Callable[[str], None]) -> Iterator[Trial]:
        """Every whole trial, oldest first."""
        return self._read("trials.jsonl", Trial, warn)

    def verdicts(self, warn: Callable[[str], None]) -> Iterator[VerdictRecord]:
        """Every whole verdict, oldest first."""
        return self._read("verdicts.jsonl", VerdictRecord, warn)

    def machines(self, warn: Callable[[str], None]) -> Iterator[Machine]:
        """Every whole fingerprint, oldest first."""
        return self._read("machines.jsonl", Machine, warn)

    def _read[Kind: (Trial, VerdictRecord, Machine)](self) -> None: ...
