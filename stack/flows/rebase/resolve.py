"""Answer the conflicts of a stopped rebase region by region, and tend the memory of answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from stack.errors import StateError, UsageError
from stack.flows.events import Emit
from stack.flows.rebase import tree as trees
from stack.flows.transaction import writing
from stack.model.diff.linediff import split
from stack.model.diff.merge3 import OURS, THEIRS, Region
from stack.store import atomic
from stack.store.project import Project
from stack.store.resolutions import Memory, Resolution

Take = Literal["target", "patch", "both"]


class OpenRegion(msgspec.Struct, frozen=True, kw_only=True):
    """A region of the stopped rebase that still has its markers; `line` is where it stands now."""

    key: str
    path: str
    line: int
    region: Region


def open_regions(project: Project) -> list[OpenRegion]:
    """The regions of the stopped rebase that nobody answered yet."""
    state = trees.need(project)
    workspace = trees.worktree(project, state)
    found = []
    for place in state.stopped:
        path = workspace.tree / place.path
        lines = split(path.read_bytes()) if path.is_file() else []
        found += [
            OpenRegion(key=region.key, path=place.path, line=at + 1, region=region)
            for region in place.regions
            if (at := _locate(lines, region)) is not None
        ]
    return found


def take(project: Project, wanted: str | None, side: Take, emit: Emit) -> list[OpenRegion]:
    """Put one side in place of open regions: all, those of a path, or the one of a key."""
    with writing(project, "resolve", emit):
        state = trees.need(project)
        tree = trees.worktree(project, state).tree
        chosen = [
            one
            for one in open_regions(project)
            if wanted is None or one.path == wanted or one.key.startswith(wanted)
        ]
        if not chosen:
            raise UsageError(
                "no open region there" if wanted else "no open regions",
                hint="stack resolve lists them; stack rebase --continue goes on",
            )
        for one in chosen:
            path = tree / one.path
            lines = split(path.read_bytes())
            at = _locate(lines, one.region)
            if at is not None:
                region = one.region
                reply = {
                    "target": region.target, "patch": region.patch,
                    "both": region.target + region.patch,
                }[side]
                lines[at : at + trees.height(region)] = [reply]
                atomic.write(path, b"".join(lines), mode=path.stat().st_mode & 0o777)
        return chosen


def _locate(lines: list[bytes], region: Region) -> int | None:
    """Where a region with its markers stands whole in a file, as an index from 0."""
    size = trees.height(region)
    want = split(region.target)
    for at, line in enumerate(lines):
        if not line.startswith(f"{OURS} ".encode()):
            continue
        end = at + size - 1
        if end < len(lines) and lines[end].startswith(f"{THEIRS} ".encode()):
            held = lines[at + 1 : at + 1 + len(want)]
            if b"".join(held).rstrip(b"\n") == region.target.rstrip(b"\n"):
                return at
    return None


def memory_of(project: Project, upstream: str) -> Memory:
    """The remembered answers of an upstream."""
    return Memory(project.paths.patches / upstream / "resolutions")


def remembered(project: Project, upstream: str, prefix: str) -> tuple[str, Resolution]:
    """The one remembered answer whose key begins with `prefix`."""
    memory = memory_of(project, upstream)
    keys = memory.find(prefix)
    if len(keys) != 1:
        known = f"{len(memory.known)} answers are remembered"
        raise UsageError(
            f"{len(keys)} remembered answers begin with `{prefix}`; {known}",
            hint="stack resolve --list",
        )
    return keys[0], memory.known[keys[0]]


def forget(project: Project, upstream: str, prefix: str, emit: Emit) -> str:
    """Forget one remembered answer; its key."""
    with writing(project, "resolve --forget", emit):
        memory = memory_of(project, upstream)
        path = memory.folder / f"{prefix}.json"
        key = prefix if path.is_file() else remembered(project, upstream, prefix)[0]
        memory.folder.joinpath(f"{key}.json").unlink()
        return key


def upstream_of(project: Project, name: str | None) -> str:
    """The upstream whose memory is meant: named, of the stopped rebase, or the default."""
    if name is None and (state := trees.load(project)) is not None:
        return state.source.partition("/")[0]
    found, _ = project.upstream(name)
    if not found:
        raise StateError("no upstream")
    return found
