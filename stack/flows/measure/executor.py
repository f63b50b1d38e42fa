"""What runs a prepared trial and gives its result: this machine, or a host of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from stack.bench import runner
from stack.model.log.signatures import Catalogue


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where trials run. `values` are the names that templates use there; `host` is None here."""

    host: str | None = None
    python: Path
    site_packages: Path
    probe: Path
    logs: Path
    caches: Path
    values: Mapping[str, object]


class Executor(Protocol):
    """Runs trials, one at a time. Raises `HostLost` where the host is gone, or its worker."""

    place: Place

    def layers(self, ours: Sequence[Path]) -> tuple[Path, ...]:
        """Where layers of this machine stand there; they are brought where they are missing."""

    def is_cold(self, caches: Path, pyc: Path) -> bool:
        """Whether no trial has yet ended well there with these cache roots."""

    def run(self, job: runner.Job, log: Path, on_tick: runner.Tick) -> runner.Ran:
        """Run a job, leave nothing of it running, and have its log here at `log`."""


class HostLost(Exception):
    """A host, or the worker that ran a trial on it, is gone; the trial has no result.

    `alive` says that only the worker is gone, `unfit` that nothing more may be run there.
    """

    def __init__(
        self, host: str, why: str, *, alive: bool = False, unfit: bool = False
    ) -> None:
        super().__init__(f"{host}: {why}")
        self.host, self.why, self.alive, self.unfit = host, why, alive, unfit


class Stopped(Exception):
    """The run was stopped while a host worked for it; that work is ended and has no result."""


class Local:
    """Trials on this machine."""

    def __init__(self, place: Place, catalogue: Catalogue, outer: Mapping[str, str]) -> None:
        self.place, self.catalogue, self.outer = place, catalogue, outer

    def layers(self, ours: Sequence[Path]) -> tuple[Path, ...]:
        return tuple(ours)

    def is_cold(self, caches: Path, pyc: Path) -> bool:
        return runner.is_cold(caches, pyc)

    def run(self, job: runner.Job, log: Path, on_tick: runner.Tick) -> runner.Ran:
        return runner.run(job, self.catalogue, on_tick, self.outer)
