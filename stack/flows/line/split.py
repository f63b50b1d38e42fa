"""Cut a patch of a line into parts whose sum is the patch, proved by the tree id."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stack.errors import StateError, UsageError
from stack.flows.events import Emit, Said
from stack.flows.line.arrange import picks
from stack.flows.line.restack import Plan as Restacking
from stack.flows.line.restack import Restacked, restack
from stack.flows.line.standing import Standing
from stack.flows.prefixes import replayed
from stack.model import toml
from stack.model.diff.linediff import Change, changes, split
from stack.model.line import split as model
from stack.model.line.restack import Pick
from stack.model.line.split import Piece, Plan
from stack.model.mail.mail import render_message, split_message
from stack.model.objects import EXECUTABLE, FILE, Commit, Entry
from stack.repo.odb import ObjectStore
from stack.repo.replay import show
from stack.repo.semantics import flaws
from stack.store import atomic
from stack.store.project import Line, Project

FROM = "Split-From"
Choose = Callable[[Sequence[Piece]], Plan]
"""Makes a plan for these pieces."""


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What a patch is made of: its trees, its pieces, and each file's lines and changes."""

    names: tuple[str, ...]
    before: str
    after: str
    pieces: tuple[Piece, ...]
    sides: Mapping[str, tuple[Entry | None, Entry | None]]
    places: Mapping[str, Sequence[Change]]


class Divided(msgspec.Struct, frozen=True, kw_only=True):
    """A split: the parts with their pieces, the tree that their sum has, and what was written."""

    patch: str
    parts: Mapping[str, Sequence[Piece]]
    tree: str
    restacked: Restacked | None = None
    plan: str | None = None


def look(project: Project, line: Line, name: str, choose: Choose, emit: Emit) -> Divided:
    """Divide a patch without changing anything."""
    names = names_of(line, name)
    with replayed(project, line, line.series.select(), emit) as replay:
        found = {step.name: step for step in replay.steps}
        at = [prefix.name for prefix in replay.prefixes]
        if any(one not in at for one in names):
            raise UsageError(f"patch `{name}` of {line.id} changes nothing here, or is parked")
        before = replay.prefixes[at.index(names[0]) - 1].tree
        cut = cut_of(replay.odb, names, before, str(found[names[-1]].tree))
        parts = model.divided(choose(cut.pieces), cut.pieces)
        return Divided(patch=name, parts=parts, tree=cut.after)


def split_patch(
    project: Project, line: Line, name: str, choose: Choose, emit: Emit, *,
    command: tuple[str, ...] = (),
) -> Divided:
    """Put the parts of a patch into its place.

    The parts of an earlier split of it (`Split-From`) are put together first, so that an edited
    plan can be run again. Raises `UsageError` where the plan does not take every piece.
    """
    names_of(line, name)  # before anything is fetched for it
    done: dict[str, Sequence[Piece]] = {}
    trees: list[str] = []

    def plan(here: Standing) -> Restacking:
        names = names_of(here.line, name)
        commits = [here.commit_of(one) for one in names]
        odb = here.odb
        first = odb.commit(commits[0])
        before = odb.commit(first.parents[0]).tree
        cut = cut_of(odb, names, before, odb.commit(commits[-1]).tree)
        wanted = choose(cut.pieces)
        parts = model.divided(wanted, cut.pieces)
        others = set(here.names) - set(names)
        if taken := sorted(others & set(parts)):
            raise UsageError(f"{here.line.id} has a patch `{taken[0]}` already", hint="stack list")
        done.update(parts)
        made = _commits(odb, cut, parts, wanted, name, first, emit)
        trees.append(odb.commit(made[-1][1]).tree)
        order = [one for one in here.names if one not in names]
        order[here.names.index(names[0]) : here.names.index(names[0])] = list(parts)
        found: list[Pick] = []
        for pick in picks(here):
            if pick.name == names[0]:
                found += [Pick(name=part, commit=oid) for part, oid in made]
            elif pick.name not in names:
                found.append(pick)
        old = here.line.series.member(names[0])
        known = set(here.names)
        added = [
            msgspec.structs.replace(old, name=part) for part in parts if part not in known
        ]
        return Restacking(what=f"split {name}", picks=found, order=order, added=added)

    finished = restack(project, line, f"split {name}", plan, emit, command=command)
    return Divided(patch=name, parts=done, tree=trees[0], restacked=finished)


def names_of(line: Line, name: str) -> tuple[str, ...]:
    """The patch, or the parts that an earlier split made of it, side by side."""
    if any(member.name == name for member in line.series.patch) and not _is_part(line, name, name):
        return (name,)
    parts = [member.name for member in line.series.patch if _is_part(line, member.name, name)]
    if not parts:
        line.series.member(name)
    active = [member.name for member in line.series.select()]
    at = [active.index(one) for one in parts if one in active]
    if len(at) != len(parts) or at != list(range(at[0], at[0] + len(at))):
        raise StateError(
            f"the parts of `{name}` do not stand side by side in {line.id}",
            context=parts, hint="stack move puts them together; then split again",
        )
    return tuple(parts)


