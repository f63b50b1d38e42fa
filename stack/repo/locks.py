"""The lock files that a killed git leaves behind, and whose they are."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_NAMES = (
    "config.lock", "HEAD.lock", "packed-refs.lock", "packed-refs.new", "shallow.lock",
    "objects/pack/multi-pack-index.lock",
)
_FOLDERS = ("refs", "objects/info")
# A user's git holds the index of a worktree for as long as an editor is open, so a lock there is
# stack's only beside this file, which stands while stack's own git writes. In the repository it
# stands while stack's git adds a worktree.
_MARK = "stack-writes"
_BEING_ADDED = ("", "initializing")  # what git writes into the lock of a worktree that it makes
_OF_WORKTREE = ("index.lock", "HEAD.lock")
_PATIENCE = 1.0  # seconds: a user's `git commit` locks its branch, too, and is soon done


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
    held = [git_dir / name for name in _NAMES]
    for folder in _FOLDERS:
        held += (git_dir / folder).rglob("*.lock")
    marks = list(git_dir.glob(f"worktrees/*/{_MARK}"))
    held += [mark.with_name(name) for mark in marks for name in _OF_WORKTREE]
    _remove(held)
    for mark in marks:
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
    _remove([git_dir / name for name in _OF_WORKTREE])


def _remove(held: Sequence[Path]) -> None:
    patient_until = time.monotonic() + _PATIENCE
    while any(one.exists() for one in held) and time.monotonic() < patient_until:
        time.sleep(0.02)
    for one in held:
        one.unlink(missing_ok=True)
