"""Import of a pile: whatever people really have becomes patches of lines, or is listed with why."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

import msgspec

from stack.errors import UsageError
from stack.flows.base import open_base
from stack.flows.events import Emit, Said
from stack.flows.intake.enter import enter
from stack.flows.intake.trees import inputs_of, is_tree
from stack.flows.pile import listed
from stack.flows.pile.base import Vote, ballots, vote
from stack.flows.pile.fit import Prefer
from stack.flows.pile.make import Made, commits
from stack.flows.pile.needs import Need, needs
from stack.flows.pile.order import Ordered, ordered
from stack.flows.pile.read import Input, list_files, read_inputs
from stack.flows.pile.replay import Replay, Replayed, Row
from stack.flows.pile.route import Router
from stack.flows.pile.tell import told
from stack.flows.pile.world import World
from stack.flows.pins import resolve_pin
from stack.flows.prefixes import replayed
from stack.flows.transaction import writing
from stack.model.line.line import SCHEMA, Series, near
from stack.model.project.settings import SourceKind
from stack.repo.client import Git
from stack.repo.odb import ObjectStore
from stack.store.project import Line, Project

_ROUNDS = 3


class Target(msgspec.Struct, kw_only=True):
    """The line of one upstream that a pile goes into, with its objects and its present end."""

    series: Series
    odb: ObjectStore
    git: Git
    base: str
    tree: str
    tip: str
    prefixes: tuple[tuple[str, str], ...] = ()
    taken: set[str] = msgspec.field(default_factory=set)
    begun: bool = False


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pile: a row per input and upstream, the bases, and the order."""

    rows: tuple[Row, ...]
    votes: Mapping[str, Vote]
    lines: Mapping[str, str]
    order: str
    added: int
    written: Path | None = None

    @property
    def aside(self) -> int:
        return sum(row.aside for row in self.rows)

    @property
    def unsure(self) -> int:
        return sum(row.unsure for row in self.rows)


def import_pile(
    project: Project, paths: Sequence[Path], folder: Path, emit: Emit, *, line: Line | None = None,
    bases: Mapping[str, str] | None = None, kinds: Mapping[str, Prefer] | None = None,
    dry_run: bool = False, source: SourceKind | None = None, command: tuple[str, ...] = (),
) -> Imported:
    """Take a pile into lines: the given one, or for each upstream one at the base that it shows.

    `bases` names a revision by upstream and overrides the vote, `kinds` a kind of diff by input
    where two would fit. Nothing of an input is taken that
    cannot be taken whole; `patches/imported.toml` lists every input.
    """
    trees = [path for path in paths if is_tree(project, path)]
    found = inputs_of(project, trees, folder, line, emit)
    files = list_files([path for path in paths if path not in trees], folder)
    found += read_inputs(files, emit)
    if not any(one.sections or one.damage for one in found):
        raise UsageError("no diffs there", hint="stack import --upstream NAME@REV PATH...")
    pile = ordered(_meant(found, kinds or {}, folder), paths)
    hold = nullcontext() if dry_run else writing(project, "import of a pile", emit)
    with hold, ExitStack() as open_:
        votes = _votes(project, pile.inputs, emit, line, bases or {})
        targets = {
            name: _open(project, one, emit, open_, source) for name, one in votes.items()
        }
        return _import(project, pile, votes, targets, emit, None if dry_run else command)


def _meant(found: Sequence[Input], kinds: Mapping[str, Prefer], folder: Path) -> list[Input]:
    """The inputs with what the user says of them; `UsageError` for one that is not there."""
    said: dict[str, Prefer] = {}
    for name, kind in kinds.items():
        path = os.path.normpath(folder / name)
        files = [one.file for one in found if name == one.file or path == str(one.path)]
        if not files:
            known = [one.file for one in found]
            raise UsageError(f"--kind: no input `{name}`", hint=near(name, known, "--dry-run"))
        said |= dict.fromkeys(files, kind)
    return [msgspec.structs.replace(one, meant=said.get(one.file, "")) for one in found]


def _votes(
    project: Project, inputs: Sequence[Input], emit: Emit, line: Line | None,
    bases: Mapping[str, str],
) -> dict[str, Vote]:
    """The base of every upstream that the pile may be about."""
    found: dict[str, Vote] = {}
    for name, upstream in project.settings.upstream.items():
        asked = ballots(inputs, upstream.packages)
        if name in bases:
            pin = resolve_pin(project, name, bases[name], emit)
            found[name] = Vote(
                upstream=name, revision=bases[name], tree=pin.tree, votes=0, of=0, source="--base",
            )
            continue
        only = [line] if line is not None and line.series.upstream == name else None
        one = vote(project, name, asked, emit, only)
        if one is not None and (one.votes or one.line or only):
            found[name] = one
            if one.of and not one.votes:
                text = f"no blob of the pile is known; the base is {one.revision} by default"
                emit(Said(f"{name}: {text}", warning=True))
    if not found:
        raise UsageError(
            "no base for this pile: no line, and no blob of it in any history at hand",
            hint="--base NAME@REV; or stack line add NAME@REV",
        )
    return found


