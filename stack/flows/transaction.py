"""Every change goes through here: patch files, worktree, refs and log move together or not at all.

A journal is written first and removed last. Whoever takes the lock next and finds one completes
the change from it (`recover`), so a process killed at any point leaves the old state or the new
one. Work of the user's that stands in the way is never overwritten: it is named, and we stop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from stack.errors import StateError
from stack.flows.events import Emit, Said
from stack.model.line.records import JOURNAL_SCHEMA, Operation, Receipt
from stack.repo import locks, operations
from stack.repo.mirror import ensure_repository
from stack.repo.odb import ObjectStore
from stack.repo.workspace import Workspace, refusing, snapshot
from stack.store import atomic, documents, lock
from stack.store.project import SERIES, Project

RECEIPT = "receipt.json"
EVIDENCE = "evidence/*.json"


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to become of one line; a field that is not set stays as it is.

    `files` are all files of the line's folder by name, None for no line; `head` is the commit for
    the workspace, None for no workspace. Uncommitted work is a commit on top of the head that only
    the files have: `taken` is the work that stands there now (the caller has looked), `work` what
    is to stand there. `undo_to` is what undo goes back to, where that is not the present state.
    """

    upstream: str
    label: str
    files: Mapping[str, bytes] | UnsetType | None = UNSET
    head: str | UnsetType | None = UNSET
    receipt: Receipt | UnsetType | None = UNSET
    taken: str | None = None
    work: str | None = None
    undo_to: Receipt | None = None

    @property
    def id(self) -> str:
        return f"{self.upstream}/{self.label}"


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """A change on its way; it is on disk only while the change happens.

    The files of the worktree go from `old_head` to `new_head`; HEAD, which `stood` somewhere, gets
    `at`, where that is set, else `new_head`.
    """

    schema: int = JOURNAL_SCHEMA
    upstream: str
    label: str
    old_files: str | None
    new_files: str | None
    old_head: str | None
    new_head: str | None
    receipt: Receipt | None
    operation: str | None
    at: str | None = None
    stood: str | None = None


@contextmanager
def writing(project: Project, what: str, emit: Emit) -> Iterator[None]:
    """Hold the project's lock, and first complete and clear away what a killed process left."""
    project.paths.ensure_state()
    with lock.hold(
        project.paths.lock, what, wait=30, on_wait=lambda who: emit(Said(f"waiting: {who}"))
    ):
        atomic.sweep(project.paths.state)
        repositories = project.paths.repository("any").parent.glob("*.git")
        with locks.freed(project.paths.state, repositories):
            recover(project, emit)
            yield


def workspace_of(project: Project, upstream: str, label: str) -> Workspace:
    """The workspace of a line, whether or not it exists yet."""
    project.paths.ensure_state()
    git = ensure_repository(project.paths.repository(upstream))
    return Workspace(git, project.paths.workspace(upstream, label), label)


def read_receipt(project: Project, upstream: str, label: str) -> Receipt | None:
    """What was applied in a workspace; None where nothing was."""
    path = project.paths.workspace(upstream, label) / RECEIPT
    return documents.read(project, path, Receipt, hint="remove the file and stack apply again")


def refuse_editing(receipt: Receipt | None) -> None:
    """Raise `StateError` where a workspace stands at a patch that is being edited."""
    if receipt is not None and receipt.editing is not None:
        raise StateError(
            f"patch `{receipt.editing.patch}` of {receipt.line} is being edited",
            hint="stack edit --continue takes the edit in, --abort gives it up",
        )


def line_files(folder: Path) -> dict[str, bytes] | None:
    """The series file, patch files and evidence of a line's folder; None where there is no line."""
    if not (folder / SERIES).is_file():
        return None
    wanted = [folder / SERIES, *sorted(folder.glob("*.patch")), *sorted(folder.glob(EVIDENCE))]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in wanted}


def commit(
    project: Project, odb: ObjectStore, change: Change, command: tuple[str, ...], summary: str,
    *, undoes: int | None = None, redoes: int | None = None, logged: bool = True,
) -> Operation | None:
    """Make a change happen; None where everything is already as it should be.

    One that is not `logged` leaves undo where it was: the change that ends it has an `undo_to`.

    The caller holds the project's lock (`writing`) and has found the workspace free of edits.
    """
    workspace = workspace_of(project, change.upstream, change.label)
    now = _state(project, workspace, change)
    then = (
        now[0] if change.files is UNSET else change.files,
        now[1] if change.head is UNSET else change.head,
        now[2] if change.receipt is UNSET else change.receipt,
        change.work,
    )
    if now == then:
        return None
    was = change.undo_to
    first = now if was is None else (now[0], was.head, was, None)
    before, after = (_recorded(odb, *state) for state in (first, then))
    done = operations.read(workspace.repository)
    seconds = int(time.time())
    operation = Operation(
        number=done[-1].number + 1 if done else 1, command=command, summary=summary,
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)), upstream=change.upstream,
        before={change.id: before}, after={change.id: after}, undoes=undoes, redoes=redoes,
    )
    oid = operations.record(odb, operations.tip(workspace.repository), operation, seconds)
    odb.write(oid, *(work for work in (change.taken, change.work) if work))
    journal = Journal(
        upstream=change.upstream, label=change.label, old_files=before["files"],
        new_files=after["files"], old_head=change.taken or now[1],
        new_head=change.work or then[1], receipt=then[2], operation=oid if logged else None,
        at=then[1] if change.work else None, stood=now[1],
    )
    path = _journal_path(project)
    atomic.write(path, msgspec.json.encode(journal))
    try:
        _check_files(project, odb, journal)
        if change.taken:
            with refusing():
                workspace.set_index(change.taken)
        _move(workspace, odb, journal, fresh=True)
    except StateError:
        path.unlink()  # refused as a whole: nothing has moved yet
        if change.taken:
            workspace.set_index("HEAD")
        raise
    _settle(project, workspace, odb, journal)
    path.unlink()
    return operation


