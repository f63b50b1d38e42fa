"""The base environment of a profile: made once, never written again, found by what it was asked."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stack.bench.render import render_all
from stack.errors import BuildFailed
from stack.flows.events import Emit, Progress, Said
from stack.host import indexes, packages, pythons
from stack.host.process import Finished
from stack.host.venv import Installer, explain, pins, pip_fetched, uv_fetched
from stack.model.build import BUILD_SCHEMA, BuildRecord, Fetched, Interpreter, base_key
from stack.model.settings import Profile
from stack.store import atomic, lock
from stack.store.project import Project

LAST_LINES = 6


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """A finished base environment. `key` names this very one: a fresh one gets another."""

    key: str
    venv: Path
    python: Path
    site_packages: Path
    packages: tuple[str, ...]
    record: BuildRecord


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile asks of its base, rendered, and the key of that."""

    profile: str
    key: str
    interpreter: Interpreter
    packages: tuple[str, ...]
    indexes: tuple[str, ...]

    def folder(self, project: Project) -> Path:
        return project.paths.venvs / self.key


def wanted(project: Project, name: str, profile: Profile) -> Wanted:
    """What the profile's base has to be on this machine."""
    where = f"stack.toml: profile.{name}"
    values = {"root": str(project.paths.root), "profile": name}
    interpreter = pythons.find(profile.python, f"{where}.python")
    requested = render_all(profile.packages, values, f"{where}.packages")
    extra = render_all(profile.indexes, values, f"{where}.indexes")
    return Wanted(
        profile=name, key=base_key(interpreter, requested, extra), interpreter=interpreter,
        packages=requested, indexes=extra,
    )


