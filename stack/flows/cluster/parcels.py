"""Folders travel by content: a list of their entries, and of the contents only what is missing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from stack.errors import StateError
from stack.model.measure.trial import digest
from stack.store import atomic


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A file by the sha256 of its content, or a link into the installed packages."""

    path: str
    sha256: str = ""
    executable: bool = False
    link: str = ""


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """A folder without its contents; `key` names it, wherever it stands."""

    entries: tuple[Entry, ...]

    @property
    def key(self) -> str:
        return digest(msgspec.to_builtins(self.entries))

    @property
    def contents(self) -> list[str]:
        """The sha256 of what has to be there to make it."""
        return sorted({one.sha256 for one in self.entries if one.sha256})


def of_layer(layer: Path, site_packages: Path) -> tuple[Parcel, dict[str, Path]]:
    """A layer, and where each of its contents is to be read.

    Its links lead to installed packages, which every host has itself; `StateError` for another.
    """
    entries: list[Entry] = []
    where: dict[str, Path] = {}
    home = site_packages.resolve()
    for folder, folders, names in os.walk(layer):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*folders, *names):
            at = Path(folder, name)
            inside = at.relative_to(layer).as_posix()
            if at.is_symlink():
                target = Path(os.path.normpath(at.parent.resolve() / at.readlink()))
                if not target.is_relative_to(home):
                    raise StateError(
                        f"{at}: leads to {target}, which is not among the installed packages",
                        hint="stack build makes the layers again",
                    )
                entries.append(Entry(path=inside, link=target.relative_to(home).as_posix()))
            elif name in names:
                entries.append(_file(at, inside, where))
    return Parcel(entries=tuple(sorted(entries, key=lambda one: one.path))), where


def of_files(root: Path, files: Iterable[Path]) -> tuple[Parcel, dict[str, Path]]:
    """Some files below a folder, and where each of their contents is to be read."""
    where: dict[str, Path] = {}
    entries = [
        _file(path, path.relative_to(root).as_posix(), where) for path in sorted(set(files))
    ]
    return Parcel(entries=tuple(entries)), where


def _file(path: Path, inside: str, where: dict[str, Path]) -> Entry:
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    where[content] = path
    return Entry(path=inside, sha256=content, executable=os.access(path, os.X_OK))


class Store:
    """Contents that have come to this host, each a file named by its sha256."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lacks(self, contents: Sequence[str]) -> list[str]:
        """Those of some contents that never came here."""
        return [name for name in contents if not (self.folder / name).exists()]

    def put(self, data: bytes) -> None:
        """Keep a content."""
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic.write(self.folder / hashlib.sha256(data).hexdigest(), data)

    def make(self, parcel: Parcel, at: Path, site_packages: Path) -> None:
        """Have the folder of a parcel at `at`, in one rename, unless it is there.

        Raises `StateError` where a content is damaged or an entry leads out of the folder.
        """
        if at.is_dir():
            return
        at.parent.mkdir(parents=True, exist_ok=True)
        with atomic.new_folder(at) as staging:
            self.fill(parcel, staging, lambda path: at / path, site_packages)

    def fill(
        self, parcel: Parcel, folder: Path, final: Callable[[str], Path], site_packages: Path
    ) -> None:
        """Write the entries below `folder`; `final` is where each of them will stand."""
        for one in parcel.entries:
            path = folder / one.path
            if ".." in Path(one.path).parts or Path(one.path).is_absolute():
                raise StateError(f"{one.path}: leads out of its folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            if one.link:
                path.symlink_to(os.path.relpath(site_packages / one.link, final(one.path).parent))
                continue
            data = (self.folder / one.sha256).read_bytes()
            if hashlib.sha256(data).hexdigest() != one.sha256:
                (self.folder / one.sha256).unlink()
                raise StateError(f"{self.folder / one.sha256}: is not what its name says")
            path.write_bytes(data)
            path.chmod(0o755 if one.executable else 0o644)
