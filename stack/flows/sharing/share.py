"""A line in the forms that others read: a mailbox, a quilt folder, a branch, one diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stack.errors import StateError
from stack.flows.events import Emit, Said
from stack.flows.line.chain import OWN_COMMIT
from stack.flows.prefixes import Replayed, replayed
from stack.flows.transaction import read_receipt, workspace_of
from stack.model.diff.hunks import FilePatch
from stack.model.diff.parse import parse_diff
from stack.model.line.line import Member
from stack.model.mail.mail import parse_mail
from stack.model.project.settings import SourceKind
from stack.repo.format import format_commits, refuse_unmailable
from stack.store import atomic
from stack.store.project import Line, Project

FORMATS = ("mbox", "quilt", "branch", "squashed")
SERIES_FILE = "series"


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The commits of a line by patch name, in order, written to the project's repository."""

    replay: Replayed
    names: tuple[str, ...]

    @property
    def head(self) -> str:
        return self.replay.prefixes[-1].commit


@contextmanager
def chain(
    project: Project, line: Line, members: Sequence[Member], emit: Emit, *,
    source: SourceKind | None = None,
) -> Iterator[Chain]:
    """The line's patch files as commits; patches that change nothing there are named and left out.

    What the workspace has and the patch files have not is not in it, and said so.
    """
    _say_unexported(project, line, emit)
    with replayed(project, line, members, emit, source=source) as replay:
        for step in replay.steps:
            if step.outcome not in OWN_COMMIT:
                emit(Said(f"{step.name}: {step.outcome.value} on {line.id}, left out"))
        names = tuple(step.name for step in replay.steps if step.outcome in OWN_COMMIT)
        if not names:
            raise StateError(f"{line.id} has no active patches to share", hint="stack list")
        replay.odb.write()
        yield Chain(replay=replay, names=names)


def mailbox(line: Line, found: Chain, emit: Emit) -> bytes:
    """All patches as one mailbox for `git am --keep-non-patch`."""
    mails = list(patch_texts(line, found.replay).values())
    if any(b"\r\n" in mail for mail in mails):
        emit(Said("some lines end in CR LF: git am --keep-cr --keep-non-patch", warning=True))
    return b"".join(mails)


def squashed(found: Chain) -> bytes:
    """All patches as one diff for `git apply` and, without binary files, `patch -p1`."""
    return found.replay.git.run(
        "diff-tree", "-p", "--full-index", "--binary", "--no-color", "--no-ext-diff",
        "--no-textconv", "--no-renames", found.replay.base, found.head,
    ).out


def quilt(
    project: Project, line: Line, found: Chain, folder: Path, *, force: bool = False
) -> list[str]:
    """Write a folder that quilt and `patch -p1` read: `series` and a file per patch; their names.

    Renames are written as a file that goes and one that comes. Raises `StateError` for what only
    git can carry, and where other files stand in the folder, unless `force`.
    """
    mails = patch_texts(line, found.replay, renames=False)
    for name, mail in mails.items():
        parsed = parse_mail(mail, name)
        for file in parse_diff(parsed.diff, name, first=parsed.diff_line):
            if why := _only_git(file):
                raise StateError(
                    f"patch `{name}`: {file.path.decode(errors='replace')}: {why}, which quilt "
                    "cannot carry", hint="--format mbox or branch",
                )
    files = {
        f"{name}.patch": mail.split(b"\n", 1)[1]  # without the mailbox line
        for name, mail in mails.items()
    }
    files[SERIES_FILE] = "".join(f"{name}.patch\n" for name in found.names).encode()
    old = _listed(folder)
    others = sorted(
        path.name
        for path in (folder.iterdir() if folder.is_dir() else ())
        if path.name not in old and path.name != SERIES_FILE and not path.name.startswith(".")
    )
    if others and not force:
        raise StateError(
            f"{folder}: holds files that are not of a series", context=others[:6],
            hint="name an empty folder, or --force to write beside them",
        )
    atomic.write_many(folder, {name: data for name, data in files.items() if name != SERIES_FILE})
    atomic.write_if_changed(folder / SERIES_FILE, files[SERIES_FILE])
    for name in old - files.keys():
        (folder / name).unlink(missing_ok=True)
    return list(files)


def _listed(folder: Path) -> set[str]:
    """The patch files that the `series` file of a folder names."""
    try:
        rows = (folder / SERIES_FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return set()
    return {row.split()[0] for row in rows if row.strip() and not row.startswith("#")}


def _only_git(file: FilePatch) -> str | None:
    if file.binary is not None:
        return "a binary file"
    if file.new_mode == 0o120000 or file.old_mode == 0o120000:
        return "a symbolic link"
    if file.kind == "modify" and file.old_mode != file.new_mode and file.new_mode is not None:
        return "a change of mode"
    return None


def patch_texts(line: Line, replay: Replayed, *, renames: bool = True) -> dict[str, bytes]:
    """The canonical mail of every patch that makes a commit, by name, in order."""
    chosen = [step for step in replay.steps if step.outcome in OWN_COMMIT]
    if not chosen:
        return {}
    for step in chosen:
        refuse_unmailable(replay.odb.commit(str(step.commit)).message, f"patch `{step.name}`")
    head = str(chosen[-1].commit)
    replay.odb.write(head)
    mails = format_commits(
        replay.git, replay.base, head, context=line.series.context, renames=renames
    )
    return dict(zip((step.name for step in chosen), mails, strict=True))


def _say_unexported(project: Project, line: Line, emit: Emit) -> None:
    upstream, label = line.series.upstream, line.series.pin.label
    if not project.paths.workspace(upstream, label).joinpath("tree", ".git").exists():
        return
    workspace = workspace_of(project, upstream, label)
    receipt = read_receipt(project, upstream, label)
    if workspace.edited() or (receipt is not None and workspace.head() != receipt.head):
        text = f"{line.id}: work in the workspace is not in the patch files: stack export writes it"
        emit(Said(text, warning=True))