def _state(
    project: Project, workspace: Workspace, change: Change
) -> tuple[Mapping[str, bytes] | None, str | None, Receipt | None, str | None]:
    """Files, head, receipt and uncommitted work of a line as they are now."""
    return (
        line_files(project.paths.line(change.upstream, change.label)),
        workspace.head(),
        read_receipt(project, change.upstream, change.label),
        change.taken,
    )


def _recorded(
    odb: ObjectStore, files: Mapping[str, bytes] | None, head: str | None,
    receipt: Receipt | None, work: str | None,
) -> dict[str, str | None]:
    """A line's state as the operation log keeps it."""
    return {
        "files": None if files is None else snapshot(odb, sorted(files.items())),
        "head": head,
        "receipt": None if receipt is None else msgspec.json.encode(receipt).decode(),
        **({"work": work} if work else {}),
    }


def recover(project: Project, emit: Emit) -> None:
    """Complete the change of a process that was killed, if there is one."""
    path = _journal_path(project)
    hint = "git tells what the patch files were; remove the file, then stack apply"
    journal = documents.read(project, path, Journal, hint=hint)
    if journal is None:
        return
    workspace = workspace_of(project, journal.upstream, journal.label)
    with ObjectStore(workspace.repository) as odb:
        _check_files(project, odb, journal)
        _check_head(workspace, journal)
        _move(workspace, odb, journal, fresh=False)
        _settle(project, workspace, odb, journal)
    path.unlink()
    folder = project.paths.line(journal.upstream, journal.label)
    for place in (folder, *(path for path in folder.glob("*") if path.is_dir())):
        atomic.sweep(place)
    atomic.sweep(workspace.folder)
    emit(Said(f"completed a change of {journal.upstream}/{journal.label} that had been cut off"))


def _move(workspace: Workspace, odb: ObjectStore, journal: Journal, *, fresh: bool) -> None:
    """Bring the worktree from the old head to the new one; refuses where work would be lost."""
    old, new = journal.old_head, journal.new_head
    if old == new and journal.at is None:
        return
    if new is None:
        workspace.remove()
        return
    if old is None and (fresh or workspace.head() is None):
        workspace.create(new)
    elif fresh and old is not None:
        workspace.move(old, new)
    else:
        workspace.finish_move(odb, old, new)
    workspace.attach(journal.at or new)
    if journal.at is not None:
        workspace.set_index(journal.at)


def _settle(project: Project, workspace: Workspace, odb: ObjectStore, journal: Journal) -> None:
    """Files, receipt and log follow the worktree. Every step can be repeated."""
    _publish(project, odb, journal)
    receipt = workspace.folder / RECEIPT
    if journal.receipt is None:
        receipt.unlink(missing_ok=True)
    else:
        atomic.write(receipt, msgspec.json.format(msgspec.json.encode(journal.receipt)))
    if journal.operation is not None:
        workspace.repository.run("update-ref", operations.REF, journal.operation)


def _check_files(project: Project, odb: ObjectStore, journal: Journal) -> None:
    """Every file of the line is what it was, what it is to be, or away; an edited one stops us."""
    folder = project.paths.line(journal.upstream, journal.label)
    old = operations.files_of(odb, journal.old_files)
    new = operations.files_of(odb, journal.new_files)
    for name in sorted(old.keys() | new.keys()):
        path = folder / name
        now = path.read_bytes() if path.is_file() else None
        if now not in (None, old.get(name), new.get(name)):
            raise StateError(
                f"{project.shown(path)}: edited while a command was at work on it",
                hint="move it aside, then stack undo: that completes the change and takes it back",
            )


def _check_head(workspace: Workspace, journal: Journal) -> None:
    """HEAD is where it was or where it is to be; a commit that was made since stops us."""
    head = workspace.head()
    if journal.new_head is None or head in (None, journal.stood, journal.new_head, journal.at):
        return
    back = f"git reset --soft {journal.stood[:12]} there" if journal.stood else "remove the folder"
    raise StateError(
        f"{workspace.tree}: a command was killed here, and HEAD was moved to {head[:12]} since",
        hint=f"keep that commit on a branch, {back}, then run the same command again",
    )


def _publish(project: Project, odb: ObjectStore, journal: Journal) -> None:
    """Make the line's folder hold the new files."""
    if journal.old_files == journal.new_files:
        return
    folder = project.paths.line(journal.upstream, journal.label)
    old = operations.files_of(odb, journal.old_files)
    new = operations.files_of(odb, journal.new_files)
    # series.toml after the patches that it names, and before those go that it no longer names
    atomic.write_many(folder, {name: data for name, data in new.items() if name != SERIES})
    if SERIES in new:
        atomic.write_if_changed(folder / SERIES, new[SERIES])
    for name in sorted(old.keys() - new.keys(), key=lambda name: name != SERIES):
        (folder / name).unlink(missing_ok=True)
        beside = (folder / name).parent
        if beside != folder and beside.is_dir() and not any(beside.iterdir()):
            beside.rmdir()
    if not new and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _journal_path(project: Project) -> Path:
    return project.paths.state / "journal.json"
