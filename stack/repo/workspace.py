"""A worktree that belongs to stack: moved from commit to commit without losing anybody's work."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stack.errors import GitHeld, StateError
from stack.model.objects import EMPTY_TREE, SYMLINK, Entry
from stack.repo import locks
from stack.repo.client import Completed, Git
from stack.repo.mirror import missing_objects
from stack.repo.odb import ObjectStore
from stack.store import atomic


class Workspace:
    """The worktree `folder/tree` of a line, attached to the branch named like the line's label."""

    def __init__(self, repository: Git, folder: Path, branch: str) -> None:
        self.repository = repository
        self.folder = folder
        self.tree = folder / "tree"
        self.branch = f"refs/heads/{branch}"

    @property
    def exists(self) -> bool:
        return (self.tree / ".git").exists()

    @property
    def git(self) -> Git:
        """Git on the worktree's own HEAD and index."""
        return Git(self._git_dir())

    def _git_dir(self) -> Path:
        text = (self.tree / ".git").read_text()
        return Path(text.removeprefix("gitdir:").strip())

    def head(self) -> str | None:
        """The commit that the worktree stands at."""
        if not self.exists:
            return None
        found = self.git.run("rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1, 128)).text
        return found if found.strip("0") else None  # zeros while git makes the worktree

    def edited(self) -> list[str]:
        """Tracked files that differ from HEAD, and operations that a user's git has under way."""
        if not self.exists:
            return []
        status = self.git.run(
            "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames",
            worktree=self.tree, ok=(0, 128),
        )
        if status.code and self.head() is None:
            return []
        status.checked((0,))
        found = [
            os.fsdecode(entry[3:]) for entry in status.out.split(b"\0") if len(entry) > 3
        ]
        found += [
            f"({name} in progress)"
            for name in ("rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD")
            if (self._git_dir() / name).exists()
        ]
        return found

    def create(self, commit: str) -> None:
        """Make the worktree at `commit`; what a killed attempt left there is removed."""
        if self.tree.exists():
            shutil.rmtree(self.tree)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.repository.run("worktree", "prune", "--expire=now")
        git_dir = self.repository.git_dir
        assert git_dir is not None
        with locks.marked(git_dir):
            self.repository.run(
                # twice, since a killed `worktree add` leaves its entry locked
                "worktree", "add", "--quiet", "--force", "--force", "--no-checkout", "--detach",
                str(self.tree), commit,
            )
        self._leave_out(commit)
        self.run("read-tree", "--reset", "-u", commit)

    def _leave_out(self, commit: str) -> None:
        """Have git go without the files whose content no source has (left out for their size)."""
        missing = set(missing_objects(self.repository, f"{commit}^{{tree}}")[0])
        if not missing:
            return
        listed = self.repository.run("ls-tree", "-r", "-z", "--full-tree", commit)
        rows = [row.partition(b"\t") for row in listed.out.split(b"\0") if row]
        paths = [path for head, _, path in rows if head.split()[2] in missing]
        lines = [b"/*"] + [b"!/" + re.sub(rb"([\\*?\[ ])", rb"\\\1", path) for path in paths]
        atomic.write(self._sparse(), b"\n".join(lines) + b"\n")

    def _sparse(self) -> Path:
        return self._git_dir() / "info" / "sparse-checkout"

    def left_out(self) -> list[str]:
        """The files of upstream that the worktree goes without."""
        if not self.exists or not self._sparse().exists():
            return []
        lines = self._sparse().read_bytes().splitlines()
        kept = [line.removeprefix(b"!/") for line in lines if line.startswith(b"!/")]
        return [os.fsdecode(re.sub(rb"\\(.)", rb"\1", line)) for line in kept]

    def run(self, *arguments: str, ok: Sequence[int] = (0,)) -> Completed:
        """Git that writes the worktree's index or HEAD, heeding what is left out of it."""
        sparse = ("-c", "core.sparseCheckout=true") if self._sparse().exists() else ()
        return self._write(*sparse, *arguments, ok=ok)

    def _write(
        self, *arguments: str, stdin: bytes | None = None, ok: Sequence[int] = (0,)
    ) -> Completed:
        with locks.marked(self._git_dir()):
            return self.git.run(*arguments, worktree=self.tree, stdin=stdin, ok=ok)

    def remove(self) -> None:
        """Remove the worktree; `StateError` where files stand in it that git does not know."""
        if self.tree.exists():
            listed = self.git.run(
                "ls-files", "-z", "--others", "--exclude-standard", worktree=self.tree
            )
            others = [os.fsdecode(name) for name in listed.out.split(b"\0") if name]
            if others:
                raise StateError(
                    f"{self.tree}: the worktree holds files that git does not know",
                    context=others[:6], hint="move them away, then run the same command again",
                )
            atomic.discard(self.tree)
        self.repository.run("worktree", "prune", "--expire=now")

    def attach(self, commit: str) -> None:
        """Point the line's branch and the worktree's HEAD at `commit`."""
        self.repository.run("update-ref", "-m", "stack", self.branch, commit)
        self._write("symbolic-ref", "-m", "stack", "HEAD", self.branch)

    def move(self, old: str, new: str) -> None:
        """Bring index and files from `old` to `new`.

        `StateError` as a whole where work would be lost, or another git holds the index.
        """
        step = ("read-tree", "-m", "-u", "--exclude-per-directory=.gitignore", old, new)
        with refusing():
            done = self.run(*step, ok=(0, 128))
        if done.code:  # in a copied project every file looks touched until git has read it again
            self.run("update-index", "-q", "--refresh", ok=(0, 1))
            done = self.run(*step, ok=(0, 128))
        if done.code:
            lines = done.err.decode("utf-8", "replace").strip().splitlines()
            raise StateError(
                f"{self.tree}: the worktree holds files that this would overwrite",
                context=lines[:6], hint="move or commit them, then run the same command again",
            )

    def finish_move(self, odb: ObjectStore, old: str | None, new: str) -> None:
        """Complete a move that was killed: every file on the way becomes what `new` has.

        A file that is neither what `old` has, nor what `new` has, nor the beginning of it (a write
        that was cut) is somebody's work: `StateError` names it, and nothing is changed.
        """
        before = odb.commit(old).tree if old else EMPTY_TREE
        after = odb.commit(new).tree
        changed = odb.changed(before, after)
        foreign = [
            os.fsdecode(path)
            for path, (left, right) in changed.items()
            if not self._ours(odb, path, left, right)
        ]
        if foreign:
            raise StateError(
                f"{self.tree}: a command was killed here, and these files were edited since",
                context=sorted(foreign)[:6],
                hint="move them aside, then run the same command again",
            )
        self._write("read-tree", new)
        if left_out := self.left_out():
            names = b"\0".join(map(os.fsencode, left_out)) + b"\0"
            self._write("update-index", "--skip-worktree", "-z", "--stdin", stdin=names)
        wanted = [path for path, (_, right) in changed.items() if right is not None]
        for path, (_, right) in changed.items():
            if right is None:
                _remove(self.tree, path)
        self.git.run(
            "checkout-index", "--force", "-z", "--stdin", worktree=self.tree,
            stdin=b"\0".join(wanted) + b"\0" if wanted else b"",
        )
        self._write("update-index", "-q", "--refresh", ok=(0, 1))

    def _ours(
        self, odb: ObjectStore, path: bytes, left: Entry | None, right: Entry | None
    ) -> bool:
        full = os.path.join(os.fsencode(self.tree), path)
        try:
            here = Path(os.fsdecode(full))
            data = os.fsencode(here.readlink()) if here.is_symlink() else here.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except IsADirectoryError:
            return False
        if left is not None and data == odb.blob(left.oid):
            return True
        if right is None:
            return False
        new = odb.blob(right.oid)
        return data == new or (right.mode != SYMLINK and new.startswith(data))

    def reset(self, commit: str) -> None:
        """Have the worktree hold a commit, and nothing else that git does not ignore."""
        self.run("read-tree", "--reset", "-u", commit)
        self.run(*_ignoring(), "clean", "-fdq")

    def set_index(self, commit: str) -> None:
        """Make the index that of a commit; no file is touched."""
        self.run("read-tree", "--reset", commit)
        self.run("update-index", "-q", "--refresh", ok=(0, 1))

    def written_tree(self) -> str:
        """The tree of every file that git does not ignore; the index is left alone."""
        # of our own, since whoever only looks (--dry-run) takes no lock
        with tempfile.TemporaryDirectory(prefix="stack-index-") as folder:
            index = Path(folder, "index")
            if (self._git_dir() / "index").exists():
                # with its time: git reads again what changed in the second of the index
                shutil.copy2(self._git_dir() / "index", index)
            own = {"GIT_INDEX_FILE": str(index)}
            self.git.run(*_ignoring(), "add", "--all", worktree=self.tree, env=own)
            return self.git.run("write-tree", env=own).text

    def commits(self, base: str) -> list[str]:
        """The commits from `base` (not included) to HEAD, oldest first.

        Raises `StateError` where HEAD does not descend from `base`, or history has merges.
        """
        head = self.head()
        listed = self.git.run("rev-list", "--reverse", "--parents", f"{base}..HEAD")
        rows = [line.split() for line in listed.text.splitlines()]
        merges = [row[0] for row in rows if len(row) > 2]
        if merges:
            raise StateError(
                f"{self.tree}: commit {merges[0][:12]} is a merge, which a series cannot hold",
                hint="rebase the workspace into a straight line",
            )
        first = rows[0][1] if rows and len(rows[0]) > 1 else head
        if first != base:
            raise StateError(
                f"{self.tree}: HEAD does not stand on the pin {base[:12]}",
                hint="git rebase it onto the pin, or stack apply to start again",
            )
        return [row[0] for row in rows]


@contextmanager
def refusing() -> Iterator[None]:
    """Nothing has moved yet: a lock of another git is a reason to refuse."""
    try:
        yield
    except GitHeld as held:
        raise StateError(held.message, hint=held.hint) from None


def _ignoring() -> tuple[str, ...]:
    """The option that has git ignore what the user's own configuration says."""
    ignored = Git().run(
        "config", "--global", "--path", "--get", "core.excludesFile", ok=(0, 1, 128),
        user_config=True,
    ).text
    return ("-c", f"core.excludesFile={ignored}") if ignored else ()


def _remove(tree: Path, path: bytes) -> None:
    """Remove a file and the folders that it leaves empty."""
    full = Path(os.fsdecode(os.path.join(os.fsencode(tree), path)))
    full.unlink(missing_ok=True)
    for parent in full.parents:
        if parent == tree:
            break
        try:
            parent.rmdir()
        except OSError:
            break


def snapshot(odb: ObjectStore, files: Sequence[tuple[str, bytes]]) -> str:
    """The tree id of a folder of plain files, kept in `odb`."""
    changes: dict[bytes, Entry | None] = {
        name.encode(): Entry(0o100644, odb.add("blob", data)) for name, data in files
    }
    return odb.edit(EMPTY_TREE, changes)
