"""Layers: a folder per prefix that shadows the installed packages with the patched files."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stack.errors import BuildFailed, ConfigError
from stack.flows.builds.environment import Base
from stack.flows.builds.shadow import Shadow, import_name, refuse_other_files, split
from stack.flows.prefixes import Prefix, Replayed
from stack.host import process
from stack.model.project.build import LAYER_SCHEMA, LayerRecord
from stack.store import atomic
from stack.store.project import Project

PROBE = Path(__file__).parents[2] / "bench" / "drivers" / "probe.py"


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """A finished layer: `path` goes first on PYTHONPATH.

    `files` maps each patched file's path below `path` to its sha256, "" for a removed one.
    """

    tree: str
    path: Path
    files: Mapping[str, str]


def place(project: Project, base: Base, tree: str) -> Path:
    """Where the layer of a tree stands; its record is the file beside it."""
    return project.paths.layers / base.key / tree


def find(project: Project, base: Base, tree: str, packages: Sequence[str]) -> Layer | None:
    """The finished layer of a tree, if it is there and nobody edited it."""
    path = place(project, base, tree)
    try:
        record = msgspec.json.decode(_record(path).read_bytes(), type=LayerRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    if record.schema != LAYER_SCHEMA or record.packages != tuple(packages):
        return None
    return _layer(path, record) if _intact(path, record) else None


def edits(project: Project, base: Base, tree: str) -> list[str]:
    """The files of a tree's layer that somebody edited by hand since it was made."""
    path = place(project, base, tree)
    try:
        record = msgspec.json.decode(_record(path).read_bytes(), type=LayerRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return []
    if record.schema != LAYER_SCHEMA or not path.is_dir():
        return []
    return edited(path, record.files, record.links)


def make(
    project: Project, base: Base, line: Replayed, prefix: Prefix, packages: Sequence[str]
) -> Layer:
    """Make the layer of a prefix: in one rename, probed, its record last.

    `packages` are folders of the upstream's tree, each an import package. Raises `BuildFailed`
    where an installed file that a patch changes is not the pin's, or a worker would not load the
    patched files.
    """
    changes = line.odb.changed(line.prefixes[0].tree, prefix.tree)
    inside, outside = split(changes, packages)
    refuse_other_files(base.site_packages, f"the prefix up to `{prefix.name}`", inside)
    path = place(project, base, prefix.tree)
    _record(path).unlink(missing_ok=True)
    atomic.sweep(path.parent)
    with atomic.new_folder(path) as staging:
        shadow = Shadow(base.site_packages, line.odb, staging, path)
        shadow.fill(packages, inside)
    probe(base.python, path, shadow.files, packages, {"PYTHONPATH": str(path)})
    record = LayerRecord(
        tree=prefix.tree, base=base.key, packages=tuple(packages), files=shadow.files,
        outside=tuple(outside), links=shadow.links, probed=True,
    )
    atomic.write(_record(path), msgspec.json.encode(record))
    return _layer(path, record)


def check_packages(base: Base, packages: Sequence[str], upstream: str) -> None:
    """Raise unless the base has each import package of the upstream."""
    if not packages:
        raise ConfigError(
            f"stack.toml: upstream.{upstream} has no `packages`, so a layer would hold nothing",
            hint='packages = ["NAME"]: the folders of its tree that are import packages',
        )
    for name in map(import_name, packages):
        if not (base.site_packages / name).is_dir():
            raise BuildFailed(
                f"the base has no import package `{name}` for {upstream} to shadow",
                context=[f"looked in {base.site_packages}"],
                hint="name the distribution that brings it in `packages` of the profile",
            )


def probe(
    python: Path, path: Path, files: Mapping[str, str], packages: Sequence[str],
    env: Mapping[str, str],
) -> None:
    """Have an environment's Python say which files a process and its worker load with `env`.

    Raises `BuildFailed` where they are not those of the layer at `path`.
    """
    expected: dict[str, str | None] = {name: digest or None for name, digest in files.items()}
    for package in packages:
        name = f"{import_name(package)}/__init__.py"
        if (path / name).exists():
            digest = hashlib.sha256((path / name).read_bytes()).hexdigest()
            expected.setdefault(name, digest)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    with tempfile.TemporaryDirectory() as empty:
        code, out, err = process.capture(
            [str(python), "-P", str(PROBE), "-"], cwd=Path(empty), timeout=120,
            env={**kept, **env, "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=msgspec.json.encode(expected),
        )
    if code == 0:
        return
    try:
        wrong = msgspec.json.decode(out)["wrong"]
    except (msgspec.DecodeError, KeyError, TypeError):
        last = err.decode("utf-8", "replace").strip().splitlines()[-4:]
        raise BuildFailed(
            f"{path}: {python} could not say which files it loads", context=last,
            hint="stack build --fresh, if that Python is damaged",
        ) from None
    raise BuildFailed(
        f"{path}: a worker would not load the files of this layer", context=wrong,
        hint="something else comes first on the import path; look for .pth files in the base",
    )


def _intact(path: Path, record: LayerRecord) -> bool:
    """Whether a layer holds exactly what its record says: no link replaced, no file edited."""
    return not edited(path, record.files, record.links)


def edited(path: Path, files: Mapping[str, str], expected_links: int) -> list[str]:
    """The files of a layer that are not as it was made, by path; `(gone)` and `(added)` behind.

    `files` are its patched files by sha256, `expected_links` how many links it was made with.
    """
    found: dict[str, str] = {}
    links = 0
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*folders, *names):
            at = Path(folder, name)
            if at.is_symlink():
                links += 1
            elif name in names:
                digest = hashlib.sha256(at.read_bytes()).hexdigest()
                found[at.relative_to(path).as_posix()] = digest
    expected = {name: digest for name, digest in files.items() if digest}
    wrong = [f"{name} (gone)" for name in expected.keys() - found.keys()]
    for name, digest in found.items():
        if name not in expected:
            wrong.append(f"{name} (added)")
        elif digest != expected[name]:
            wrong.append(name)
    if links != expected_links and not wrong:
        wrong.append(f"{path.name} ({links} links, was {expected_links})")
    return sorted(wrong)


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _layer(path: Path, record: LayerRecord) -> Layer:
    return Layer(tree=record.tree, path=path, files=record.files)
