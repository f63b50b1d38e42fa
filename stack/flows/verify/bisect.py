"""Find the patch, or the upstream commit, that changed a metric, a gate, or whether it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from stack.errors import Conflict, StackError, StateError, UsageError
from stack.flows.base import open_base
from stack.flows.builds.build import Built, BuiltPrefix
from stack.flows.builds.selection import layer_of
from stack.flows.events import Emit, Said
from stack.flows.measure.arms import Arm, knobs
from stack.flows.measure.measuring import measuring
from stack.flows.measure.plan import arm
from stack.flows.pins import resolve_pin
from stack.flows.prefixes import Prefix, items, replayed
from stack.flows.rebase.forecast import at_pin
from stack.flows.upstream_news import repositories
from stack.flows.verify.bisect_probe import Ends, Prober
from stack.model.line.line import Pin, near
from stack.model.line.outcome import Outcome
from stack.model.measure.bisect import Answer, Search
from stack.repo.carry_series import carry_series
from stack.store.paths import CONFIG
from stack.store.project import Line, Project
from stack.store.resolutions import Memory

PAIRS = 8


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One state that was looked at: its name, the answer, and why."""

    name: str
    answer: Answer
    note: str


class Bisected(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: `suspects` has one name where it could be told, none where nothing changed."""

    bench: str
    line: str
    good: str
    bad: str
    between: int
    ends: Ends | None
    suspects: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 one is the culprit, 1 nothing changed between the ends, 125 it cannot be told."""
        if self.ends is None:
            return 1
        return 0 if len(self.suspects) == 1 else 125


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """States in their order by name; `arm_of` makes the side of one, or says why it cannot."""

    names: tuple[str, ...]
    arm_of: Callable[[int], Arm]


def bisect(
    project: Project, line: Line, bench: str, emit: Emit, *, profile_name: str | None = None,
    good: str | None = None, bad: str | None = None, upstream: str | None = None,
    pairs: int = PAIRS, fresh: bool = False,
) -> Bisected:
    """Look between two prefixes of the line, or with `upstream` (`A..B`) between two commits.

    `good` and `bad` are patches, by default the base and the last one. All sides have the line's
    switches on. A state that does not apply, cannot be built, or ends with 125 is passed over.
    """
    name, profile = project.profile(profile_name)
    settings = project.settings.bench.get(bench)
    if settings is None:
        hint = near(bench, list(project.settings.bench), CONFIG)
        raise UsageError(f"no bench `{bench}` in stack.toml", hint=hint)
    if line.id not in [project.find(text).id for text in profile.lines]:
        raise UsageError(
            f"profile `{name}` does not apply {line.id}", hint="--profile NAME, or --line"
        )
    env = {**profile.env, **settings.env}
    commits = _commits(project, line, upstream) if upstream else []
    with measuring(project, name, profile, emit, fresh=fresh, what="bisect") as here:
        both = knobs(env, list(line.series.select()), None)
        if upstream:
            row = _upstream(project, here.built, line, commits, both, emit)
        else:
            row = _patches(here.built, line, both, good, bad)
        prober = Prober(here.session, line.id, bench, settings, pairs)
        return _search(row, prober, line.id, emit)


def _search(row: Row, prober: Prober, line: str, emit: Emit) -> Bisected:
    last = len(row.names) - 1
    found = Bisected(
        bench=prober.name, line=line, good=row.names[0], bad=row.names[-1], between=last, ends=None
    )
    good, bad = row.arm_of(0), row.arm_of(last)
    ends = prober.ends(good, bad)
    if ends is None:
        return found
    emit(Said(f"{found.good} and {found.bad} differ in their {ends.kind}: {ends.note}"))
    search, asked = Search(last), list[Asked]()
    while (at := search.next()) is not None:
        answer: Answer
        try:
            answer, note = prober.answer(ends, good, bad, row.arm_of(at))
        except StackError as wrong:
            if wrong.exit_code not in (3, 4):
                raise
            answer, note = "cannot tell", wrong.message
        asked.append(Asked(name=row.names[at], answer=answer, note=note))
        emit(Said(f"{row.names[at]}: {answer}: {note}"))
        search.tell(at, answer)
    return msgspec.structs.replace(
        found, ends=ends, asked=tuple(asked),
        suspects=tuple(row.names[at] for at in search.suspects),
    )


def _patches(
    built: Built, line: Line, both: dict[str, str], good: str | None, bad: str | None
) -> Row:
    prefixes = built.layers[line.id]
    names = [one.prefix.name or "base" for one in prefixes]
    for name in (good, bad):
        if name is not None and name not in names:
            raise UsageError(
                f"`{name}` is no prefix of {line.id}", hint=near(name, names, "stack list")
            )
    low = names.index(good) if good else 0
    high = names.index(bad) if bad else len(names) - 1
    if low >= high:
        raise UsageError(f"`{names[low]}` does not stand below `{names[high]}`", hint="stack list")
    chosen = prefixes[low : high + 1]
    return Row(
        names=tuple(names[low : high + 1]), arm_of=lambda at: arm(built, line, chosen[at], both)
    )


def _commits(project: Project, line: Line, text: str) -> list[str]:
    """The commits of `A..B` on upstream's first-parent history, A first."""
    old, dots, new = text.partition("..")
    if not (old and dots and new):
        raise UsageError(f"`{text}` is not a range of commits", hint="--upstream GOOD..BAD")
    for _, git in repositories(project, line.series.upstream):
        found = git.run(
            "rev-list", "--first-parent", "--reverse", "--end-of-options", f"{old}..{new}", "--",
            ok=(0, 128, 129),
        )
        first = git.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{old}^{{commit}}",
            ok=(0, 1, 128),
        )
        if found.text and first.text:
            return [first.text, *found.text.split()]
    raise StateError(
        f"no repository of {line.series.upstream} on this machine has {old}..{new}",
        hint=f"stack upstream fetch {line.series.upstream}; path = ... in stack.toml",
    )


def _upstream(
    project: Project, built: Built, line: Line, commits: Sequence[str], both: dict[str, str],
    emit: Emit,
) -> Row:
    made: dict[int, Arm] = {}

    def arm_of(at: int) -> Arm:
        if at not in made:
            layer = _carried(project, built, line, commits[at], emit)
            made[at] = msgspec.structs.replace(
                arm(built, line, layer, both), prefix=commits[at][:12]
            )
        return made[at]

    return Row(names=tuple(commit[:12] for commit in commits), arm_of=arm_of)


def _carried(
    project: Project, built: Built, line: Line, commit: str, emit: Emit
) -> BuiltPrefix:
    """The layer of a commit with the line carried to it; raises `Conflict` or `BuildFailed`."""
    pin: Pin = resolve_pin(project, line.series.upstream, commit, emit)
    base = open_base(project, at_pin(line.series, pin), emit)
    members = line.series.select()
    memory = Memory(project.paths.patches / line.series.upstream / "resolutions")
    with replayed(project, line, members, emit) as replay:
        steps = carry_series(
            replay.odb, items(line, members, project), replay.base, base.commit,
            answer=memory.answer,
        )
        for step in steps:
            if step.outcome in (Outcome.CONFLICT, Outcome.NOT_TRIED):
                raise Conflict(f"patch `{step.name}` meets a conflict at {commit[:12]}")
        tree = steps[-1].tree if steps else base.tree
        prefix = Prefix(name=commit[:12], commit=commit, tree=tree or base.tree)
        return layer_of(project, built, line, replay, prefix, emit)
