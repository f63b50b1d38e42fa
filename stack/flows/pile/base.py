"""The base of a pile, by vote: which commit's tree holds the most of the blobs that it starts from.

Asked are the pins of the upstream's lines, every tag and branch of the git repositories at hand,
the history that leads to the best of them, and the release archives in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from stack.errors import GitError, StackError
from stack.flows.base import open_base
from stack.flows.events import Emit, Progress, Said
from stack.flows.pile.read import Input
from stack.flows.upstream_news import repositories
from stack.model.objects import FOLDER
from stack.model.pile.paths import suffixes
from stack.repo import mirror as mirrors
from stack.repo import sdist as sdists
from stack.repo.client import Git
from stack.repo.history import History
from stack.repo.odb import ObjectStore
from stack.store import archive_notes
from stack.store.project import Line, Project

_LEAST = 7  # letters of an id that say anything
_MOST_TIPS = 500
_HISTORIES = 3
_SURE = 0.8  # of the blobs: then no archive has to be unpacked to look for a better base
_NOWHERE = "0" * 40


class Ballot(msgspec.Struct, frozen=True):
    """One witness: some path held a blob whose id begins so."""

    paths: tuple[bytes, ...]
    oid: str


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """What the blobs say: `votes` of `of` for `revision`.

    `window` is how many commits have as many, from `first` to `last`; `margin` is how many votes
    the best of all others has less (None where there is no other).
    """

    upstream: str
    revision: str
    tree: str
    votes: int
    of: int
    source: str
    line: str | None = None
    first: str = ""
    last: str = ""
    window: int = 1
    margin: int | None = None

    @property
    def said(self) -> str:
        """The vote in a sentence."""
        if not self.of:
            return f"{self.upstream}: {self.revision}, no blob ids to go by"
        text = f"{self.upstream}: {self.revision} ({self.source}), {self.votes} of {self.of} blobs"
        if self.window > 1:
            text += f", as in {self.window} commits {self.first[:12]}..{self.last[:12]}"
        return text if self.margin is None else f"{text}, {self.margin} more than any other"


def ballots(inputs: Iterable[Input], packages: Sequence[str]) -> list[Ballot]:
    """The pre-image ids of a pile with the paths that may hold them."""
    found: dict[Ballot, None] = {}
    for one in inputs:
        for section in one.sections:
            if len(section.old_id) >= _LEAST and section.old:
                paths = tuple(suffixes(section.old, packages, section.strip))
                found[Ballot(paths, section.old_id)] = None
    return list(found)


def count(odb: ObjectStore, tree: str, asked: Sequence[Ballot]) -> tuple[int, int]:
    """How many ballots a tree meets, and for how many it has the file at all."""
    met = known = 0
    for one in asked:
        here = False
        for path in one.paths:
            try:
                entry = odb.find(tree, path)
            except GitError:
                continue
            if entry is None or entry.mode == FOLDER:
                continue
            here = True
            if entry.oid.startswith(one.oid):
                met += 1
                break
        known += here
    return met, known


def vote(
    project: Project, name: str, asked: Sequence[Ballot], emit: Emit,
    lines: Sequence[Line] | None = None,
) -> Vote | None:
    """The base of an upstream that most blobs speak for; None where none of them is known there.

    With `lines` only these are asked.
    """
    found: list[Vote] = []
    for label in project.labels(name) if lines is None else [x.series.pin.label for x in lines]:
        series = project.series(name, label)
        emit(Progress(f"{name}: asking {series.id}"))
        try:
            base = open_base(project, series, emit)
        except StackError as wrong:
            emit(Said(f"{series.id}: not asked: {wrong.message}", warning=True))
            continue
        with ObjectStore(base.git) as odb:
            met, known = count(odb, base.tree, asked)
        found.append(Vote(
            upstream=name, revision=series.pin.label, tree=base.tree, votes=met, of=known,
            source="line", line=series.id,
        ))
    if lines is None:
        for source, git in repositories(project, name):
            found += _in_git(git, name, asked, source, emit)
        best = max((one.votes for one in found), default=0)
        if best < _SURE * max((one.of for one in found), default=len(asked)):
            found += _in_archives(project, name, asked, emit)
    if not found:
        return None
    most = max(one.votes for one in found)
    others = [one.votes for one in found if one.votes < most]
    ranks = ("line", "tag", "branch", "commit", "sdist")
    best_of = [one for one in found if one.votes == most]
    chosen = min(best_of, key=lambda one: ranks.index(one.source))
    wide = max(best_of, key=lambda one: one.window)
    default = project.settings.upstream[name].default
    if most == 0 and chosen.source == "line":
        chosen = next((one for one in found if one.revision == default), chosen)
    elif chosen.source == "line":
        mine = [one for one in best_of if one.source == "line"]
        chosen = next((one for one in mine if one.revision == default), mine[0])
    return msgspec.structs.replace(
        chosen, first=wide.first, last=wide.last, window=max(wide.window, 1),
        margin=most - max(others) if others else None,
    )


def _in_git(
    git: Git, name: str, asked: Sequence[Ballot], where: str, emit: Emit
) -> list[Vote]:
    """The votes for tags and branches, and for the best window of commits that lead to them."""
    listed = git.run(
        "for-each-ref", "--sort=-creatordate", "--format=%(refname)", "refs/tags", "refs/heads"
    ).text.splitlines()
    refs = ["HEAD", *listed[:_MOST_TIPS]]
    tips = {
        ref: there
        for ref, there in zip(refs, mirrors.commits(git, refs), strict=True)
        if there is not None
    }
    found: list[Vote] = []
    scored: dict[str, int] = {}
    with ObjectStore(git) as odb:
        for number, (ref, (commit, tree)) in enumerate(tips.items()):
            emit(Progress(f"{name}: asking {where}", number, len(tips), ref))
            met, known = count(odb, tree, asked)
            scored[commit] = max(met, scored.get(commit, 0))
            if ref == "HEAD":
                continue
            kind, _, short = ref.removeprefix("refs/").partition("/")
            found.append(Vote(
                upstream=name, revision=short if kind == "tags" else commit, tree=tree, votes=met,
                of=known, source="tag" if kind == "tags" else "branch", first=commit, last=commit,
            ))
        best = sorted(scored, key=lambda commit: -scored[commit])[:_HISTORIES]
        head = tips.get("HEAD")
        for commit in dict.fromkeys([*best, *([head[0]] if head else [])]):
            emit(Progress(f"{name}: asking the history of {commit[:12]}"))
            found += _window(git, odb, name, commit, asked)
    return found


def _window(
    git: Git, odb: ObjectStore, name: str, tip: str, asked: Sequence[Ballot]
) -> list[Vote]:
    """The stretch of commits on the way to `tip` that meets the most ballots."""
    paths = {path for one in asked for path in one.paths}
    commits = git.run("rev-list", "--first-parent", "--reverse", tip).text.splitlines()
    if len(commits) < 2:
        return []
    number = {commit: at for at, commit in enumerate(commits)}
    states = History(git, _NOWHERE, tip, sorted(paths)).states
    steps: dict[int, int] = {}
    for one in asked:
        spans: list[tuple[int, int]] = []
        for path in one.paths:
            rows = states.get(path, [])
            for at, state in enumerate(rows):
                if state.entry is not None and state.entry.oid.startswith(one.oid):
                    end = rows[at + 1].commit if at + 1 < len(rows) else None
                    spans.append((number[state.commit], number[end] if end else len(commits)))
        reached = -1
        for start, stop in sorted(spans):  # a path counts once, whichever of its names it has
            start = max(start, reached)
            if start < stop:
                steps[start] = steps.get(start, 0) + 1
                steps[stop] = steps.get(stop, 0) - 1
                reached = stop
    most = now = 0
    spans_best: list[tuple[int, int]] = []
    edges = sorted({*steps, len(commits)})
    for at, edge in enumerate(edges[:-1]):
        now += steps[edge]
        if now > most:
            most, spans_best = now, []
        if now == most and most:
            if spans_best and spans_best[-1][1] == edge:
                spans_best[-1] = (spans_best[-1][0], edges[at + 1])
            else:
                spans_best.append((edge, edges[at + 1]))
    if not spans_best:
        return []
    start, stop = spans_best[-1]
    last = commits[stop - 1]
    tree = odb.commit(last).tree
    met, known = count(odb, tree, asked)
    return [Vote(
        upstream=name, revision=last, tree=tree, votes=met, of=known, source="commit",
        first=commits[start], last=last, window=sum(b - a for a, b in spans_best),
    )]


def _in_archives(
    project: Project, name: str, asked: Sequence[Ballot], emit: Emit
) -> list[Vote]:
    """The votes for release archives in the cache that no line is pinned at."""
    package = project.settings.upstream[name].sdist
    if package is None or not asked:
        return []
    pinned = {
        pin.sdist.version
        for label in project.labels(name)
        if (pin := project.series(name, label).pin).sdist
    }
    found = []
    archives = sorted(project.paths.sdists.glob(f"{package}-*.tar.gz"))
    git = mirrors.ensure_repository(project.paths.repository(name))
    for at, archive in enumerate(archives):
        version = archive.name.removeprefix(f"{package}-").removesuffix(".tar.gz")
        if version in pinned:
            continue
        emit(Progress(f"{name}: reading {archive.name}", at, len(archives)))
        with ObjectStore(git) as odb:
            try:
                tree = _tree_of(archive, odb)
            except StackError:
                continue
            met, known = count(odb, tree, asked)
        found.append(Vote(
            upstream=name, revision=version, tree=tree, votes=met, of=known, source="sdist",
        ))
        if met == known == len(asked):
            break
    return found


def _tree_of(archive: Path, odb: ObjectStore) -> str:
    """The tree of an archive, which is unpacked only where it was not read before."""
    pin = archive_notes.known(archive)
    if pin is not None and odb.read(pin.tree) is not None:
        return pin.tree
    return sdists.read(archive, odb)[0]


def bases_of(votes: Mapping[str, Vote]) -> dict[str, dict[str, object]]:
    """`data.bases` of the `--json` document."""
    return {name: msgspec.to_builtins(one) for name, one in votes.items()}
