"""The files of a layer: real folders on the way to patched files, links for all the rest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.errors import BuildFailed
from stack.model.objects import EXECUTABLE, FILE, Entry, object_id
from stack.repo.odb import ObjectStore

Change = tuple[Entry | None, Entry | None]  # a path's entry at the pin and at the prefix
Node = dict[str, "Node | Entry | None"]  # a folder, or a file's new entry, None when removed


def import_name(package: str) -> str:
    """The name by which a folder of an upstream's tree (`src/flake`) is imported."""
    return package.rpartition("/")[2]


def split(
    changes: Mapping[bytes, Change], packages: Sequence[str]
) -> tuple[dict[str, Change], list[str]]:
    """Changed paths below the packages, as import paths, and the paths of all others."""
    inside: dict[str, Change] = {}
    outside: list[str] = []
    for raw, change in sorted(changes.items()):
        path = os.fsdecode(raw)
        for package in packages:
            if path.startswith(package + "/"):
                inside[import_name(package) + path[len(package) :]] = change
                break
        else:
            outside.append(path)
    return inside, outside


def refuse_other_files(site_packages: Path, what: str, inside: Mapping[str, Change]) -> None:
    """Raise `BuildFailed` naming the installed files that are not the pin's.

    A patch made for one text must not replace another.
    """
    wrong: list[str] = []
    for path, (before, after) in inside.items():
        found = _installed_id(site_packages / path)
        if after is not None and after.mode not in (FILE, EXECUTABLE):
            wrong.append(f"{path}: a link or a submodule cannot stand in a layer")
        elif before is None and found is not None:
            wrong.append(f"{path}: the patch adds this file, but the installed package has one")
        elif before is not None and found is None:
            wrong.append(f"{path}: the installed package has no such file")
        elif before is not None and found != before.oid:
            wrong.append(f"{path}: the installed file is not the pin's")
    if wrong:
        raise BuildFailed(
            f"{what} cannot become a layer: the installed package is not the pin's in "
            f"{len(wrong)} of the patched files",
            context=wrong,
            hint="name the pin's release in `packages` of the profile, or park the patch",
        )


def _installed_id(path: Path) -> str | None:
    try:
        return object_id("blob", path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None


class Shadow:
    """Fills the new folder `at` of a layer that will stand at `final`.

    Links are relative, so that a copied or moved project never points into another one's base.
    """

    def __init__(self, site_packages: Path, odb: ObjectStore, at: Path, final: Path) -> None:
        self.site_packages = site_packages
        self.odb = odb
        self.at = at
        self.final = final
        self.files: dict[str, str] = {}
        self.links = 0

    def fill(self, packages: Sequence[str], inside: Mapping[str, Change]) -> None:
        """Make the packages with their changes; a package without any is one link."""
        root = _nest(inside)
        for name in map(import_name, packages):
            change = root.get(name)
            if isinstance(change, dict):
                self._folder(name, change)
            else:
                self._link(name)

    def _folder(self, name: str, node: Node) -> None:
        source = self.site_packages / name
        (self.at / name).mkdir()
        if source.is_dir():
            for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
                if entry.name not in node and entry.name != "__pycache__":
                    self._link(f"{name}/{entry.name}")
        for entry_name, change in sorted(node.items()):
            path = f"{name}/{entry_name}"
            if isinstance(change, dict):
                self._folder(path, change)
            elif change is None:
                self.files[path] = ""
            else:
                self._file(path, change)
        if not any((self.at / name).iterdir()):
            (self.at / name).rmdir()

    def _file(self, name: str, entry: Entry) -> None:
        """Write a patched file, with the time of now: an old `.pyc` must not fit it."""
        data = self.odb.blob(entry.oid)
        mode = 0o755 if entry.mode == EXECUTABLE else 0o644
        with open(os.open(self.at / name, os.O_WRONLY | os.O_CREAT, mode), "wb") as file:
            file.write(data)
        self.files[name] = hashlib.sha256(data).hexdigest()

    def _link(self, name: str) -> None:
        target = os.path.relpath(self.site_packages / name, (self.final / name).parent)
        (self.at / name).symlink_to(target)
        self.links += 1


def _nest(inside: Mapping[str, Change]) -> Node:
    """Paths as a tree of folders."""
    root: Node = {}
    for path, (_, after) in inside.items():
        *folders, name = path.split("/")
        node = root
        for folder in folders:
            below = node.setdefault(folder, {})
            assert isinstance(below, dict)
            node = below
        node[name] = after
    return root
