"""Repositories that hold upstream objects: the shared mirror, and the project's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from stack.errors import GitError, SourceError
from stack.repo import locks
from stack.repo.client import Git
from stack.store import atomic

Report = Callable[[str, float | None, float | None], None]
_PERCENT = re.compile(r"^(?:remote: )?([A-Z][a-z ]+):\s+(\d+)%")
# So that a user's own git, run in a worktree, writes the same bytes as ours.
_OWN_CONFIG = (
    ("core.autocrlf", "false"), ("core.fileMode", "true"), ("core.symlinks", "true"),
    ("core.quotePath", "false"), ("gc.auto", "0"), ("core.logAllRefUpdates", "true"),
)
# A partial repository asks its remote for what it lacks. The first came with git 2.44; the second
# keeps every git from it, which then says that the object is missing (or dies of the refusal).
_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}


def ensure_repository(folder: Path, alternates: Sequence[Path] = ()) -> Git:
    """The project's bare repository of an upstream, borrowing objects from `alternates`."""
    git = Git(folder)
    if not (folder / "HEAD").exists():
        with atomic.new_folder(folder) as fresh:
            Git().run("init", "--quiet", "--bare", "--initial-branch=none", str(fresh))
            for key, value in _OWN_CONFIG:
                Git(fresh).run("config", key, value)
    listed = folder / "objects" / "info" / "alternates"
    have = listed.read_text().splitlines() if listed.exists() else []
    want = [*have, *(str(path) for path in alternates if str(path) not in have)]
    want = [path for path in want if Path(path).is_dir()]
    if want != have:
        atomic.write(listed, "".join(f"{path}\n" for path in want).encode())
    return git


def objects_of(repository: Path) -> Path | None:
    """The object folder of a user's repository (a work tree, a worktree or a bare one)."""
    if not repository.is_dir():
        return None
    found = Git().run("-C", repository, "rev-parse", "--git-common-dir", ok=(0, 128))
    if found.code:
        return None
    return (repository / found.text / "objects").resolve()


def commits(git: Git, revisions: Sequence[str]) -> list[tuple[str, str] | None]:
    """Commit and tree of each revision that is in the repository, in one go and offline."""
    asked = "".join(f"{one}^{{commit}}\n{one}^{{tree}}\n" for one in revisions)
    told = git.run("cat-file", "--batch-check=%(objectname)", stdin=asked.encode(), env=_OFFLINE)
    said = told.text.split("\n") if revisions else []
    rows = [row if re.fullmatch(r"[0-9a-f]{40}", row) else None for row in said]
    return [
        (commit, tree) if commit is not None and tree is not None else None
        for commit, tree in zip(rows[::2], rows[1::2], strict=True)
    ]


def has_commit(git: Git, commit: str) -> bool:
    """Whether a commit is in the repository, without asking a remote for it."""
    found = git.run("cat-file", "-e", f"{commit}^{{commit}}", ok=None, env=_OFFLINE)
    return found.code == 0


def missing_objects(git: Git, tree: str) -> tuple[list[bytes], int]:
    """The ids of the objects of a tree that the repository does not have; how many it has."""
    listed = git.run("rev-list", "--objects", "--no-walk", "--missing=print", tree)
    rows = listed.out.splitlines()
    missing = [line[1:41] for line in rows if line.startswith(b"?")]
    return missing, len(rows) - len(missing)


class Mirror:
    """The bare, blobless mirror of one upstream's git repository, shared between projects."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.git = Git(folder)

    @property
    def exists(self) -> bool:
        return (self.folder / "HEAD").exists()

    def fetch(self, report: Report) -> None:
        """Make the mirror or bring it up to date: branches and tags, full history, no blobs.

        A mirror that cannot be filled is not there afterwards.
        """
        if not self.exists:
            with atomic.new_folder(self.folder) as fresh:
                Git().run("init", "--quiet", "--bare", "--initial-branch=none", str(fresh))
                for key, value in (
                    ("remote.origin.url", self.url),
                    ("remote.origin.fetch", "+refs/heads/*:refs/heads/*"),
                    ("remote.origin.promisor", "true"),
                    ("remote.origin.partialCloneFilter", "blob:none"),
                    ("extensions.partialClone", "origin"),
                    ("core.repositoryFormatVersion", "1"),
                ):
                    Git(fresh).run("config", key, value)
                _update(Git(fresh), self.url, report)
            return
        locks.free(self.folder)  # whoever fetches holds the mirror's lock
        self.git.run("config", "remote.origin.url", self.url)
        _update(self.git, self.url, report)

    def fetch_blobs(self, tree: str, report: Report) -> int:
        """Bring every object of `tree` that is missing here, in one request; how many."""
        missing, _ = missing_objects(self.git, tree)
        if missing:
            _network(
                self.git, self.url, "-c", "fetch.negotiationAlgorithm=noop", "fetch", "--progress",
                "--no-tags", "--no-write-fetch-head", "--recurse-submodules=no",
                "--filter=blob:none", "origin", "--stdin", stdin=b"\n".join(missing) + b"\n",
                report=report,
            )
        return len(missing)

    def resolve(self, revision: str) -> str | None:
        """The commit that a tag, a branch or a unique prefix means here."""
        if not self.exists:
            return None
        return resolve(self.git, revision)


def _update(git: Git, url: str, report: Report) -> None:
    _network(
        git, url, "fetch", "--progress", "--prune", "--tags", "--force", "--filter=blob:none",
        "origin", report=report,
    )


def _network(
    git: Git, url: str, *arguments: str, report: Report, stdin: bytes | None = None
) -> None:
    def progress(line: str) -> None:
        if match := _PERCENT.match(line):
            report(match[1].strip().lower(), float(match[2]), 100.0)

    try:
        git.run(*arguments, stdin=stdin, user_config=True, on_progress=progress)
    except GitError as wrong:
        last = [line for line in wrong.context[1:] if line.strip()]
        reason = last[-1].removeprefix("fatal: ") if last else wrong.message
        raise SourceError(f"{url} cannot be fetched: {reason}") from None


def resolve(git: Git, revision: str) -> str | None:
    """The full commit id of a revision in a repository, or None."""
    candidates = [revision]
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        candidates = [f"refs/tags/{revision}", f"refs/tags/v{revision}", f"refs/heads/{revision}"]
        if re.fullmatch(r"[0-9a-f]{4,39}", revision):
            candidates.append(revision)
    if "\n" in revision:
        return None
    return next((found[0] for found in commits(git, candidates) if found), None)
