"""Which comparisons a verify makes: what each mode puts against what, in which environment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from stack.errors import ConfigError, UsageError
from stack.flows.builds.build import Built, BuiltPrefix
from stack.flows.builds.selection import selected
from stack.flows.events import Emit, Said
from stack.flows.measure.arms import Arm, Comparison, knobs
from stack.flows.measure.staleness import sources
from stack.flows.prefixes import replayed
from stack.model.line.line import Member, near
from stack.model.line.outcome import Outcome
from stack.model.measure.trial import Mode
from stack.model.project.settings import Bench, Profile
from stack.store.paths import CONFIG
from stack.store.project import Line, Project

Wanted = dict[str, list[str]]


def choose(project: Project, profile: Profile, patches: Sequence[str]) -> Wanted:
    """The patches to put to the test by line; `UsageError` for one that no line has.

    A parked one is taken only by its name.
    """
    lines = [project.find(text) for text in profile.lines]
    active = {line.id: [member.name for member in line.series.select()] for line in lines}
    if not patches and not any(active.values()):
        raise UsageError(
            "this profile applies no patch, so there is nothing to verify",
            hint='lines = ["UPSTREAM/LABEL"] in its table of stack.toml',
        )
    known = [name for names in active.values() for name in names]
    for name in patches:
        parked = [line.id for line in lines if name in line.files]
        if name in known or parked:
            continue
        raise UsageError(
            f"no patch `{name}` in {', '.join(active) or 'any line of this profile'}",
            hint=near(name, known, "stack list"),
        )
    return {
        line.id: [
            member.name for member in line.series.patch
            if member.name in patches or (not patches and member.state == "active")
        ]
        for line in lines
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
            hint = near(bench, list(known), CONFIG)
            raise ConfigError(f"{where}: no bench `{bench}` in stack.toml", hint=hint)


def benches_of(
    project: Project, profile: str, member: Member, emit: Emit
) -> Iterator[tuple[str, Bench]]:
    """The benches that tell of a patch in a profile; one that is for other profiles is said."""
    for name in member.bench or project.settings.profile[profile].benches:
        bench = project.settings.bench[name]
        if bench.profiles and profile not in bench.profiles:
            where = ", ".join(bench.profiles)
            emit(Said(f"{member.name}: bench `{name}` is for {where}, not measured here"))
        else:
            yield name, bench


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
        known = {one.prefix.name for one in built.layers[line.id]}
        parked = [
            member for member in line.series.patch
            if member.state == "parked" and member.name in wanted[line.id]
        ]
        outcomes = _outcomes(project, line, parked, emit)
        for member in line.series.patch:
            active = member.name in known
            if member.name not in wanted[line.id] or not (active or member in parked):
                continue
            for name, bench in benches_of(project, built.profile, member, emit):
                env = {**profile.env, **bench.env}
                for kind, before, after, bare in _sides(
                    project, built, line, member, env, emit, mode=mode
                ):
                    yield Comparison(
                        line=line.id, member=member, outcome=outcomes[member.name], mode=kind,
                        name=name, bench=bench, before=before, after=after, upstream=bare,
                        sources=sources(project, profile, line, member, kind),
                    )


Sides = tuple[Mode, Arm, Arm, Arm | None]


def _sides(
    project: Project, built: Built, line: Line, member: Member, env: dict[str, str], emit: Emit, *,
    mode: Mode,
) -> Iterator[Sides]:
    """Before, after, and the side without any patch; a parked patch is put where it stands."""
    prefixes = built.layers[line.id]
    place = line.series.patch.index(member)
    below = {one.name for one in line.series.patch[:place]}
    at = max(here for here, one in enumerate(prefixes) if here == 0 or one.prefix.name in below)
    earlier = [one.prefix.member for one in prefixes[: at + 1] if one.prefix.member]
    both = knobs(env, earlier, member)

    def made(chosen: Sequence[Member], knobs: dict[str, str], name: str) -> Arm:
        """A side that is no prefix of the line as it stands."""
        layer = selected(project, built, line, chosen, emit)
        if layer is None:
            return Arm(prefix=name, patched={}, knobs=knobs, trees={}, layers=(), made=False)
        return msgspec.structs.replace(arm(built, line, layer, knobs), prefix=name)

    if mode == "leave-one-out":
        every = [one.prefix.member for one in prefixes if one.prefix.member]
        both = knobs(env, every, member)
        whole = made(line.series.select(with_=_parked(member)), both, "the whole line")
        rest = line.series.select(without=(member.name,))
        yield mode, made(rest, both, f"without {member.name}"), whole, None
        return
    bare, before = (arm(built, line, prefixes[here], both) for here in (0, at))

    def here(knobs: dict[str, str]) -> Arm:
        """The side with the patch."""
        if member.state == "active":
            return arm(built, line, prefixes[at + 1], knobs)
        chosen = line.series.select(to=member.name, with_=_parked(member))
        return made(chosen, knobs, member.name)

    if mode == "cumulative":
        yield mode, bare, here(both), None
        return
    yield mode, before, here(both), bare if at > 0 else None
    if member.env:
        off = knobs(env, earlier, None)
        yield "default-off", arm(built, line, prefixes[at], off), here(off), None


def _parked(member: Member) -> tuple[str, ...]:
    return (member.name,) if member.state == "parked" else ()


def _outcomes(
    project: Project, line: Line, parked: Sequence[Member], emit: Emit
) -> dict[str, Outcome]:
    """How each patch applies: the active ones together, a parked one on what stands before it."""
    found: dict[str, Outcome] = {}
    for chosen in (line.series.select(), *(
        line.series.select(to=one.name, with_=(one.name,)) for one in parked
    )):
        with replayed(project, line, chosen, emit, strict=False) as replay:
            found |= {step.name: step.outcome for step in replay.steps if step.name not in found}
    return found


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
