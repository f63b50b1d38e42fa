"""Making a base environment: into a folder of a new name, and its record last."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from stack.errors import BuildFailed, Locked
from stack.flows.builds.environment import (
    RECORD,
    Base,
    Wanted,
    building,
    find,
    read_record,
    site_packages,
)
from stack.flows.events import Emit, Progress, Said
from stack.host import indexes, packages
from stack.host.process import Finished
from stack.host.venv import Installer, explain, pins, pip_fetched, uv_fetched, without
from stack.model.project.build import BuildRecord, Fetched
from stack.store import atomic, lock
from stack.store.project import Project

LAST_LINES = 6
OFFLINE_HINT = "check the network, then run the same command again"


def ensure(
    project: Project, want: Wanted, emit: Emit, *, fresh: bool = False
) -> tuple[Base, bool]:
    """The base that `want` names, made if need be; true when it was made. Raises `BuildFailed`."""
    found = None if fresh else find(project, want)
    if found is not None:
        if _leavings(want.folder(project)):  # a kill came between the record and the clearing
            with suppress(Locked), building(project, want.profile):
                _clear(want.folder(project))
        return found, False
    with building(project, want.profile), ExitStack() as held:
        found = find(project, want)
        if found is not None and not fresh:
            return found, False
        if found is not None:  # nobody may be measuring on what we take away
            measuring, what = project.paths.state / "measuring.lock", "stack build --fresh"
            for path in (measuring, project.paths.serving):  # nor may a program run on it
                held.enter_context(lock.hold(path, f"{what} --profile {want.profile}"))
        return _Making(project, want, emit).make(), True


class _Making:
    """One attempt at a base. Killed at any point, it leaves a folder that no record names."""

    def __init__(self, project: Project, want: Wanted, emit: Emit) -> None:
        self.project = project
        self.want = want
        self.emit = emit
        self.folder = want.folder(project)
        self.venv = self.folder / secrets.token_hex(4)
        self.log = project.paths.logs / f"build-{want.key}-{self.venv.name}.log"
        self.installer = Installer(self.venv, self.log, self._tick, self._env())
        self.label = ""
        self.silent: indexes.Silent = {}
        self.offline = False

    @property
    def kind(self) -> str:
        """Names the environment in which wheels are built: one for XPU must not serve CUDA."""
        said = repr(sorted(self.want.env.items())).encode()
        return f"-{hashlib.sha256(said).hexdigest()[:8]}" if self.want.env else ""

    def _env(self) -> dict[str, str]:
        """The variables for building wheels; pip and uv would mix them up in one cache."""
        if not self.want.env:
            return {}
        cache = str(self.project.paths.wheels / f"built{self.kind}")
        return {"PIP_CACHE_DIR": cache, "UV_CACHE_DIR": cache, **self.want.env}

    def make(self) -> Base:
        started = time.monotonic()
        _clear(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.emit(Said(
            f"building the base of {self.want.profile}: Python {self.want.interpreter.version}, "
            f"{', '.join(self.want.packages)} (with {self.installer.name}; "
            f"log {self.project.shown(self.log)})"
        ))
        try:
            sources = self._sources()
            self.label = "making the environment"
            self._succeed(self.installer.create(self.want.interpreter))
            fetched = self._with_uv(sources) if self.installer.uv else self._with_pip(sources)
            self._record(sources, fetched, started)
        except BaseException:
            atomic.discard(self.venv)
            raise
        _clear(self.folder)
        base = find(self.project, self.want)
        assert base is not None
        self._tell(base.record)
        return base

    def _sources(self) -> indexes.Sources:
        """What pip is configured with and the profile names, without what does not answer."""
        sources = indexes.configured(self.want.interpreter.path)
        answering, self.silent = indexes.reachable(sources, self.want.indexes)
        for url, why in self.silent.items():
            self.emit(Said(f"package index {url} is skipped: {why}"))
        self.offline = not answering and not sources.no_index
        if not answering:
            self.emit(Said(
                "no package index answers: only link folders and wheels of earlier builds are used"
            ))
        return msgspec.structs.replace(sources, indexes=answering)

    def _with_uv(self, sources: indexes.Sources) -> Fetched:
        self.label = "installing"
        self._succeed(self.installer.install(self.want.packages, sources))
        if self.want.leave_out:
            self._succeed(self.installer.remove(self.want.leave_out))
        return uv_fetched(self._text())

    def _with_pip(self, sources: indexes.Sources) -> Fetched:
        """Wheels into the cache first, so that a kill while installing costs no download."""
        python = self.want.interpreter
        minor = re.match(r"\d+\.\d+", python.version)
        wheels = self.project.paths.wheels / (
            f"py{minor[0] if minor else ''}-{python.platform}{self.kind}"
        )
        with lock.hold(
            wheels / "lock", f"fetching wheels for {self.want.profile}", wait=3600,
            on_wait=lambda who: self.emit(Said(f"waiting for the wheels: {who}")),
        ):
            atomic.sweep(wheels)
            staging = wheels / f".fetch.{secrets.token_hex(4)}.tmp"
            staging.mkdir()
            try:
                self.label = "fetching"
                packages = self.want.packages
                self._succeed(self.installer.fetch(packages, sources, wheels, staging))
                fetched, exact = pip_fetched(self._text(), staging), pins(staging)
                exact = without(exact, self.want.leave_out)
                for wheel in staging.glob("*.whl"):
                    _keep(wheel, wheels / wheel.name)
            finally:
                atomic.discard(staging)
        self.label = "installing"
        if exact:
            self._succeed(self.installer.install(exact, sources, wheels))
        return fetched

    def _record(self, sources: indexes.Sources, fetched: Fetched, started: float) -> None:
        self.emit(Progress("checking"))
        here = site_packages(self.venv)
        extent = packages.measure(self.venv)
        if extent.hard_links:
            raise BuildFailed(
                f"{self.venv}: {len(extent.hard_links)} files share their content with a cache or "
                "another environment, so that an edit there would change this one",
                context=extent.hard_links[:5],
                hint="copies are needed: unset UV_LINK_MODE, then run the same command again",
            )
        record = BuildRecord(
            key=self.want.key, venv=self.venv.name, interpreter=self.want.interpreter,
            requested=self.want.packages, skipped=tuple(self.silent),
            indexes=tuple(indexes.bare(url) for url in sources.indexes),
            installer=self.installer.name, installed=packages.installed(here),
            records=packages.record_digests(here), fetched=fetched,
            torch=packages.torch_build(here), size=extent.size, files=extent.files,
            seconds=round(time.monotonic() - started, 1),
        )
        atomic.write(self.folder / RECORD, msgspec.json.encode(record))

    def _succeed(self, done: Finished) -> None:
        """Raise `BuildFailed` with the reason, the log and its last words, unless it went well."""
        if done.ok:
            return
        text = self._text()
        reason, hint = explain(text)
        if self.offline and "disk is full" not in reason:
            reason, hint = f"{reason} (and no package index answers)", OFFLINE_HINT
        last = [line.rstrip()[:200] for line in text.splitlines() if line.strip()][-LAST_LINES:]
        skipped = [f"skipped index {url}: {why}" for url, why in self.silent.items()]
        raise BuildFailed(
            f"the base of profile {self.want.profile} could not be built: {reason}",
            context=[
                *skipped, f"log: {self.project.shown(self.log)}", *(f"| {line}" for line in last)
            ],
            hint=hint or "read the log, then run the same command again",
        )

    def _tell(self, record: BuildRecord) -> None:
        size = record.fetched.size
        megabytes = f" ({size / 1e6:.0f} MB)" if size else ""
        self.emit(Said(
            f"base {record.key}: {len(record.installed)} packages, {record.files} files, "
            f"{record.size / 1e9:.2f} GB, in {record.seconds:.0f} s; "
            f"{record.fetched.count} downloaded{megabytes}"
        ))
        if record.torch:
            self.emit(Said(f"torch {record.torch}"))

    def _text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _tick(self, seconds: float, size: int) -> None:
        with open(self.log, "rb") as file:
            file.seek(max(0, size - 400))
            lines = file.read().decode("utf-8", "replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self.emit(Progress(self.label, detail=f"{seconds:.0f} s  {last}"))


def _keep(wheel: Path, at: Path) -> None:
    """Put a wheel into the cache, whole or not at all."""
    if at.exists() and at.stat().st_size == wheel.stat().st_size:
        return
    with open(wheel, "rb") as file:
        os.fsync(file.fileno())
    wheel.replace(at)


def _clear(folder: Path) -> None:
    """Remove the environments that the record does not name: left by a kill, or replaced."""
    for entry in _leavings(folder):
        atomic.discard(entry)
    atomic.sweep(folder)


def _leavings(folder: Path) -> list[Path]:
    record = read_record(folder)
    return [
        entry for entry in folder.glob("*")
        if entry.is_dir() and (record is None or entry.name != record.venv)
    ]
