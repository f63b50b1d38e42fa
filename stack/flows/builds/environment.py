"""The base environment of a profile: made once, never written again, found by what it was asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stack.bench.render import render_all, render_env
from stack.errors import BuildFailed
from stack.host import packages, pythons
from stack.model.project.build import BUILD_SCHEMA, BuildRecord, Interpreter, base_key
from stack.model.project.settings import Profile
from stack.store import lock
from stack.store.project import Project

RECORD = "record.json"
SHOWN = 20


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
    leave_out: tuple[str, ...] = ()
    env: Mapping[str, str] = {}

    def folder(self, project: Project) -> Path:
        return project.paths.venvs / self.key


def wanted(project: Project, name: str, profile: Profile) -> Wanted:
    """What the profile's base has to be on this machine."""
    where = f"stack.toml: profile.{name}"
    values = {"root": str(project.paths.root), "profile": name}
    interpreter = pythons.find(profile.python, f"{where}.python")
    requested = render_all(profile.packages, values, f"{where}.packages")
    extra = render_all(profile.indexes, values, f"{where}.indexes")
    env = render_env(profile.install_env, values, f"{where}.install-env")
    return Wanted(
        profile=name, interpreter=interpreter,
        key=base_key(interpreter, requested, extra, profile.leave_out, env),
        packages=requested, indexes=extra, leave_out=profile.leave_out, env=env,
    )


def find(project: Project, want: Wanted) -> Base | None:
    """The finished base that answers to `want`, if there is one."""
    return base_at(want.folder(project))


def base_at(folder: Path) -> Base | None:
    """The finished base in a folder, if there is one."""
    record = read_record(folder)
    if record is None:
        return None
    venv = folder / record.venv
    python = venv / "bin" / "python"
    if not python.exists():
        return None
    return Base(
        key=f"{record.key}-{record.venv}", venv=venv, python=python,
        site_packages=site_packages(venv), packages=record.installed, record=record,
    )


def read_record(folder: Path) -> BuildRecord | None:
    """The record of the base in a folder, unless it is absent or of another schema."""
    try:
        record = msgspec.json.decode((folder / RECORD).read_bytes(), type=BuildRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return record if record.schema == BUILD_SCHEMA else None


def site_packages(venv: Path) -> Path:
    """Where an environment's packages stand."""
    return next(iter(venv.glob("lib/python*/site-packages")), venv / "lib")


@contextmanager
def building(project: Project, profile: str) -> Iterator[None]:
    """Hold the lock under which anything of a build is written; `Locked` says who has it."""
    project.paths.ensure_state()
    with lock.hold(project.paths.venvs / "lock", f"stack build --profile {profile}"):
        yield


def values(project: Project, base: Base, profile: str) -> dict[str, object]:
    """The names that every template of a profile may use; a trial adds `out` and `layer`."""
    return {
        "root": str(project.paths.root), "python": str(base.python),
        "cache": str(project.paths.engine_caches), "models": str(models(project)),
        "cpus": len(os.sched_getaffinity(0)), "profile": profile,
    }


def models(project: Project) -> Path:
    """Where `prepare` commands leave what they make."""
    return project.paths.state / "models"


def check_base(base: Base, shadowed: Sequence[str], *, quick: bool = False) -> list[str]:
    """The files of the import packages `shadowed` that differ from what was installed.

    With `quick` only those are read whose inode changed after the base was made.
    """
    since = (base.venv.parent / RECORD).stat().st_ctime if quick else None
    return packages.edited(base.site_packages, shadowed, base.record.records, since=since)


def refuse_edited(
    base: Base, shadowed: Sequence[str], profile: str, *, quick: bool = False
) -> None:
    """Raise `BuildFailed` naming the files of the base that somebody edited."""
    wrong = check_base(base, shadowed, quick=quick)
    if wrong:
        more = [f"... and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        files = "1 file was" if len(wrong) == 1 else f"{len(wrong)} files were"
        raise BuildFailed(
            f"{base.site_packages}: {files} edited since the build",
            context=[*wrong[:SHOWN], *more],
            hint=f"stack build --profile {profile} --fresh makes it again; edit in a workspace "
            "(stack apply) and keep the change with stack export",
        )