def find(project: Project, want: Wanted) -> Base | None:
    """The finished base that answers to `want`, if there is one."""
    try:
        data = (want.folder(project) / "record.json").read_bytes()
        record = msgspec.json.decode(data, type=BuildRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    venv = want.folder(project) / record.venv
    python = venv / "bin" / "python"
    if record.schema != BUILD_SCHEMA or not python.exists():
        return None
    return Base(
        key=f"{want.key}-{record.venv}", venv=venv, python=python,
        site_packages=_site_packages(venv), packages=record.installed, record=record,
    )


def ensure(
    project: Project, want: Wanted, emit: Emit, *, fresh: bool = False
) -> tuple[Base, bool]:
    """The base that `want` names, made if need be; true when it was made.

    A finished base is checked, and one with edited files refused. Raises `BuildFailed`.
    """
    found = None if fresh else find(project, want)
    if found is not None:
        return found, False
    with building(project, want.profile):
        found = None if fresh else find(project, want)
        return (found, False) if found else (_make(project, want, emit), True)


@contextmanager
def building(project: Project, profile: str) -> Iterator[None]:
    """Hold the lock under which anything of a build is written."""
    project.paths.ensure_state()
    with lock.hold(project.paths.venvs / "lock", f"stack build --profile {profile}"):
        yield


def check_base(base: Base, shadowed: tuple[str, ...]) -> list[str]:
    """The files of import packages `shadowed` that differ from what was installed."""
    return packages.edited(base.site_packages, shadowed, base.record.records)


def refuse_edited(base: Base, shadowed: tuple[str, ...], profile: str) -> None:
    """Raise `BuildFailed` naming the files of the base that somebody edited."""
    wrong = check_base(base, shadowed)
    if wrong:
        more = [f"... and {len(wrong) - 20} more"] if len(wrong) > 20 else []
        raise BuildFailed(
            f"{base.site_packages}: {len(wrong)} installed file{'s' * (len(wrong) > 1)} "
            "edited since the build; no layer and no measurement on it would mean anything",
            context=[*wrong[:20], *more],
            hint=f"keep the edit as a patch (stack export), then stack build --profile {profile} "
            "--fresh",
        )


def _make(project: Project, want: Wanted, emit: Emit) -> Base:
    """Make the base in a folder of a new name; the record, written last, is what makes it count."""
    started = time.monotonic()
    folder = want.folder(project)
    _clear(folder, keep=None)
    venv = folder / secrets.token_hex(4)
    log = project.paths.logs / f"build-{want.key}-{venv.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    step = _Step(emit, log)
    installer = Installer(venv, log, step.tick)
    sources = indexes.configured(want.interpreter.path)
    answering, silent = indexes.reachable(sources, want.indexes)
    for url, why in silent.items():
        emit(Said(f"package index {url} is skipped: {why}"))
    if not answering:
        emit(Said("no package index answers; using local links and wheels kept from earlier builds"))
    sources = msgspec.structs.replace(sources, indexes=answering)
    emit(Said(
        f"building the base of {want.profile}: Python {want.interpreter.version}, "
        f"{' '.join(want.packages)} (with {installer.name}; log {project.shown(log)})"
    ))
    try:
        step.label = "making the environment"
        _succeed(installer.create(want.interpreter), project, want, log, silent)
        fetched = _fill(installer, project, want, sources, step, silent)
        base = _finish(project, want, installer, sources, silent, fetched, started)
    except BaseException:
        atomic.discard(venv)
        raise
    _clear(folder, keep=venv.name)
    record = base.record
    size = f", {record.fetched.size / 1e6:.0f} MB" if record.fetched.size is not None else ""
    emit(Said(
        f"base {want.key}: {len(record.installed)} packages, {record.files} files, "
        f"{record.size / 1e9:.2f} GB in {record.seconds:.0f} s; "
        f"downloaded {record.fetched.count} packages{size}"
    ))
    if record.torch:
        emit(Said(f"torch {record.torch}"))
    return base


def _fill(
    installer: Installer, project: Project, want: Wanted, sources: indexes.Sources, step: _Step,
    silent: indexes.Silent,
) -> Fetched:
    """Install the packages; what was downloaded."""
    if installer.uv:
        step.label = "installing"
        _succeed(installer.install(want.packages, sources), project, want, step.log, silent)
        return uv_fetched(step.text())
    tag = f"py{want.interpreter.version}-{want.interpreter.platform}"
    wheels = project.paths.wheels / re.sub(r"\.\d+-", "-", tag, count=1)
    waiting = lambda who: emit(Said(f"waiting for the wheels: {who}"))  # noqa: E731
    emit = step.emit
    with lock.hold(wheels / "lock", f"fetching for {want.profile}", wait=3600, on_wait=waiting):
        atomic.sweep(wheels)
        staging = wheels / f".fetch.{secrets.token_hex(4)}.tmp"
        staging.mkdir()
        try:
            step.label = "fetching"
            done = installer.fetch(want.packages, sources, wheels, staging)
            _succeed(done, project, want, step.log, silent)
            fetched, exact = pip_fetched(step.text(), staging), pins(staging)
            for wheel in staging.glob("*.whl"):
                _keep(wheel, wheels / wheel.name)
        finally:
            atomic.discard(staging)
    step.label = "installing"
    _succeed(installer.install(exact, sources, wheels), project, want, step.log, silent)
    return fetched


def _keep(wheel: Path, at: Path) -> None:
    """Put a wheel into the cache, whole or not at all."""
    if at.exists() and at.stat().st_size == wheel.stat().st_size:
        return
    with open(wheel, "rb") as file:
        os.fsync(file.fileno())
    wheel.replace(at)


def _finish(
    project: Project, want: Wanted, installer: Installer, sources: indexes.Sources,
    silent: indexes.Silent, fetched: Fetched, started: float,
) -> Base:
    site_packages = _site_packages(installer.venv)
    extent = packages.measure(installer.venv)
    if extent.hard_links:
        raise BuildFailed(
            f"{installer.venv}: {len(extent.hard_links)} files share their content with another "
            "environment or a cache, so that an edit there would change this one",
            context=extent.hard_links[:5],
            hint="unset UV_LINK_MODE and PIP_* variables, then run the same command again",
        )
    record = BuildRecord(
        key=want.key, venv=installer.venv.name, interpreter=want.interpreter,
        requested=want.packages, indexes=tuple(indexes.bare(url) for url in sources.indexes),
        skipped=tuple(silent), installer=installer.name,
        installed=packages.installed(site_packages),
        records=packages.record_digests(site_packages), fetched=fetched,
        torch=packages.torch_build(site_packages), size=extent.size, files=extent.files,
        seconds=round(time.monotonic() - started, 1),
    )
    atomic.write(want.folder(project) / "record.json", msgspec.json.encode(record))
    base = find(project, want)
    assert base is not None
    return base


def _clear(folder: Path, *, keep: str | None) -> None:
    """Remove environments that no record names: left by a kill, or older than a fresh one."""
    recorded = keep
    try:
        record = msgspec.json.decode((folder / "record.json").read_bytes(), type=BuildRecord)
        recorded = record.venv
    except (FileNotFoundError, msgspec.DecodeError):
        pass
    atomic.sweep(folder)
    if folder.is_dir():
        for entry in folder.iterdir():
            if entry.is_dir() and entry.name not in (keep, recorded):
                atomic.discard(entry)


def _succeed(
    done: Finished, project: Project, want: Wanted, log: Path, silent: indexes.Silent
) -> None:
    """Raise `BuildFailed` with the reason, the log and its last words, unless a step went well."""
    if done.ok:
        return
    text = log.read_text(encoding="utf-8", errors="replace")
    reason, hint = explain(text)
    last = [line.rstrip()[:200] for line in text.splitlines() if line.strip()][-LAST_LINES:]
    skipped = [f"skipped index {url}: {why}" for url, why in silent.items()]
    raise BuildFailed(
        f"the base of profile {want.profile} could not be built: {reason}",
        context=[*skipped, f"log: {project.shown(log)}", *(f"| {line}" for line in last)],
        hint=hint or "read the log, then run the same command again",
    )


def _site_packages(venv: Path) -> Path:
    return next(iter(venv.glob("lib/python*/site-packages")), venv / "lib")


class _Step:
    """Progress of one step: its label, and the last line of the log."""

    def __init__(self, emit: Emit, log: Path) -> None:
        self.emit = emit
        self.log = log
        self.label = ""

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tick(self, seconds: float, size: int) -> None:
        with open(self.log, "rb") as file:
            file.seek(max(0, size - 400))
            lines = file.read().decode("utf-8", "replace").splitlines()
        detail = next((line.strip() for line in reversed(lines) if line.strip()), "")
        self.emit(Progress(self.label, detail=f"{seconds:.0f} s  {detail}"))