def _open(
    project: Project, one: Vote, emit: Emit, open_: ExitStack, source: SourceKind | None
) -> Target:
    """The line at a base, or the beginning of one."""
    if one.line is None:
        pin = resolve_pin(project, one.upstream, one.revision, emit)
        line_id = f"{one.upstream}/{pin.label}"
        if pin.label in project.labels(one.upstream):
            one = msgspec.structs.replace(one, line=line_id)
        else:
            series = Series(schema=SCHEMA, upstream=one.upstream, pin=pin)
            base = open_base(project, series, emit, source=source)
            odb = open_.enter_context(ObjectStore(base.git))
            return Target(
                series=series, odb=odb, git=base.git, base=base.commit, tree=base.tree,
                tip=base.commit, begun=True,
            )
    line = project.find(one.line)
    replay = open_.enter_context(
        replayed(project, line, line.series.select(), emit, source=source)
    )
    first, *rest = replay.prefixes
    taken = {path.stem for path in line.folder.glob("*.patch")}
    return Target(
        series=line.series, odb=replay.odb, git=replay.git, base=first.commit, tree=first.tree,
        tip=replay.prefixes[-1].commit, taken=taken | {one.name for one in line.series.patch},
        prefixes=tuple((str(prefix.name), prefix.tree) for prefix in rest),
    )


def _import(
    project: Project, pile: Ordered, votes: Mapping[str, Vote], targets: Mapping[str, Target],
    emit: Emit, command: tuple[str, ...] | None,
) -> Imported:
    before = listed.read(project)
    names = {
        name: {member.name for member in target.series.patch} for name, target in targets.items()
    }
    known = listed.known(before, names)
    packages = {name: project.settings.upstream[name].packages for name in targets}
    inputs = list(pile.inputs)
    done, worlds = _replay(targets, packages, inputs, known, emit)
    lacking = {name: needs(worlds[name], done.steps[name], packages[name]) for name in targets}
    for _ in range(_ROUNDS):  # who makes a module comes before who needs it
        again = _reordered(inputs, [one for some in lacking.values() for one in some.values()])
        if again is None:
            break
        other, others = _replay(targets, packages, again, known, emit)
        if _placed(other) < _placed(done):
            break
        done, worlds, inputs = other, others, again
        lacking = {name: needs(worlds[name], done.steps[name], packages[name]) for name in targets}
    made: dict[str, list[Made]] = {}
    for name, target in targets.items():
        made[name] = commits(
            target.odb, target.tip, done.steps[name], target.taken, pile.firsts, lacking[name],
        )
    meant = {one.file for one in inputs if one.meant}
    for row in done.rows.values():
        if row.known and row.file in meant:
            named = " ".join(row.patches)
            raise UsageError(
                f"--kind: {row.file} came in before, as {named}",
                hint=f"stack drop {named}, then import again",
            )
    rows = told(done, made, worlds, lacking, {name: (t.git, t.base) for name, t in targets.items()})
    added = sum(map(len, made.values()))
    written = None
    if command is not None:
        # First: a list that names patches which are not there yet only makes the next import look
        # again, while patches that it does not name would come back as if something had them.
        written = listed.write(project, rows)
        for name, target in targets.items():
            if made[name]:
                enter(
                    project, target.odb, target.git, target.series, target.tip,
                    made[name][-1].commit, [one.member for one in made[name]], command,
                )
    used = {row.upstream for row in rows}
    return Imported(
        rows=tuple(rows), added=added, order=pile.said, written=written,
        votes={name: one for name, one in votes.items() if name in used},
        lines={name: target.series.id for name, target in targets.items() if name in used},
    )


def _replay(
    targets: Mapping[str, Target], packages: Mapping[str, Sequence[str]], inputs: Sequence[Input],
    known: Mapping[tuple[str, str], Row], emit: Emit,
) -> tuple[Replayed, dict[str, World]]:
    """Replay on what the lines have already."""
    worlds: dict[str, World] = {}
    for name, target in targets.items():
        worlds[name] = World(target.odb, target.tree)
        for patch, tree in target.prefixes:
            worlds[name].adopt(tree, patch, -1)
    router = Router(worlds, packages, inputs)
    replay = Replay(worlds, router, known)
    replay.remember(inputs)
    return replay.run(inputs, emit), worlds


def _placed(done: Replayed) -> int:
    return sum(not row.aside for row in done.rows.values())


def _reordered(inputs: Sequence[Input], lacking: Sequence[Sequence[Need]]) -> list[Input] | None:
    """The inputs with each that is needed before its first user; None where they are so already."""
    order = [one.file for one in inputs]
    moved = False
    for need in (one for some in lacking for one in some):
        if need.by is None or need.by not in order:
            continue
        user, maker = order.index(need.file), order.index(need.by)
        if maker > user:
            order.insert(user, order.pop(maker))
            moved = True
    by_name = {one.file: one for one in inputs}
    return [by_name[name] for name in order] if moved else None
