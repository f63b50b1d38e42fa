"""What a recipe reads: some paths of a tree or of a folder, with ids that change as they do."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stack.errors import BuildFailed
from stack.model.objects import EXECUTABLE, FOLDER, SUBMODULE, SYMLINK, Entry
from stack.repo.odb import ObjectStore

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


class Source(msgspec.Struct, frozen=True):
    """The id of each path that is read, and how to write them all below a folder."""

    ids: Mapping[str, str]
    write: Callable[[Path], None]


def of_tree(odb: ObjectStore, tree: str, reads: Sequence[str], where: str) -> Source:
    """Paths of a git tree; `BuildFailed` for one that it does not have."""
    found: dict[str, Entry] = {}
    for path in reads:
        entry = Entry(FOLDER, tree) if path == "." else odb.find(tree, path.rstrip("/").encode())
        if entry is None:
            raise BuildFailed(f"{where}.reads: there is no {path} in tree {tree[:12]}")
        found[path] = entry

    def write(to: Path) -> None:
        for path, entry in found.items():
            _write(odb, entry, to / path)

    return Source({path: f"{entry.mode:o} {entry.oid}" for path, entry in found.items()}, write)


def _write(odb: ObjectStore, entry: Entry, to: Path) -> None:
    if entry.mode == FOLDER:
        to.mkdir(parents=True, exist_ok=True)
        for name, inner in odb.tree(entry.oid).items():
            _write(odb, inner, to / os.fsdecode(name))
        return
    if entry.mode == SUBMODULE:
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    data = odb.blob(entry.oid)
    if entry.mode == SYMLINK:
        to.symlink_to(os.fsdecode(data))
    else:
        to.write_bytes(data)
        to.chmod(0o755 if entry.mode == EXECUTABLE else 0o644)


def of_folder(root: Path, reads: Sequence[str], where: str) -> Source:
    """Paths of a folder on disk; their ids are of names, modes and contents."""
    for path in reads:
        if not (root / path).exists():
            raise BuildFailed(f"{where}.reads: there is no {path} in {root}")

    def write(to: Path) -> None:
        for path in reads:
            target = to / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if (root / path).is_dir():
                shutil.copytree(root / path, target, ignore=_LEFT_OUT, dirs_exist_ok=True)
            else:
                shutil.copy2(root / path, target)

    return Source({path: _identity(root / path) for path in reads}, write)


def _identity(path: Path) -> str:
    state = hashlib.sha256()
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    for file in files:
        if not file.is_file() or "__pycache__" in file.parts or file.suffix == ".pyc":
            continue
        name = file.relative_to(path).as_posix()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        state.update(f"{name}\0{os.access(file, os.X_OK)}\0{digest}\n".encode())
    return state.hexdigest()
