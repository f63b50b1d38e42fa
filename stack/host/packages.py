"""What stands in an environment's site-packages: sizes, links, versions, and edited files."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path

import msgspec

RECORD = "RECORD"


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much a folder holds: files, bytes, and the files that share their inode with another."""

    files: int
    size: int
    hard_links: tuple[str, ...]


def measure(folder: Path) -> Extent:
    """Walk a folder once; links are not followed."""
    files = size = 0
    shared: list[str] = []
    for entry in _entries(str(folder)):
        status = entry.stat(follow_symlinks=False)
        files += 1
        size += status.st_size
        if status.st_nlink > 1:
            shared.append(os.path.relpath(entry.path, folder))
    return Extent(files=files, size=size, hard_links=tuple(sorted(shared)))


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _entries(entry.path)
            else:
                yield entry


def installed(site_packages: Path) -> tuple[str, ...]:
    """`name==version` of every distribution, sorted."""
    found = {f"{dist.name}=={dist.version}" for dist in distributions(path=[str(site_packages)])}
    return tuple(sorted(found, key=str.lower))


def record_digests(site_packages: Path) -> dict[str, str]:
    """The sha256 of each distribution's RECORD, by the name of its `.dist-info` folder."""
    return {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(site_packages.glob(f"*.dist-info/{RECORD}"))
    }


def torch_build(site_packages: Path) -> str | None:
    """How torch calls itself, `2.13.0+cpu: CPU build` for one; None where there is none.

    Read from `torch/version.py`, since importing torch costs seconds.
    """
    try:
        text = (site_packages / "torch" / "version.py").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    said = dict(re.findall(r"^(\w+)(?::[^=\n]+)? = ['\"]([^'\"]+)['\"]", text, re.MULTILINE))
    kinds = [f"{name.upper()} {said[name]}" for name in ("cuda", "hip", "xpu") if name in said]
    return f"{said.get('__version__', '?')}: {', '.join(kinds) or 'CPU'} build"


def edited(
    site_packages: Path, packages: Sequence[str], records: Mapping[str, str], *,
    since: float | None = None,
) -> list[str]:
    """Files of import `packages` that are not what was installed, as paths in site-packages.

    `records` are the RECORD digests of the time of installation. A file counts when its content
    differs, when it is gone, or when nobody installed it; `__pycache__` does not count. With
    `since` (seconds since the epoch) only files whose inode changed after it are read.
    """
    wrong: list[str] = []
    expected: dict[str, str] = {}
    for dist_info, digest in records.items():
        path = site_packages / dist_info / RECORD
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            wrong.append(f"{dist_info}/{RECORD} (gone)")
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            wrong.append(f"{dist_info}/{RECORD}")
        else:
            expected |= _listed(data, packages)
    found = {
        name: changed for package in packages for name, changed in _walk(site_packages, package)
    }
    names = [n for n in expected if since is None or found.get(n, since + 1) > since]
    with ThreadPoolExecutor(max_workers=2) as pool:  # hashing runs outside of the interpreter lock
        checked = pool.map(lambda name: _compare(site_packages, name, expected[name]), names)
        wrong += [text for text in checked if text]
    wrong += [f"{name} (added)" for name in found if name not in expected]
    return sorted(wrong)


def _walk(site_packages: Path, package: str) -> Iterator[tuple[str, float]]:
    """The files of an import package but bytecode, and when each inode last changed."""
    waiting = [package]
    while waiting:
        folder = waiting.pop()
        try:
            entries = os.scandir(site_packages / folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        with entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield f"{folder}/{entry.name}", entry.stat(follow_symlinks=False).st_ctime
                elif entry.name != "__pycache__":
                    waiting.append(f"{folder}/{entry.name}")


def listed(dist_info: Path, packages: Sequence[str]) -> dict[str, str]:
    """The files of import `packages` in a RECORD: path to urlsafe base64 of the sha256."""
    try:
        return _listed((dist_info / RECORD).read_bytes(), packages)
    except FileNotFoundError:
        return {}


def owner(site_packages: Path, package: str) -> Path | None:
    """The `.dist-info` folder of the distribution that brought an import package.

    The one whose RECORD lists the most files of it; for an installation without such files (an
    editable one) the one that its `top_level.txt` names.
    """
    best: tuple[int, Path] | None = None
    for record in sorted(site_packages.glob(f"*.dist-info/{RECORD}")):
        count = record.read_bytes().count(b"\n" + package.encode() + b"/")
        if count and (best is None or count > best[0]):
            best = count, record.parent
    if best is not None:
        return best[1]
    for names in sorted(site_packages.glob("*.dist-info/top_level.txt")):
        if package in names.read_text(encoding="utf-8").split():
            return names.parent
    return None


def version_of(dist_info: Path) -> str:
    """The version of a distribution, from the name of its `.dist-info` folder."""
    return dist_info.name.removesuffix(".dist-info").partition("-")[2]


def _listed(record: bytes, packages: Sequence[str]) -> dict[str, str]:
    """The hashed files of `packages` in a RECORD: path to urlsafe base64 of the sha256."""
    found: dict[str, str] = {}
    if not any(f"{package}/".encode() in record for package in packages):
        return found
    for row in csv.reader(record.decode("utf-8").splitlines()):
        if len(row) > 1 and row[0].partition("/")[0] in packages:
            method, _, digest = row[1].partition("=")
            if method == "sha256":
                found[row[0]] = digest
    return found


def _compare(site_packages: Path, name: str, digest: str) -> str | None:
    try:
        with open(site_packages / name, "rb") as file:
            found = hashlib.file_digest(file, "sha256").digest()
    except (FileNotFoundError, NotADirectoryError):
        return f"{name} (gone)"
    same = base64.urlsafe_b64encode(found).decode().rstrip("=") == digest
    return None if same else name
