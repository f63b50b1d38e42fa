"""`verify`: each patch against the prefix before it, measured, judged and written to the ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from stack.bench import environment
from stack.errors import ConfigError, UsageError
from stack.flows import environment as bases
from stack.flows import prepare
from stack.flows.arms import Arm, Comparison, knobs
from stack.flows.build import Built, build
from stack.flows.events import Emit, Said
from stack.flows.layers import PROBE
from stack.flows.prefixes import replayed
from stack.flows.signatures import catalogue
from stack.flows.verify_compare import Comparing, Found
from stack.flows.verify_trials import Ground, Session, now_id
from stack.host import fingerprint, survivors
from stack.model.line import near
from stack.model.outcome import Outcome
from stack.model.settings import Profile
from stack.model.trial import Machine, Mode, Trial, VerdictRecord, digest
from stack.model.verdict import Judgement, Verdict, holds, over_patches
from stack.store import lock
from stack.store.ledger import Ledger
from stack.store.project import Line, Project


class Proved(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with the trials that it rests on."""

    record: VerdictRecord
    trials: tuple[Trial, ...]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `verify`; `measured` when at least one bench gave a number."""

    profile: str
    machine: Machine
    proved: tuple[Proved, ...]

    @property
    def measured(self) -> bool:
        return any(trial.figures for one in self.proved for trial in one.trials)

    @property
    def exit_code(self) -> int:
        """0 every claim holds, 1 one does not, 5 nothing could be measured at all."""
        verdicts = {one.record.verdict for one in self.proved}
        if not self.measured and verdicts <= {Verdict.BLOCKED, Verdict.STALLED}:
            return 5
        return 1 if any(one.record.holds is False for one in self.proved) else 0


def verify(
    project: Project, profile_name: str | None, patches: Sequence[str], emit: Emit, *,
    pairs: int | None = None, mode: Mode = "marginal", fresh: bool = False,
) -> Verified:
    """Build what is missing, then put each patch of the profile's lines to the test.

    `patches` picks some of them, `pairs` overrides what the benches say, `fresh` measures again
    what the ledger holds. Raises `Locked` while another verify measures here; an interrupt keeps
    every finished trial, and the next run goes on from there.
    """
    name, profile = project.profile(profile_name)
    wanted = _choose(project, profile, patches)
    check_benches(project, name, profile, wanted)
    built = build(project, name, emit)
    ledger = Ledger(project.paths.ledger)
    project.paths.ensure_state()
    with lock.hold(project.paths.state / "measuring.lock", f"stack verify of {name}"):
        _end_leftovers(project, emit)
        machine = _machine(built, ledger, emit)
        _tell_left_out(name, profile, emit)
        ground = _ground(project, name, profile, built, machine)
        session = Session(
            ground, project.paths, ledger, catalogue(project), emit, fresh=fresh
        )
        asked = list(_comparisons(project, profile, built, wanted, emit, mode=mode))
        counts = [pairs or one.bench.pairs for one in asked]
        plan = [
            Comparing.planned(one, count) for one, count in zip(asked, counts, strict=True)
        ]
        results: list[tuple[Comparison, Found, VerdictRecord]] = []
        for at, (one, count) in enumerate(zip(asked, counts, strict=True)):
            session.planned = session.done + sum(plan[at:])
            found = Comparing(session, one, count).run()
            record = _record(session, one, found, found.judgement)
            ledger.append(record)
            results.append((one, found, record))
            emit(Said(f"{one.member.name}: {record.verdict}: {record.note}"))
        proved = _corrected(session, results, emit)
    return Verified(profile=name, machine=machine, proved=proved)


def _corrected(
    session: Session, results: Sequence[tuple[Comparison, Found, VerdictRecord]], emit: Emit
) -> tuple[Proved, ...]:
    """The verdicts, corrected for their number; a changed one is recorded as a correction."""
    judgements = over_patches([found.judgement for _, found, _ in results])
    proved = []
    for (asked, found, first), judgement in zip(results, judgements, strict=True):
        record = first
        if judgement != found.judgement:
            corrected = _record(session, asked, found, judgement)
            record = msgspec.structs.replace(corrected, replaces=first.id)
            session.ledger.append(record)
            emit(Said(f"{asked.member.name}: {record.verdict}: {record.note}"))
        proved.append(Proved(record=record, trials=found.trials))
    return tuple(proved)


def _choose(project: Project, profile: Profile, patches: Sequence[str]) -> dict[str, list[str]]:
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


def check_benches(
    project: Project, name: str, profile: Profile, wanted: dict[str, list[str]]
) -> None:
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


def _end_leftovers(project: Project, emit: Emit) -> None:
    """End what a killed verify left running; nobody else measures here, since we hold the lock."""
    mark = f"{environment.PROJECT_MARK}={project.paths.root}\0".encode()
    ended = survivors.end(mark)
    if ended:
        emit(Said(f"ended {ended} processes that a killed verify had left running", warning=True))


def _tell_left_out(name: str, profile: Profile, emit: Emit) -> None:
    """Say which switches of the caller's environment no trial will see."""
    names = environment.left_out(os.environ, profile.env)
    if names:
        shown = ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
        emit(Said(
            f"trials do not see {shown} of your environment; what they need stands in "
            f"[profile.{name}.env]", warning=True,
        ))


