"""The append-only record of what was measured: JSON lines that are never rewritten."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from stack.errors import SchemaTooNew
from stack.model.measure.trial import (
    LEDGER_SCHEMA,
    Calibration,
    Machine,
    Record,
    Trial,
    VerdictRecord,
)
from stack.store import atomic

Kind = TypeVar("Kind", Trial, VerdictRecord, Machine, Calibration)
_FILES: dict[type[Record], str] = {
    Trial: "trials.jsonl", VerdictRecord: "verdicts.jsonl", Machine: "machines.jsonl",
    Calibration: "calibrations.jsonl",
}


class _Head(msgspec.Struct):
    schema: int


_schema = msgspec.json.Decoder(_Head)


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
                raise OSError(errno.ENOSPC, "no space left for the record", str(path))
            os.fsync(handle)
        finally:
            os.close(handle)
        if fresh:
            atomic.sync_folder(path.parent)

    def trials(self, warn: Callable[[str], None]) -> Iterator[Trial]:
        """Every whole trial, oldest first."""
        return self._read(Trial, warn)

    def verdicts(self, warn: Callable[[str], None]) -> Iterator[VerdictRecord]:
        """Every whole verdict, oldest first."""
        return self._read(VerdictRecord, warn)

    def machines(self, warn: Callable[[str], None]) -> Iterator[Machine]:
        """Every whole fingerprint, oldest first."""
        return self._read(Machine, warn)

    def calibrations(self, warn: Callable[[str], None]) -> Iterator[Calibration]:
        """Every whole A/A history, oldest first."""
        return self._read(Calibration, warn)

    def _read(self, kind: type[Kind], warn: Callable[[str], None]) -> Iterator[Kind]:
        path = self.folder / _FILES[kind]
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return
        decoder = msgspec.json.Decoder(kind)
        for number, line in enumerate(data.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                found = _schema.decode(line).schema
                if found > LEDGER_SCHEMA:
                    raise SchemaTooNew(
                        f"{path}:{number}: schema {found} is newer than {LEDGER_SCHEMA}, the "
                        "newest that this release reads",
                        hint="upgrade stack",
                    )
                record = decoder.decode(line)
            except (msgspec.DecodeError, RecursionError):
                warn(f"{path}:{number}: a record that was not written to its end is left out")
                continue
            yield record
