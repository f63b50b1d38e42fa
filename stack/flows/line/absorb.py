"""Send each changed hunk of the workspace to the patch that owns its lines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.errors import StateError
from stack.flows.events import Emit
from stack.flows.line import restack as flow
from stack.flows.line.arrange import picks
from stack.flows.line.blame import Hunk, owners
from stack.flows.line.standing import Standing, work_commit
from stack.model.diff.linediff import Change, split
from stack.model.line.restack import Pick
from stack.model.objects import Entry
from stack.repo.carry import Merger, carry
from stack.repo.odb import ObjectStore
from stack.repo.renames import Renames
from stack.store.project import Line, Project


class Absorbed(msgspec.Struct, frozen=True, kw_only=True):
    """Where each hunk went; `head` is the workspace's new commit, None where nothing was placed."""

    hunks: tuple[Hunk, ...]
    head: str | None


def absorb(
    project: Project, line: Line, emit: Emit, *, dry_run: bool = False,
    command: tuple[str, ...] = (),
) -> Absorbed:
    """Put each hunk of the uncommitted changes into its patch; never stops at a conflict.

    A hunk that cannot be carried down to its patch and up again with the same end is not placed.
    """
    placed: list[Hunk] = []

    def plan(here: Standing) -> flow.Plan:
        if here.work is None:
            raise StateError(
                f"{project.shown(here.workspace.tree)}: no changes to absorb",
                hint="edit files there first",
            )
        placed[:] = owners(here, here.work)
        found = picks(here)
        head = here.workspace.head() or ""
        for name in here.commits:
            own = [hunk for hunk in placed if hunk.patch == name]
            if not own:
                continue
            tried = _folded(here, found, own, head)
            if tried is None:
                why = f"belongs to {name}, but cannot be carried there"
                placed[:] = [
                    msgspec.structs.replace(h, patch=None, why=why) if h in own else h
                    for h in placed
                ]
            else:
                found = tried
        if all(hunk.patch is None for hunk in placed):
            raise _NothingPlaced
        return flow.Plan(
            what="refresh --absorb", picks=found, order=here.names, taken=here.work,
            left=here.odb.commit(here.work).tree,
        )

    try:
        done = flow.restack(
            project, line, "refresh --absorb", plan, emit, mode="work", dry_run=dry_run,
            command=command,
        )
    except _NothingPlaced:
        return Absorbed(hunks=tuple(placed), head=None)
    return Absorbed(hunks=tuple(placed), head=done.finished.head if done.finished else None)


class _NothingPlaced(Exception):
    """No hunk has a patch to go to: nothing is to be changed."""


def _folded(
    here: Standing, found: Sequence[Pick], own: Sequence[Hunk], head: str
) -> list[Pick] | None:
    """The picks with some hunks folded into their patch; None where that does not come out even."""
    odb = here.odb
    tree = _tree_with(here, own, head)
    extra = work_commit(odb, tree, head)
    grown = list(found)
    at = max(n for n, pick in enumerate(grown) if pick.name == own[0].patch)
    grown.insert(at + 1, Pick(name=own[0].patch or "", commit=extra, into=True))
    every = [pick for pick in grown if pick.into]
    wanted = _combined(here, [pick.commit for pick in every], head)
    return grown if wanted and _end(here, grown) == wanted else None


def _tree_with(here: Standing, own: Sequence[Hunk], head: str) -> str:
    """HEAD's tree with only some hunks of the workspace's changes."""
    odb = here.odb
    old, new = odb.commit(head).tree, odb.commit(here.work or "").tree
    entries: dict[bytes, Entry | None] = {}
    by_path: dict[bytes, list[Change | None]] = {}
    for hunk in own:
        by_path.setdefault(hunk.raw, []).append(hunk.change)
    for path, chosen in by_path.items():
        left, right = odb.find(old, path), odb.find(new, path)
        if left is None or right is None or None in chosen:
            entries[path] = right
            continue
        before, after = split(odb.blob(left.oid)), split(odb.blob(right.oid))
        for a, b, c, d in sorted((one for one in chosen if one), reverse=True):
            before[a:b] = after[c:d]
        entries[path] = Entry(right.mode, odb.add("blob", b"".join(before)))
    return odb.edit(old, entries)


def _combined(here: Standing, extras: Sequence[str], head: str) -> str | None:
    """HEAD's tree with several sets of hunks: how the end must look."""
    tree = here.odb.commit(head).tree
    return _carried(here.odb, [(head, extra) for extra in extras], tree)


def _end(here: Standing, found: Sequence[Pick]) -> str | None:
    """The tree after all picks that the workspace has; None at a conflict."""
    steps = [
        (here.odb.commit(pick.commit).parents[0], pick.commit)
        for pick in found
        if pick.name in here.held
    ]
    return _carried(here.odb, steps, here.odb.commit(here.base.commit).tree)


def _carried(odb: ObjectStore, steps: Sequence[tuple[str, str]], tree: str) -> str | None:
    merger = Merger(odb)
    for before, after in steps:
        old, new = odb.commit(before).tree, odb.commit(after).tree
        done = carry(merger, old, new, tree, renames=Renames(odb, old, tree))
        if done.trouble:
            return None
        tree = done.tree
    return tree