def _is_part(line: Line, member: str, name: str) -> bool:
    return f"\n{FROM}: {name}\n".encode() in line.files[member].partition(b"\ndiff --git ")[0]


def cut_of(odb: ObjectStore, names: Sequence[str], before: str, after: str) -> Cut:
    """The pieces between two trees."""
    pieces: list[Piece] = []
    sides: dict[str, tuple[Entry | None, Entry | None]] = {}
    places: dict[str, Sequence[Change]] = {}
    for raw, (left, right) in sorted(odb.changed(before, after).items()):
        path = show(raw)
        sides[path] = (left, right)
        old, new = _lines(odb, left), _lines(odb, right)
        if old is None or new is None or not left or not right or left.mode != right.mode:
            pieces.append(Piece(path=path, added=len(new or ()), removed=len(old or ())))
            continue
        places[path] = changes(old, new)
        pieces += model.pieces_of(path, old, new, places[path])
    return Cut(
        names=tuple(names), before=before, after=after, pieces=tuple(pieces), sides=sides,
        places=places,
    )


def _lines(odb: ObjectStore, entry: Entry | None) -> list[bytes] | None:
    """The lines of a text file; None for anything else."""
    if entry is None or entry.mode not in (FILE, EXECUTABLE):
        return None
    data = odb.blob(entry.oid)
    return None if b"\0" in data[:8000] else split(data)


def _commits(
    odb: ObjectStore, cut: Cut, parts: Mapping[str, Sequence[Piece]], plan: Plan, name: str,
    first: Commit, emit: Emit,
) -> list[tuple[str, str]]:
    """A commit for each part; the last has the tree of the whole."""
    subject, body, trailers = split_message(first.message)
    subjects = {part.name: part.subject for part in plan.part}
    own = next((value for key, value in trailers if key == "Patch-Id"), "")
    kept = tuple(pair for pair in trailers if pair[0] not in ("Patch-Id", FROM))
    subject = subject.rpartition(": part ")[0] or subject
    parent, tree = first.parents[0], cut.before
    chosen: dict[str, set[int]] = {}
    made = []
    for part, pieces in parts.items():
        entries: dict[bytes, Entry | None] = {}
        for piece in pieces:
            right = cut.sides[piece.path][1]
            path = piece.path.encode("utf-8", "surrogateescape")
            if piece.number is None:
                entries[path] = right
                continue
            chosen.setdefault(piece.path, set()).add(piece.number)
        for file in {piece.path for piece in pieces if piece.number is not None}:
            left, right = cut.sides[file]
            assert left is not None
            assert right is not None
            data = model.composed(
                split(odb.blob(left.oid)), split(odb.blob(right.oid)), cut.places[file],
                chosen[file],
            )
            entries[file.encode("utf-8", "surrogateescape")] = Entry(
                right.mode, odb.add("blob", data)
            )
        after = odb.edit(tree, entries)
        for path_, text in flaws(odb, tree, after):
            emit(Said(f"{part}: {path_}: {text}", warning=True))
        digest = hashlib.sha256(f"{own} {name} {part}".encode()).hexdigest()[:16]
        message = render_message(
            subjects.get(part) or f"{subject}: part {part.removeprefix(f'{name}-')}", body,
            (*kept, (FROM, name), ("Patch-Id", digest)),
        )
        commit = Commit(
            tree=after, parents=(parent,), author=first.author, committer=first.author,
            message=message,
        )
        parent, tree = odb.add("commit", commit.render()), after
        made.append((part, parent))
    if tree != cut.after:
        raise StateError(f"the parts of `{name}` give tree {tree}, the patch {cut.after}")
    return made


def read_plan(path: Path, name: str, shown: str) -> Plan:
    """A plan file; `ConfigError` with file and line for what it does not understand."""
    plan = toml.load(path.read_bytes(), Plan, shown, schema=model.SCHEMA)
    if plan.patch != name:
        raise UsageError(f"{shown}: a plan for `{plan.patch}`, not for `{name}`")
    return plan


def write_plan(path: Path, plan: Plan, parts: Mapping[str, Sequence[Piece]]) -> None:
    """Write a plan to edit."""
    counts = {
        part: f"{len(pieces)} pieces, +{sum(one.added for one in pieces)} "
        f"-{sum(one.removed for one in pieces)}"
        for part, pieces in parts.items()
    }
    atomic.write(path, model.render(plan, counts).encode())

