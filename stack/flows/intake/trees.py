"""Whole trees that people edited, as inputs of a pile: a checkout, or an installed package."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stack.errors import StateError
from stack.flows.builds.shadow import import_name
from stack.flows.events import Emit
from stack.flows.intake import capture
from stack.flows.pile.read import Input
from stack.flows.prefixes import replayed
from stack.model.pile.parse import parse
from stack.repo import mirror as mirrors
from stack.repo.client import Git
from stack.store.project import Line, Project

_DIFF = (
    "--full-index", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
    "--src-prefix=a/", "--dst-prefix=b/",
)


def is_tree(project: Project, path: Path) -> bool:
    """Whether a folder is an upstream's checkout, or has an upstream's package installed."""
    return path.is_dir() and (
        _checkout_of(project, path) is not None or _site_packages(project, path) is not None
    )


def input_of(
    project: Project, path: Path, shown: str, line: Line | None, emit: Emit
) -> Input:
    """What was edited in a tree, as one diff. Raises `StateError` where nothing was."""
    name = _checkout_of(project, path)
    if name is not None:
        data = _edits(project, path, name)
    else:
        found = _site_packages(project, path)
        assert found is not None
        name, site = found
        chosen = line if line and line.series.upstream == name else project.find(name)
        data = _installed(project, chosen, site, emit)
    if not data:
        raise StateError(f"{path}: nothing was edited there", hint="name diffs, or another folder")
    parsed = parse(data)
    return Input(
        file=shown, path=path, sections=parsed.sections, damage=parsed.damage,
        digest=hashlib.sha256(data).hexdigest(),
    )


def _checkout_of(project: Project, path: Path) -> str | None:
    """The upstream whose commits and packages a work tree has."""
    if not (path / ".git").exists() or mirrors.objects_of(path) is None:
        return None
    for name, upstream in project.settings.upstream.items():
        packages = upstream.packages
        if packages and all((path / package).is_dir() for package in packages):
            return name
        if _pin_in(project, path, name) is not None:
            return name
    return None


def _pin_in(project: Project, path: Path, name: str) -> str | None:
    """The commit of a line of an upstream that leads to the checkout's HEAD."""
    for label in project.labels(name):
        commit = project.series(name, label).pin.commit
        if commit is not None:
            said = Git().run("-C", path, "merge-base", "--is-ancestor", commit, "HEAD", ok=None)
            if said.code == 0:
                return commit
    return None


def _edits(project: Project, path: Path, name: str) -> bytes:
    """What a checkout has over the pin that it stands on (else HEAD), untracked files and all."""
    base = _pin_in(project, path, name) or "HEAD"
    with tempfile.TemporaryDirectory(prefix="stack-checkout-") as folder:
        index = Path(folder, "index")
        own = Path(os.fsdecode(Git().run(
            "-C", path, "rev-parse", "--absolute-git-dir"
        ).out.rstrip(b"\n")))
        if (own / "index").exists():
            shutil.copy2(own / "index", index)  # with its time, which git compares
        objects = mirrors.objects_of(path)
        env = {
            "GIT_INDEX_FILE": str(index), "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(objects),
        }
        git = Git(own)
        git.run("add", "--all", worktree=path, env=env)
        return git.run("diff", "--cached", *_DIFF, base, worktree=path, env=env).out


def _site_packages(project: Project, path: Path) -> tuple[str, Path] | None:
    """The upstream whose package an environment has, and its site-packages."""
    options = [path, *sorted(path.glob("lib/python3*/site-packages"))]
    for site in options:
        if not any(site.glob("*.dist-info")):
            continue
        for name, upstream in project.settings.upstream.items():
            if any((site / import_name(one)).is_dir() for one in upstream.packages):
                return name, site
    return None


def _installed(project: Project, line: Line, site: Path, emit: Emit) -> bytes:
    """What was edited in an installed package, against what its RECORD says."""
    left_out: list[str] = []
    with replayed(project, line, (), emit) as replay:
        odb, pin = replay.odb, replay.prefixes[0].tree
        place = capture.Place(name=str(site), site_packages=site)
        edits = capture.edits_on_pin(project, line, place, odb, pin, left_out, ())
        after = capture.edited_tree(odb, pin, edits)
        odb.write(after)
        return replay.git.run("diff-tree", "-r", "-p", *_DIFF, pin, after).out


def inputs_of(
    project: Project, paths: Sequence[Path], folder: Path, line: Line | None, emit: Emit
) -> list[Input]:
    """The inputs that whole trees among some paths make."""
    found = []
    for path in paths:
        if is_tree(project, path):
            shown = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
            found.append(input_of(project, path, shown, line, emit))
    return found
