"""Where everything stands on disk; the one place that knows the names."""

from __future__ import annotations

import os
from pathlib import Path

from stack.store import atomic

CONFIG = "stack.toml"


def cache_home() -> Path:
    """The cache shared by all projects: `$STACK_CACHE_DIR`, else `$XDG_CACHE_HOME/stack`."""
    if own := os.environ.get("STACK_CACHE_DIR"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "stack"


def state_home() -> Path:
    """What this user decided on this machine: `$XDG_STATE_HOME/stack`."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "stack"


def find_root(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a `stack.toml`."""
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / CONFIG).is_file():
            return folder
    return None


class Paths:
    """The folders and files of one project and of the shared cache."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root = root
        self.cache = cache

    @property
    def config(self) -> Path:
        return self.root / CONFIG

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    @property
    def state(self) -> Path:
        return self.root / ".stack"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def serving(self) -> Path:
        """The lock that every program of `stack run` shares while it runs."""
        return self.state / "serving.lock"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def ledger(self) -> Path:
        return self.state / "ledger"

    @property
    def venvs(self) -> Path:
        return self.state / "venvs"

    @property
    def layers(self) -> Path:
        return self.state / "layers"

    @property
    def engine_caches(self) -> Path:
        """Compile caches of engines, one folder per arm."""
        return self.state / "caches"

    def line(self, upstream: str, label: str) -> Path:
        """The folder of a line: `series.toml` and its patch files."""
        return self.patches / upstream / label

    def workspace(self, upstream: str, label: str) -> Path:
        """The folder of a workspace: `tree/` (the worktree), `receipt.json`, `journal.json`."""
        return self.state / "workspaces" / upstream / label

    def repository(self, upstream: str) -> Path:
        """The project's own bare repository of an upstream; it holds the applied commits."""
        return self.state / "repos" / f"{upstream}.git"

    def mirror(self, upstream: str) -> Path:
        """The bare, blobless mirror of an upstream in the cache."""
        return self.cache / "mirrors" / f"{upstream}.git"

    @property
    def sdists(self) -> Path:
        return self.cache / "sdists"

    @property
    def wheels(self) -> Path:
        return self.cache / "wheels"

    def ensure_state(self) -> None:
        """Make `.stack/`, which git ignores by its own rule."""
        ignore = self.state / ".gitignore"
        if not ignore.exists():
            atomic.write(ignore, b"*\n")
