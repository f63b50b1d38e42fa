"""Writes that are seen whole or not at all, also after a crash."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

_WRITERS = 16


def write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Put `data` at `path`: temporary file beside it, flush, fsync, rename, fsync the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(staging, path)
    except BaseException:
        staging.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_many(folder: Path, files: Mapping[str, bytes]) -> None:
    """Like `write` for several files of one folder, which reach the disk together.

    Files that are equal already are left alone. A name may lead into a folder below.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {name: data for name, data in files.items() if not _holds(folder / name, data)}
    staged = {
        name: (folder / name).with_name(f".{Path(name).name}.{secrets.token_hex(4)}.tmp")
        for name in wanted
    }
    below = {staging.parent for staging in staged.values()} - {folder}
    for inner in below:
        inner.mkdir(exist_ok=True)
    try:
        with ThreadPoolExecutor(_WRITERS) as pool:  # so that the disk gathers many in one go
            list(pool.map(lambda name: _stage(staged[name], wanted[name]), wanted))
        for name, staging in staged.items():
            os.replace(staging, folder / name)
    except BaseException:
        for staging in staged.values():
            staging.unlink(missing_ok=True)
        raise
    for inner in below:
        sync_folder(inner)
    if wanted:
        sync_folder(folder)


def _stage(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


def write_if_changed(path: Path, data: bytes) -> bool:
    """Like `write`, but leave an equal file alone; true when the file was written."""
    try:
        if path.read_bytes() == data:
            return False
    except FileNotFoundError:
        pass
    write(path, data)
    return True


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to fill beside `path`; it becomes `path` in one rename when the block ends.

    An existing `path` is replaced; on an error nothing remains of the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    staging.mkdir()
    try:
        yield staging
        if path.is_symlink() or path.exists():
            discard(path)
        staging.rename(path)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    sync_folder(path.parent)


def discard(path: Path) -> None:
    """Remove a file or a folder; its name is gone at once, even if the removal is interrupted."""
    doomed = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.rename(doomed)
    except FileNotFoundError:
        return
    if doomed.is_dir() and not doomed.is_symlink():
        shutil.rmtree(doomed)
    else:
        doomed.unlink()


def replace_link(path: Path, target: str) -> None:
    """Point the symbolic link `path` at `target` in one rename."""
    staging = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    staging.symlink_to(target)
    staging.replace(path)
    sync_folder(path.parent)


def sweep(folder: Path) -> int:
    """Remove the leavings of killed processes (`.NAME.XXXXXXXX.tmp`) in a folder; how many."""
    count = 0
    if folder.is_dir():
        for entry in folder.glob(".*.tmp"):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
            count += 1
    return count
