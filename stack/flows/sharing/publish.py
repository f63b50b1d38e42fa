"""Publish: the commits of a line as a branch of another repository, on upstream's real commit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from stack.errors import GitError, SourceError, StateError, UsageError
from stack.flows.base import local_path
from stack.flows.events import Emit, Said
from stack.flows.sharing.share import Chain, chain
from stack.model.line.line import Member
from stack.model.project.settings import SourceKind
from stack.repo import mirror as mirrors
from stack.repo.client import Git
from stack.store.project import Line, Project


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that was pushed: where, its commit, what stood there before, the base under it."""

    remote: str
    branch: str
    head: str
    before: str | None
    base: str
    patches: tuple[str, ...]
    changed: bool


def publish(
    project: Project, line: Line, members: tuple[Member, ...], branch: str, remote: str,
    emit: Emit, *, force: bool = False, dry_run: bool = False,
) -> Published:
    """Push the line's commits to a branch of a remote, on top of the upstream's own commit.

    A branch that somebody else moved since we last pushed it is refused unless `force`. Raises
    `StateError` where only a release archive serves the pin: its base is no commit of upstream's.
    """
    where = _remote(project, line, remote)
    failed: list[str] = []
    for source in _sources(line):
        try:
            with chain(project, line, members, emit, source=source) as found:
                return push(project, line, found, branch, where, force=force, dry_run=dry_run)
        except SourceError as wrong:
            failed += [wrong.message, *wrong.context]
    raise StateError(
        f"{line.id}: no git source has the pin's commit, so its commits would not stand on "
        "upstream's", context=list(dict.fromkeys(failed)),
        hint=f"stack upstream add {line.series.upstream} URL|PATH; --format branch -o REPO makes a "
        "branch on the archive's tree",
    )


def _sources(line: Line) -> tuple[SourceKind, ...]:
    if line.series.pin.commit is None:
        sdist = line.series.pin.sdist
        short = f", which names {sdist.short} in part" if sdist and sdist.short else ""
        raise StateError(
            f"{line.id} is pinned at a release archive{short}: its base is a commit of our own, "
            "and nobody could merge with a branch on it",
            hint=f"stack rebase --line {line.id} --onto {line.series.upstream}@COMMIT carries it "
            "to a commit of upstream's",
        )
    return ("path", "git")


def push(
    project: Project, line: Line, found: Chain, branch: str, where: str, *, force: bool = False,
    dry_run: bool = False,
) -> Published:
    """Push the head of a chain to a branch; only where it stands as we left it, unless `force`."""
    git = found.replay.git
    ref = f"refs/heads/{branch}"
    if git.run("check-ref-format", ref, ok=(0, 1)).code:
        raise UsageError(f"`{branch}` cannot name a branch", hint="git check-ref-format says why")
    before = _stands(git, where, ref)
    mine = _memory(where, branch)
    known = git.run("rev-parse", "--verify", "--quiet", mine, ok=(0, 1)).text or None
    head = found.head
    if before not in (None, head, known) and not _is_ours(git, before, head) and not force:
        raise StateError(
            f"{where}: branch {branch} stands at {str(before)[:12]}, which was not pushed from "
            "here",
            hint=f"stack import --git {where} takes commits of it in; --force replaces it",
        )
    if not dry_run and before != head:
        try:
            git.run(
                "push", "--quiet", f"--force-with-lease={ref}:{before or ''}", where,
                f"{head}:{ref}", user_config=True,
            )
        except GitError as wrong:
            raise StateError(
                f"{where}: the push of {branch} was refused", context=wrong.context[1:],
                hint="git push by hand says more; a branch that is checked out there takes none",
            ) from None
    if not dry_run:
        git.run("update-ref", mine, head)
    return Published(
        remote=where, branch=branch, head=head, before=before, base=found.replay.base,
        patches=found.names, changed=before != head,
    )


def branch_in(
    project: Project, line: Line, members: tuple[Member, ...], branch: str, repository: Path,
    emit: Emit, *, force: bool = False, dry_run: bool = False,
) -> Published:
    """Make a branch of a line in a repository on this machine, from whichever source serves it."""
    if mirrors.objects_of(repository) is None:
        raise UsageError(f"{repository}: not a git repository", hint="git init makes one")
    with chain(project, line, members, emit) as found:
        if found.replay.source == "sdist":
            emit(Said(
                f"{line.id} comes from a release archive: the branch has no history of upstream's",
                warning=True,
            ))
        return push(
            project, line, found, branch, str(repository.resolve()), force=force, dry_run=dry_run
        )


def _stands(git: Git, where: str, ref: str) -> str | None:
    """The commit of a remote's branch; `SourceError` where the remote does not answer."""
    try:
        listed = git.run("ls-remote", "--quiet", where, ref, user_config=True)
    except GitError as wrong:
        said = [line.removeprefix("fatal: ") for line in wrong.context[1:] if line.strip()]
        raise StateError(
            f"{where} does not answer: {said[0] if said else wrong.message}",
            hint="--push takes a URL, a path, or a remote of the upstream's local repository",
        ) from None
    return listed.text.split()[0] if listed.text else None


def _is_ours(git: Git, before: str | None, head: str) -> bool:
    """Whether what stands there is part of what goes there."""
    if before is None or not mirrors.has_commit(git, before):
        return False
    return git.run("merge-base", "--is-ancestor", before, head, ok=(0, 1, 128)).code == 0


def _memory(where: str, branch: str) -> str:
    """The ref that remembers what we pushed last."""
    return f"refs/stack/published/{hashlib.sha256(where.encode()).hexdigest()[:12]}/{branch}"


def _remote(project: Project, line: Line, remote: str) -> str:
    """A URL or path as it is; a name as the upstream's local or the project's repository has it."""
    if "/" in remote or ":" in remote:
        path = Path(remote).expanduser()
        return str(path.resolve()) if path.exists() else remote
    _, upstream = project.upstream(line.series.upstream)
    for folder in (local_path(project, upstream), project.paths.root):
        if folder is None or mirrors.objects_of(folder) is None:
            continue
        found = Git().run("-C", folder, "remote", "get-url", remote, ok=(0, 2, 128))
        if found.code == 0:
            return found.text
    raise UsageError(f"no remote `{remote}`", hint="--push URL, PATH or a remote's name")
