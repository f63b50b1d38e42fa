"""Remove what nothing needs any more: old bases and layers, leavings of killed runs, objects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.specifiers import SpecifierSet

from stack.errors import BuildFailed, Locked, StackError
from stack.flows.builds import environment, recipes, serve
from stack.flows.builds.jobs import job_of, jobs
from stack.flows.events import Emit, Said
from stack.flows.prefixes import replayed
from stack.flows.transaction import writing
from stack.repo.client import Git
from stack.store import atomic
from stack.store.project import Project


class Garbage(msgspec.Struct, frozen=True, kw_only=True):
    """Something to remove: where, why, and how large (bytes)."""

    path: str
    why: str
    size: int


def collect(project: Project, emit: Emit, *, dry_run: bool = False) -> list[Garbage]:
    """Remove the garbage of a project (with `dry_run`: only list it).

    Patch files, workspaces, the operation log and the ledger are never touched, nor what a profile
    of `stack.toml` would use again.
    """
    found = list(_garbage(project, emit))
    if dry_run:
        return found
    with writing(project, "gc", emit):
        for one in found:
            atomic.discard(project.paths.root / one.path)
        for name in project.settings.upstream:
            repository = project.paths.repository(name)
            if (repository / "HEAD").exists():
                Git(repository).run("gc", "--quiet", "--prune=2.weeks.ago")
    return found


def _garbage(project: Project, emit: Emit) -> Iterator[Garbage]:
    paths = project.paths
    for folder in (
        paths.state, paths.layers, paths.venvs, paths.logs, *paths.layers.glob("*"),
        *(paths.line(upstream, label) for upstream in project.settings.upstream
          for label in project.labels(upstream)),
    ):
        for left in sorted(folder.glob(".*.tmp")):
            yield _of(project, left, "left by a killed run")
    wanted = {name: _bases(project, name, emit) for name in project.settings.profile}
    keys = {key for found in wanted.values() for key in found}
    for base in sorted(paths.venvs.glob("*/")):
        if base.name not in keys:
            yield _of(project, base, "no profile wants this base any more")
    here = [
        name for name, found in wanted.items() if any((paths.venvs / key).exists() for key in found)
    ]
    needed = _needed(project, here, emit)
    for folder in sorted(paths.layers.glob("*/")):
        if not any(folder.name.startswith(f"{key}-") for key in keys):
            yield _of(project, folder, "its base is gone")
        elif needed is not None:
            trees, read = needed
            for layer in sorted(folder.glob("*/")):
                if layer.name in trees or recipes.read_by(layer) in read:
                    continue
                yield _of(project, layer, "no line has this prefix any more")
                if (record := folder / f"{layer.name}.json").exists():
                    yield _of(project, record, "the record of that layer")


def _bases(project: Project, name: str, emit: Emit) -> set[str]:
    """The keys of the bases that a profile would use again.

    Where its Python is not there now, they are those that it may have made.
    """
    profile = project.settings.profile[name]
    try:
        return {environment.wanted(project, name, profile).key}
    except BuildFailed as wrong:
        fits = SpecifierSet(profile.python)
        records = {
            folder.name: environment.read_record(folder)
            for folder in project.paths.venvs.glob("*/")
        }
        kept = {
            key for key, record in records.items()
            if record is None or fits.contains(record.interpreter.version, prereleases=True)
        }
        if kept:
            emit(Said(f"profile {name}: {wrong.message}; {len(kept)} bases are left alone", True))
        return kept


def _needed(
    project: Project, profiles: Sequence[str], emit: Emit
) -> tuple[set[str], set[recipes.Read | None]] | None:
    """The trees, and what recipes have read, of the prefixes of some profiles; None: not known."""
    trees: set[str] = {recipes.EMPTY, *serve.trees(project)}
    read: set[recipes.Read | None] = set()
    for name in profiles:
        profile = project.settings.profile[name]
        listed = jobs(project, name, profile)
        for job in listed:
            if job.line is None:
                read |= recipes.reads_of(job, None, project.paths.root)
        for text in profile.lines:
            line = project.find(text)
            try:
                with replayed(project, line, line.series.select(), emit, strict=False) as found:
                    trees |= {prefix.tree for prefix in found.prefixes}
                    if own := job_of(listed, line):
                        read |= recipes.reads_of(own, found, project.paths.root)
            except Locked:
                raise
            except StackError as wrong:
                emit(Said(f"{name}: {line.id}: {wrong.message}; layers are left alone", True))
                return None
    return trees, read


def _of(project: Project, path: Path, why: str) -> Garbage:
    return Garbage(path=project.shown(path), why=why, size=_size(path))


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total
