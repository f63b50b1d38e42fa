"""The lock files that a killed git leaves behind, and whose they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Only stack writes to a repository itself, so what is locked there after a kill is stack's.
_NAMES = (
    "config.lock", "HEAD.lock", "packed-refs.lock", "packed-refs.new", "shallow.lock",
    "objects/pack/multi-pack-index.lock",
)
_FOLDERS = ("refs", "objects/info")
# In a worktree a user's git may be at work (or hold the index while an editor is open), so a lock
# there is stack's only beside this file, which stands while stack's own git writes. In the
# repository it stands while stack's git adds a worktree.
_MARK = "stack-writes"
_BEING_ADDED = ("", "initializing")  # what git writes into the lock of a worktree that it makes
_OF_WORKTREE = ("index.lock", "HEAD.lock")
_PATIENCE = 1.0  # seconds that a git whose stack was killed has to end by itself


@contextmanager
def marked(git_dir: Path) -> Iterator[None]:
    """Have the locks in `git_dir` known as ours, should we die in this block."""
    mark = git_dir / _MARK
    mark.touch()
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def free(git_dir: Path) -> None:
    """Remove the lock files that a killed git left in a repository and its worktrees.

    Only for the holder of stack's own lock on that repository.
    """
    for name in _NAMES:
        (git_dir / name).unlink(missing_ok=True)
    for folder in _FOLDERS:
        for held in (git_dir / folder).rglob("*.lock"):
            held.unlink(missing_ok=True)
    for mark in git_dir.glob(f"worktrees/*/{_MARK}"):
        free_worktree(mark.parent)
        mark.unlink()
    if (git_dir / _MARK).exists():
        free_added(git_dir)
        (git_dir / _MARK).unlink()


def free_added(git_dir: Path) -> None:
    """Have `git worktree prune` take a worktree that stack's own git was killed while adding."""
    for held in git_dir.glob("worktrees/*/locked"):
        if held.read_text(errors="replace").strip() in _BEING_ADDED:
            held.unlink()


def free_worktree(git_dir: Path) -> None:
    """Remove the lock files that stack's own git left in a worktree when it was killed."""
    held = [git_dir / name for name in _OF_WORKTREE]
    patient_until = time.monotonic() + _PATIENCE
    while any(one.exists() for one in held) and time.monotonic() < patient_until:
        time.sleep(0.02)
    for one in held:
        one.unlink(missing_ok=True)
