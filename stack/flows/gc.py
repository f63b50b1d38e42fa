"""Remove what nothing needs any more: old bases and layers, leavings of killed runs, loose objects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from stack.errors import Locked, StackError
from stack.flows import environment, serve
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
    keys = _wanted_bases(project, emit)
    if keys is None:
        return
    for base in sorted(paths.venvs.glob("*/")):
        if base.name not in keys:
            yield _of(project, base, "no profile wants this base any more")
    trees = _wanted_trees(project, emit)
    if trees is not None:
        trees |= serve.trees(project)
    for folder in sorted(paths.layers.glob("*/")):
        if not any(folder.name.startswith(f"{key}-") for key in keys):
            yield _of(project, folder, "its base is gone")
        elif trees is not None:
            for layer in sorted(folder.glob("*/")):
                if layer.name not in trees:
                    yield _of(project, layer, "no line has this prefix any more")
                    if (record := folder / f"{layer.name}.json").exists():
                        yield _of(project, record, "the record of that layer")


def _wanted_bases(project: Project, emit: Emit) -> set[str] | None:
    keys = set()
    for name, profile in project.settings.profile.items():
        try:
            keys.add(environment.wanted(project, name, profile).key)
        except StackError as wrong:
            emit(Said(f"profile {name}: {wrong.message}; bases and layers are left alone", True))
            return None
    return keys


def _wanted_trees(project: Project, emit: Emit) -> set[str] | None:
    trees: set[str] = set()
    for name, profile in project.settings.profile.items():
        for text in profile.lines:
            line = project.find(text)
            try:
                with replayed(project, line, line.series.select(), emit, strict=False) as found:
                    trees |= {prefix.tree for prefix in found.prefixes}
            except Locked:
                raise
            except StackError as wrong:
                emit(Said(f"{name}: {line.id}: {wrong.message}; layers are left alone", True))
                return None
    return trees


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
