"""The worktree in which a stopped rebase waits for an answer, and the answers read from it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stack.errors import StateError
from stack.model.diff.linediff import Change, changes, split
from stack.model.diff.merge3 import OURS, THEIRS, Region
from stack.model.line.rebase import Place, Rebase
from stack.model.line.records import Operation
from stack.model.objects import FOLDER, SYMLINK
from stack.repo import operations
from stack.repo.carry import Trouble
from stack.repo.mirror import ensure_repository
from stack.repo.odb import ObjectStore
from stack.repo.workspace import Workspace
from stack.store import atomic, documents
from stack.store.project import Project
from stack.store.resolutions import Memory

_MARKERS = (f"{OURS} ".encode(), f"{THEIRS} ".encode())


def state_path(project: Project) -> Path:
    return project.paths.state / "rebase" / "state.json"


def load(project: Project) -> Rebase | None:
    """The rebase that is under way, if there is one."""
    hint = "the line is as it was, and so are the answers: remove the file and begin again"
    state = documents.read(project, state_path(project), Rebase, hint=hint)
    if state is None:
        return None
    ended = state.ends is not None and logged(project, state.source, state.ends, state.command)
    return None if ended else state  # killed between its end and its clearing away


def ending(project: Project) -> None:
    """Note in the state of a rebase that had stopped which operation ends it."""
    if (state := load(project)) is not None:
        save(project, msgspec.structs.replace(state, ends=next_number(project, state.source)))


def next_number(project: Project, line: str) -> int:
    """The number that the next operation of a line's upstream gets."""
    return max((one.number for one in _log(project, line)), default=0) + 1


def logged(project: Project, line: str, number: int, command: tuple[str, ...]) -> bool:
    """Whether the log of a line's upstream has an operation of this number and command."""
    return any(one.number == number and one.command == command for one in _log(project, line))


def _log(project: Project, line: str) -> list[Operation]:
    return operations.read(ensure_repository(project.paths.repository(line.partition("/")[0])))


def save(project: Project, state: Rebase) -> None:
    atomic.write(state_path(project), msgspec.json.format(msgspec.json.encode(state)))


def discard(project: Project, state: Rebase) -> None:
    """Forget a rebase: its state first, so that a kill in between leaves only a folder to sweep."""
    state_path(project).unlink(missing_ok=True)
    remove(worktree(project, state))


def remove(workspace: Workspace) -> None:
    """Remove the worktree in which a conflict was shown, and its branch."""
    if workspace.tree.exists():
        atomic.discard(workspace.tree)
    workspace.repository.run("worktree", "prune", "--expire=now")
    workspace.repository.run("update-ref", "-d", workspace.branch, ok=(0, 1, 128))


def worktree(project: Project, state: Rebase) -> Workspace:
    """The worktree of a stopped rebase."""
    upstream = state.source.partition("/")[0]
    git = ensure_repository(project.paths.repository(upstream))
    return Workspace(git, project.paths.state / "rebase", "stack-rebase")


def present(
    odb: ObjectStore, workspace: Workspace, tip: str, trouble: Sequence[Trouble], marked: str
) -> tuple[Place, ...]:
    """Show a conflict in the worktree: HEAD is the tip so far, the files hold the markers."""
    odb.write(tip)
    if workspace.head() is None:
        workspace.create(tip)
    else:
        workspace.reset(tip)  # an answer is in the tip by now, or the patch was skipped
    workspace.attach(tip)
    changed = odb.changed(odb.commit(tip).tree, marked)
    for path, (_, right) in changed.items():
        full = Path(os.fsdecode(os.path.join(os.fsencode(workspace.tree), path)))
        if right is None:
            full.unlink(missing_ok=True)
        elif right.mode == SYMLINK:
            full.unlink(missing_ok=True)
            full.parent.mkdir(parents=True, exist_ok=True)
            full.symlink_to(os.fsdecode(odb.blob(right.oid)))
        else:
            atomic.write(full, odb.blob(right.oid), mode=right.mode & 0o777)
    places = []
    for one in trouble:
        entry = odb.find(marked, one.path.encode("utf-8", "surrogateescape"))
        data = odb.blob(entry.oid) if entry and entry.mode != FOLDER and one.regions else None
        places.append(Place(path=one.path, why=one.why, regions=one.regions, marked=data))
    return tuple(places)


def unanswered(workspace: Workspace, places: Sequence[Place]) -> list[str]:
    """The files that still hold conflict markers, with the line."""
    found = []
    for place in places:
        path = workspace.tree / place.path
        if not place.regions or not path.is_file():
            continue
        for number, line in enumerate(split(path.read_bytes()), 1):
            if line.startswith(_MARKERS):
                found.append(f"{place.path}:{number}")
                break
    return found


def remember(
    workspace: Workspace, places: Sequence[Place], memory: Memory, patch: str | None
) -> int:
    """Keep the answers that the edited files give to their regions; how many."""
    count = 0
    for place in places:
        path = workspace.tree / place.path
        if place.marked is None or not path.is_file():
            continue
        for region, reply in answers(place.marked, path.read_bytes(), place.regions):
            memory.keep(region, reply, path=place.path, patch=patch or "")
            count += 1
    return count


def answers(
    marked: bytes, edited: bytes, regions: Sequence[Region]
) -> list[tuple[Region, bytes]]:
    """What stands in `edited` in place of each region of `marked`.

    A region whose surroundings were edited as well has no answer that could be used elsewhere.
    """
    old, new = split(marked), split(edited)
    edits = changes(old, new)
    found: list[tuple[Region, bytes]] = []
    for region in regions:
        start = region.line - 1
        stop = start + height(region)
        inside = [e for e in edits if e[1] > start and e[0] < stop]
        if any(a < start or b > stop for a, b, _, _ in inside):
            continue
        first, last = _place(edits, start, before=True), _place(edits, stop, before=False)
        found.append((region, b"".join(new[first:last])))
    return found


def height(region: Region) -> int:
    """How many lines a region takes with its four markers."""
    return 4 + sum(len(split(side)) for side in (region.base, region.target, region.patch))


def _place(edits: Sequence[Change], at: int, *, before: bool) -> int:
    """Where line `at` of the marked file stands in the edited one."""
    shift = 0
    for a, b, c, d in edits:
        if b < at or (b == at and (a < b or not before)):
            shift += (d - c) - (b - a)
    return at + shift


def need(project: Project) -> Rebase:
    """The rebase under way, or `StateError`."""
    state = load(project)
    if state is None:
        raise StateError("no rebase is under way", hint="stack rebase --onto NAME@REV")
    return state
