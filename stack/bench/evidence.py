"""Which patched files a trial's processes really loaded: what they said, and their bytecode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec


class Loaded(msgspec.Struct, frozen=True):
    """A file that a process imported: its name below an import folder, its place, its hash."""

    pid: int
    name: str
    file: str
    sha256: str

    def __str__(self) -> str:
        return f"process {self.pid} loaded {self.file}, which is not {self.name} of this arm"


def reported(report: Path) -> list[Loaded]:
    """What the processes said while they imported, in their order; a torn line is left out."""
    try:
        lines = report.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=Loaded))
        except (msgspec.DecodeError, RecursionError):
            continue
    return found


def wrong(loaded: Iterable[Loaded], expected: Mapping[str, str | None]) -> Loaded | None:
    """The first file that is not what it must be on this side."""
    return next((one for one in loaded if expected.get(one.name) != one.sha256), None)


def imported(
    pyc: Path, layers: Iterable[Path], site_packages: Path, patched: Iterable[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Of the `patched` modules, those imported from a layer, and those imported from the base.

    Under PYTHONPYCACHEPREFIX the interpreter keeps bytecode below the whole path of the source
    that it read, so the place of a module's bytecode says which file a worker really loaded. The
    root belongs to one set of layers, whose other trials did the same imports.
    """
    names = [name for name in patched if name.endswith(".py")]
    roots = list(layers)
    inside = tuple(name for name in names if any(_has(pyc, root, name) for root in roots))
    outside = tuple(name for name in names if _has(pyc, site_packages, name))
    return inside, outside


def _has(pyc: Path, root: Path, name: str) -> bool:
    source = pyc / (root / name).relative_to(root.anchor)
    return any(source.parent.glob(f"{source.stem}.*.pyc"))