def _machine(built: Built, ledger: Ledger, emit: Emit) -> Machine:
    base = built.base
    mine = fingerprint.read(base.record.interpreter.version, base.packages)
    outer = environment.machine_part(os.environ)
    facts = {**msgspec.to_builtins(mine), "environment": outer}
    found = Machine(id=digest(mine.digest, outer), time=_now(), facts=facts)
    known = {record.id for record in ledger.machines(lambda text: emit(Said(text, warning=True)))}
    if found.id not in known:
        ledger.append(found)
    return found


def _ground(
    project: Project, name: str, profile: Profile, built: Built, machine: Machine
) -> Ground:
    tasks = prepare.tasks(project, built.base, name, profile)
    return Ground(
        profile=name, base_key=built.base.key, python=built.base.python,
        site_packages=built.base.site_packages, probe=PROBE, machine=machine.id,
        values={
            **bases.values(project, built.base, name), "drivers": str(PROBE.parent),
        },
        inputs=tuple(task.key for task in tasks),
        outer={**os.environ, environment.PROJECT_MARK: str(project.paths.root)},
    )


def _comparisons(
    project: Project, profile: Profile, built: Built, wanted: dict[str, list[str]], emit: Emit, *,
    mode: Mode,
) -> Iterator[Comparison]:
    """Prefix k-1 against prefix k for each wanted patch; other lines stand at their full length."""
    lines = [project.find(text) for text in profile.lines]
    for line in lines:
        outcomes = _outcomes(project, line, emit)
        prefixes = built.layers[line.id]
        for at, here in enumerate(prefixes):
            member = here.prefix.member
            if member is None or member.name not in wanted[line.id]:
                continue
            applied = [one.prefix.member for one in prefixes[:at] if one.prefix.member]
            for bench_name in member.bench or profile.benches:
                bench = project.settings.bench[bench_name]
                both = knobs(profile.env, bench.env, applied, member)
                bare, before, after = (
                    _arm(built, line, place, both) for place in (0, at - 1, at)
                )
                yield Comparison(
                    line=line.id, member=member, outcome=outcomes[member.name], mode=mode,
                    name=bench_name, bench=bench, before=before, after=after,
                    upstream=bare if at > 1 else None,
                )


def _outcomes(project: Project, line: Line, emit: Emit) -> dict[str, Outcome]:
    with replayed(project, line, line.series.select(), emit) as replay:
        return {step.name: step.outcome for step in replay.steps}


def _arm(built: Built, line: Line, at: int, both: dict[str, str]) -> Arm:
    """A side: the line's prefix at `at` first on the import path, then the other lines in full."""
    chosen = {line.id: built.layers[line.id][at]}
    for other, prefixes in built.layers.items():
        if other != line.id:
            chosen[other] = prefixes[-1]
    patched: dict[str, str] = {}
    for one in reversed(list(chosen.values())):
        patched |= one.layer.files
    return Arm(
        prefix=chosen[line.id].prefix.name or "base", patched=patched, knobs=both,
        trees={name: one.layer.tree for name, one in chosen.items()},
        layers=tuple(one.layer.path for one in chosen.values()),
    )


def _record(
    session: Session, asked: Comparison, found: Found, judgement: Judgement
) -> VerdictRecord:
    statistics = ("ratio", "low", "high", "level", "pairs", "p", "alpha", "detectable")
    return VerdictRecord(
        id=now_id(), run=session.run, time=_now(), profile=session.ground.profile,
        line=asked.line, patch=asked.member.name, state=asked.member.state,
        outcome=asked.outcome.value, claim=asked.member.claim, mode=asked.mode, bench=asked.name,
        bench_digest=session.bench_digest(asked.name, asked.bench), verdict=judgement.verdict,
        holds=holds(judgement, asked.member.claim), calibrated=judgement.calibrated,
        method=judgement.method, before=asked.before.prefix, after=asked.after.prefix,
        before_value=found.before_value, after_value=found.after_value, unit=asked.bench.unit,
        note=judgement.note, cause=judgement.cause, machine=session.ground.machine,
        trials=tuple(trial.id for trial in found.trials),
        **{name: getattr(judgement, name) for name in statistics},
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
