"""What an arm's own bytecode cache tells about the files that its processes imported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


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
