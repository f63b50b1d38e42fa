"""Import of a fork that lives as a git branch: its commits become patches of a line."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stack.errors import Conflict, StateError, UsageError
from stack.flows.events import Emit
from stack.flows.intake.mails import Placed, import_mails
from stack.model.project.settings import SourceKind
from stack.repo import mirror as mirrors
from stack.repo.client import Git
from stack.repo.format import format_commits, refuse_unmailable
from stack.store.project import Line, Project

SHOWN = 8


def import_branch(
    project: Project, line: Line, repository: Path, span: str, emit: Emit, *,
    dry_run: bool = False, source: SourceKind | None = None, command: tuple[str, ...] = (),
) -> list[Placed]:
    """Add the commits of `span` (`A..B`) behind the active patches of a line, oldest first.

    Raises `StateError` naming merges and empty commits, which no patch can carry, and `Conflict`
    where one does not apply on the line's pin.
    """
    objects = mirrors.objects_of(repository)
    if objects is None:
        raise UsageError(f"{repository}: not a git repository", hint="--git REPO A..B")
    git = Git(objects.parent)
    first, last = _ends(git, repository, span)
    listed = git.run("rev-list", "--reverse", "--topo-order", "--parents", f"{first}..{last}")
    rows = [row.split() for row in listed.text.splitlines()]
    if not rows:
        raise UsageError(f"{repository}: {span} holds no commits", hint="A..B, A older than B")
    _refuse(git, repository, [row[0] for row in rows if len(row) != 2], "merges", (
        f"git -C {repository} rebase {span.partition('..')[0]} BRANCH makes a straight line"
    ))
    empty = [one for one, parent in rows if _tree(git, one) == _tree(git, parent)]
    _refuse(git, repository, empty, "empty commits", "git rebase --interactive can drop them")
    for one, _ in rows:
        refuse_unmailable(git.run("show", "-s", "--format=%B", one).out, f"commit {one[:12]}")
    mails = format_commits(git, first, last, context=line.series.context)
    with tempfile.TemporaryDirectory(prefix="stack-branch-") as folder:
        paths = []
        for number, mail in enumerate(mails, 1):
            path = Path(folder, f"{number:04}-{rows[number - 1][0][:12]}.patch")
            path.write_bytes(mail)
            paths.append(path)
        try:
            return import_mails(
                project, line, paths, emit, dry_run=dry_run, source=source, command=command
            )
        except Conflict as wrong:
            base = git.run("merge-base", first, last).text
            raise Conflict(
                wrong.message.replace(f"{folder}/", ""), context=wrong.context,
                hint=f"begin a line where the branch begins: stack line add "
                f"{line.series.upstream}@{base[:12]}, then stack rebase carries it",
            ) from None


def _ends(git: Git, repository: Path, span: str) -> tuple[str, str]:
    first, dots, last = span.partition("..")
    if not dots or last.startswith("."):
        raise UsageError(f"`{span}` is not a range", hint="A..B: the commits of B that A has not")
    found = []
    for text in (first or "HEAD", last or "HEAD"):
        commit = mirrors.resolve(git, text) or git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{text}^{{commit}}",
            ok=(0, 1, 128),
        ).text
        if not commit:
            raise UsageError(f"{repository}: no revision `{text}`", hint="a commit, tag or branch")
        found.append(commit)
    return found[0], found[1]


def _tree(git: Git, commit: str) -> str:
    return git.run("rev-parse", f"{commit}^{{tree}}").text


def _refuse(git: Git, repository: Path, commits: list[str], what: str, hint: str) -> None:
    if commits:
        names = [
            git.run("show", "-s", "--format=%h %s", one).text for one in commits[:SHOWN]
        ]
        more = [f"... and {len(commits) - SHOWN} more"] if len(commits) > SHOWN else []
        raise StateError(
            f"{repository}: {len(commits)} {what} in the range, which a series cannot hold",
            context=[*names, *more], hint=hint,
        )
