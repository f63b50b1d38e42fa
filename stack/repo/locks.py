"""The lock files that a killed git leaves behind, and whose they are."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stack.errors import GitError, GitHeld

_NAMES = (
    "config.lock", "HEAD.lock", "packed-refs.lock", "packed-refs.new", "shallow.lock",
    "objects/pack/multi-pack-index.lock",
)
_FOLDERS = ("refs", "objects/info")
_OURS = "refs/stack"  # which no user's git writes, and what only looks may have locked
# A user's git holds the index of a worktree for as long as an editor is open, and refs while a hook
# runs. So a lock is stack's only after this file, which stands while stack writes: in its state
# folder, in a worktree's git directory, and in a repository while a worktree is added to it.
MARK = "stack-writes"
_OF_WORKTREE = ("index.lock", "HEAD.lock")
_SOON = 5.0  # seconds after the mark in which git has locked an index, having waited for others
_PATIENCE = 1.0  # seconds: a user's git may have come since, and most are soon done


@contextmanager
def freed(state: Path, repositories: Iterable[Path]) -> Iterator[None]:
    """Free what a killed writer left, and have what we may leave known in `state`.

    Only for the holder of stack's own lock on them.
    """
    mark = state / MARK
    for repository in repositories:
        _remove(list((repository / _OURS).rglob("*.lock")))
        if mark.exists():
            free(repository, _time(mark))
    with marked(state):
        yield


@contextmanager
def marked(folder: Path) -> Iterator[None]:
    """Have the locks that are left there known as ours, should we or our git die in this block."""
    mark = folder / MARK
    mark.touch()
    died = False
    try:
        yield
    except GitError as wrong:
        died = not isinstance(wrong, GitHeld)  # of a signal, it may be
        raise
    finally:
        if not died:
            mark.unlink(missing_ok=True)


def free(git_dir: Path, since: float = 0.0) -> None:
    """Remove the locks that a git killed after `since` left in a repository and its worktrees.

    Only for the holder of stack's own lock on that repository.
    """
    held = [git_dir / name for name in _NAMES]
    for folder in _FOLDERS:
        held += (git_dir / folder).rglob("*.lock")
    _remove([one for one in held if _time(one) >= since])
    for mark in git_dir.glob(f"worktrees/*/{MARK}"):
        free_worktree(mark.parent)
        mark.unlink()
    if (git_dir / MARK).exists():
        free_added(git_dir)
        (git_dir / MARK).unlink()


def free_added(git_dir: Path) -> None:
    """Have `git worktree prune` take a worktree that stack's own git was killed while adding."""
    for held in git_dir.glob("worktrees/*/locked"):
        text = held.read_text(errors="replace").strip()
        # A user's lock may be empty, too; but git writes `gitdir` after its own.
        if text == "initializing" or (not text and not held.with_name("gitdir").exists()):
            held.unlink()


def free_worktree(git_dir: Path) -> None:
    """Remove the lock files that stack's own git left in a worktree when it was killed."""
    begun = _time(git_dir / MARK)
    held = [git_dir / name for name in _OF_WORKTREE]
    _remove([one for one in held if begun <= _time(one) <= begun + _SOON])


def _time(path: Path) -> float:
    """When a file was written; long ago where there is none."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return -1.0


def _remove(held: Sequence[Path]) -> None:
    patient_until = time.monotonic() + _PATIENCE
    while any(one.exists() for one in held) and time.monotonic() < patient_until:
        time.sleep(0.02)
    for one in held:
        one.unlink(missing_ok=True)
