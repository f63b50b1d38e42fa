"""The noise of a machine: pairs of runs with nothing changed, kept for its fingerprint."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from stack.errors import BenchFailed
from stack.flows.cluster.clustering import Where, check, pool_of
from stack.flows.events import Emit, Said
from stack.flows.measure.arms import Comparison, knobs
from stack.flows.measure.compare import Comparing
from stack.flows.measure.measuring import measuring
from stack.flows.measure.plan import arm, benches_of, check_benches, choose
from stack.flows.measure.pool import Lost, Task
from stack.flows.measure.trials import Session
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.model.measure.pairs import FEWEST_HISTORY, Pair, Prior, log_ratios, prior_from
from stack.model.measure.trial import Calibration, Machine
from stack.model.project.settings import Bench
from stack.store.project import Project
from stack.store.stamps import now, now_id

PAIRS = 8
_KEPT = 24
_NAME = "calibration"


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """The A/A histories of a profile's benches on this machine, as they now stand."""

    profile: str
    machine: Machine
    benches: tuple[Calibration, ...]


def calibrate(
    project: Project, profile_name: str | None, patches: Sequence[str], emit: Emit, *,
    pairs: int = PAIRS, fresh: bool = False, where: Where | None = None,
) -> Calibrated:
    """Measure `pairs` A/A pairs of each bench with the whole line on both sides, and keep them.

    The two sides have caches of their own, so that chance in a build counts as noise. `patches`
    picks their benches. With `fresh` new pairs join those of before. Raises `BenchFailed` where
    the whole line does not run.
    """
    name, profile = project.profile(profile_name)
    wanted = choose(project, profile, patches)
    check_benches(project, name, profile, wanted)
    check(profile, name, where)
    with measuring(project, name, profile, emit, fresh=fresh, what="verify --calibrate") as here:
        asked: dict[str, Comparison] = {}
        for line in (project.find(text) for text in profile.lines):
            active = line.series.select()
            for member in active:
                if member.name not in wanted[line.id]:
                    continue
                for bench_name, bench in benches_of(project, name, member, emit):
                    both = knobs({**profile.env, **bench.env}, list(active), None)
                    whole = arm(here.built, line, here.built.layers[line.id][-1], both)
                    asked.setdefault(bench_name, Comparison(
                        line=line.id, member=Member(name=_NAME), outcome=Outcome.CLEAN,
                        mode="marginal", name=bench_name, bench=bench,
                        before=msgspec.structs.replace(whole, draw="a"),
                        after=msgspec.structs.replace(whole, draw="b"),
                    ))
        with pool_of(project, profile, here, where, emit) as pool:
            tasks = [
                _task(one, at, machine, pairs)
                for at, one in enumerate(asked.values()) for machine in range(pool.machines)
            ]
            pool.book.planned = len(tasks) * 2 * (pairs + 1)
            results = {(task.at, task.machine): got for task, got in pool.each(tasks)}
        found = []
        for _, got in sorted(results.items()):
            if isinstance(got, Lost):
                raise BenchFailed(got.note, hint="the same command goes on from here")
            found.append(got)
    return Calibrated(profile=name, machine=here.machine, benches=tuple(found))


def _task(asked: Comparison, at: int, machine: int, pairs: int) -> Task[Calibration]:
    def run(session: Session) -> Calibration:
        return _measure(session, asked, pairs, session.emit)

    return Task(at=at, unit=at, machine=machine, run=run)


def _measure(session: Session, asked: Comparison, pairs: int, emit: Emit) -> Calibration:
    comparing = Comparing(session, asked, pairs)
    found = comparing.equal_sides(pairs)
    if not isinstance(found, list):
        raise BenchFailed(
            f"{asked.name}: the whole line does not run twice: {found.note}",
            hint="stack verify tells which patch is the matter",
        )
    ratios = log_ratios(found, asked.bench.better)
    trials = [trial for trial in comparing.trials if trial.role == "pair"]
    prior = prior_from(ratios)
    record = Calibration(
        id=now_id(), run=session.run, time=now(), profile=session.ground.profile,
        bench=asked.name, bench_digest=session.bench_digest(asked.name, asked.bench),
        machine=session.ground.machine, prefix=asked.before.prefix, trees=asked.before.trees,
        ratios=tuple(ratios), sd=prior.sd if prior else statistics.pstdev(ratios, 0.0),
        value=_mean(found), unit=asked.bench.unit, trials=tuple(trial.id for trial in trials),
    )
    known = {trial for one in _history(session, asked.name, asked.bench) for trial in one.trials}
    if not set(record.trials) <= known:
        session.book.record(record)
    pooled = prior_of(session, asked.name, asked.bench)
    text = f"a pair scatters by {_percent(pooled.sd)}, from {pooled.pairs} pairs" if pooled else (
        f"{len(ratios)} pairs, of which at least {FEWEST_HISTORY} are needed"
    )
    emit(Said(f"{asked.name}: {text}"))
    return record


def prior_of(session: Session, name: str, bench: Bench) -> Prior | None:
    """What this machine's A/A history says of a bench, from its last pairs; None without one."""
    ratios = [ratio for one in _history(session, name, bench) for ratio in one.ratios]
    return prior_from(ratios[-_KEPT:])


def _history(session: Session, name: str, bench: Bench) -> list[Calibration]:
    wanted = (session.ground.machine, session.bench_digest(name, bench))

    def warn(text: str) -> None:
        session.emit(Said(text, warning=True))

    return [
        one for one in session.ledger.calibrations(warn)
        if (one.machine, one.bench_digest) == wanted
    ]


def _mean(pairs: Sequence[Pair]) -> float:
    return statistics.fmean(value for pair in pairs for value in pair[:2])


def _percent(log: float) -> str:
    return f"{100 * math.expm1(log):.2f} %"
