"""Which comparisons a verify makes: what each mode puts against what, in which environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from stack.errors import ConfigError, UsageError
from stack.flows.arms import Arm, Comparison, knobs
from stack.flows.build import Built, BuiltPrefix
from stack.flows.events import Emit
from stack.flows.leave_out import left_out
from stack.flows.prefixes import replayed
from stack.model.line import near
from stack.model.outcome import Outcome
from stack.model.settings import Profile
from stack.model.trial import Mode
from stack.store.project import Line, Project

Wanted = dict[str, list[str]]


def choose(project: Project, profile: Profile, patches: Sequence[str]) -> Wanted:
    """The patches to put to the test by line; `UsageError` for one that no line applies."""
    lines = [project.find(text) for text in profile.lines]
    active = {line.id: [member.name for member in line.series.select()] for line in lines}
    if not any(active.values()):
        raise UsageError(
            "this profile applies no patch, so there is nothing to verify",
            hint='lines = ["UPSTREAM/LABEL"] in its table of stack.toml',
        )
    known = [name for names in active.values() for name in names]
    for name in patches:
        if name in known:
            continue
        parked = [line.id for line in lines if name in line.files]
        if parked:
            raise UsageError(
                f"patch `{name}` is parked in {parked[0]}, so no prefix holds it",
                hint=f"stack show {name} says why",
            )
        raise UsageError(
            f"no patch `{name}` in {', '.join(active) or 'any line of this profile'}",
            hint=near(name, known, "stack list"),
        )
    return {
        line: [name for name in names if not patches or name in patches]
        for line, names in active.items()
    }


def check_benches(project: Project, name: str, profile: Profile, wanted: Wanted) -> None:
    """Refuse, before anything is built, a bench that nobody described."""
    known = project.settings.bench
    places = [(bench, f"stack.toml: profile.{name}.benches") for bench in profile.benches]
    for text in profile.lines:
        line = project.find(text)
        for member in line.series.patch:
            if member.name in wanted[line.id]:
                where = project.shown(line.folder / "series.toml")
                places += [(bench, f"{where}: patch `{member.name}`") for bench in member.bench]
                if not member.bench and not profile.benches:
                    raise ConfigError(
                        f"{where}: patch `{member.name}` names no bench, and neither does "
                        f"profile `{name}`",
                        hint=f'bench = ["NAME"] there, or benches = ["NAME"] in [profile.{name}]',
                    )
    for bench, where in places:
        if bench not in known:
            hint = near(bench, list(known), "describe it in stack.toml")
            raise ConfigError(f"{where}: no bench `{bench}` in stack.toml", hint=hint)


def comparisons(
    project: Project, profile: Profile, built: Built, wanted: Wanted, emit: Emit, *, mode: Mode
) -> Iterator[Comparison]:
    """What `mode` compares for each wanted patch; other lines stand at their full length.

    `marginal` is prefix k-1 against prefix k, and once more with the patch's own switches left
    alone where it has some; `cumulative` is the base against prefix k; `leave-one-out` is the
    whole line without the patch against the whole line.
    """
    for line in (project.find(text) for text in profile.lines):
        if not wanted[line.id]:
            continue
        outcomes = _outcomes(project, line, emit)
        for at, here in enumerate(built.layers[line.id]):
            member = here.prefix.member
            if member is None or member.name not in wanted[line.id]:
                continue
            for name in member.bench or profile.benches:
                bench = project.settings.bench[name]
                env = {**profile.env, **bench.env}
                for kind, before, after, bare in _sides(
                    project, built, line, at, env, emit, mode=mode
                ):
                    yield Comparison(
                        line=line.id, member=member, outcome=outcomes[member.name], mode=kind,
                        name=name, bench=bench, before=before, after=after, upstream=bare,
                    )


Sides = tuple[Mode, Arm, Arm, Arm | None]


def _sides(
    project: Project, built: Built, line: Line, at: int, env: dict[str, str], emit: Emit, *,
    mode: Mode,
) -> Iterator[Sides]:
    """Before, after, and the side without any patch, for the patch at a place of its line."""
    prefixes = built.layers[line.id]
    members = [one.prefix.member for one in prefixes]
    member = members[at]
    assert member is not None, "the base is no patch"
    if mode == "leave-one-out":
        both = knobs(env, [one for one in members if one], member)
        whole = arm(built, line, prefixes[-1], both)
        rest = left_out(project, built, line, member.name, emit)
        without = f"without {member.name}"
        if rest is None:
            before = Arm(prefix=without, patched={}, knobs=both, trees={}, layers=(), made=False)
        else:
            before = msgspec.structs.replace(arm(built, line, rest, both), prefix=without)
        yield mode, before, whole, None
        return
    earlier = [one for one in members[:at] if one]
    both = knobs(env, earlier, member)
    bare, before, after = (arm(built, line, prefixes[place], both) for place in (0, at - 1, at))
    if mode == "cumulative":
        yield mode, bare, after, None
        return
    yield mode, before, after, bare if at > 1 else None
    if member.env:
        off = knobs(env, earlier, None)
        before, after = (arm(built, line, prefixes[place], off) for place in (at - 1, at))
        yield "default-off", before, after, None


def _outcomes(project: Project, line: Line, emit: Emit) -> dict[str, Outcome]:
    with replayed(project, line, line.series.select(), emit) as replay:
        return {step.name: step.outcome for step in replay.steps}


def arm(built: Built, line: Line, here: BuiltPrefix, both: dict[str, str]) -> Arm:
    """A side: a prefix of the line first on the import path, then the other lines in full."""
    chosen = {line.id: here}
    for other, prefixes in built.layers.items():
        if other != line.id:
            chosen[other] = prefixes[-1]
    patched: dict[str, str] = {}
    for one in reversed(list(chosen.values())):
        patched |= one.layer.files
    return Arm(
        prefix=here.prefix.name or "base", patched=patched, knobs=both,
        trees={name: one.layer.tree for name, one in chosen.items()},
        layers=tuple(one.layer.path for one in chosen.values()),
    )
