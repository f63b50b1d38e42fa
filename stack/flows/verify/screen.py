"""`screen`: knobs of a bench against the best setting so far, by the trials and rules of verify."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from stack.flows.builds.build import Built
from stack.flows.cluster.clustering import Where, check, pool_of
from stack.flows.events import Emit, Said
from stack.flows.measure.arms import Arm, Comparison, knobs
from stack.flows.measure.book import Book
from stack.flows.measure.compare import Found
from stack.flows.measure.measuring import measuring
from stack.flows.measure.plan import arm
from stack.flows.measure.pool import Lost, Pool, Task
from stack.flows.measure.proving import record_of
from stack.flows.measure.trials import Session
from stack.flows.verify.calibrate import prior_of
from stack.flows.verify.screen_plan import Candidate, Plan
from stack.flows.verify.screen_race import Racing
from stack.flows.verify.verifying import about
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.model.measure.screen_setting import Setting, arguments, environment, label
from stack.model.measure.trial import Machine, Trial, VerdictRecord
from stack.model.measure.verdict import Judgement, Verdict
from stack.store.project import Project

Told = tuple[Found, VerdictRecord]
Raced = tuple[Candidate, Found, VerdictRecord]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its verdict against `against`, the best setting when it was its turn."""

    candidate: Candidate
    against: str
    record: VerdictRecord
    trials: tuple[Trial, ...]
    tokens_differ: bool = False


class Screened(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `screen`; `left` are the candidates that the budget did not reach."""

    plan: Plan
    machine: Machine
    best: Setting
    tried: tuple[Tried, ...]
    left: tuple[Candidate, ...]
    runs: int

    @property
    def exit_code(self) -> int:
        """0, or 5 where nothing could be measured at all."""
        measured = any(trial.figures for one in self.tried for trial in one.trials)
        return 0 if measured or not self.tried or self._only_refused else 5

    @property
    def _only_refused(self) -> bool:
        return all(one.candidate.refusal for one in self.tried)


def screen(
    project: Project, plan: Plan, emit: Emit, *, runs: int | None = None,
    minutes: float | None = None, fresh: bool = False, where: Where | None = None,
) -> Screened:
    """Build what is missing, then try the candidates in turn; a faster one becomes the control.

    Every pair alternates with the best so far, so a drift of the machine hits both. `runs` and
    `minutes` are the budget, over what the screen says itself: a candidate that is begun is ended.
    On a cluster as many candidates as there are hosts race the best so far at once; where one of
    them becomes the best, those after it race again. Raises `Locked` while another run measures
    here; an interrupt keeps every finished trial, and the next run goes on from there.
    """
    what = f"screen {plan.name}"
    check(plan.profile, plan.profile_name, where)
    with measuring(
        project, plan.profile_name, plan.profile, emit, fresh=fresh, what=what
    ) as here, pool_of(project, plan.profile, here, where, emit) as pool:
        screening = Screening(
            project, plan, here.built, pool, emit,
            _budget(pool.book, runs or plan.screen.runs, minutes or plan.screen.minutes),
        )
        tried, left = screening.run()
        return Screened(
            plan=plan, machine=here.machine, best=screening.best, tried=tuple(tried),
            left=tuple(left), runs=pool.book.run_count,
        )


def _budget(
    book: Book, runs: int | None, minutes: float | None
) -> Callable[[], str | None]:
    """A question: why nothing more is begun, or None."""
    begun = time.monotonic()

    def spent() -> str | None:
        if runs is not None and book.run_count >= runs:
            return f"{book.run_count} of {runs} runs"
        passed = (time.monotonic() - begun) / 60
        if minutes is not None and passed >= minutes:
            return f"{passed:.1f} of {minutes:g} minutes"
        return None

    return spent


class Screening:
    """One screen on machines that nobody else measures on."""

    def __init__(
        self, project: Project, plan: Plan, built: Built, pool: Pool, emit: Emit,
        spent: Callable[[], str | None],
    ) -> None:
        self.project, self.plan, self.built = project, plan, built
        self.pool, self.book, self.emit, self.spent = pool, pool.book, emit, spent
        self.best: Setting = plan.control
        self.best_label = "control"
        self.known = {
            (record.line, record.patch, record.trials): record
            for record in pool.book.ledger.verdicts(lambda text: emit(Said(text, warning=True)))
            if record.mode == "screen"
        }

    def run(self) -> tuple[list[Tried], list[Candidate]]:
        """What was tried, in order, and what is left."""
        waiting = list(self.plan.candidates)
        tried: list[Tried] = []
        while waiting:
            why = self.spent()
            if why is not None and any(one.refusal is None for one in waiting):
                self.emit(Said(f"the budget is spent: {why}; {len(waiting)} candidates are left"))
                break
            open_ = sum(one.refusal is None for one in waiting)
            self.book.planned = self.book.done + open_ * self.plan.each
            best = self.best
            for raced in self._race(waiting[: self.pool.width]):
                waiting.pop(0)
                tried.append(self._settle(raced))
                if self.best is not best:
                    break
        return tried, waiting

    def _race(self, candidates: Sequence[Candidate]) -> list[Raced]:
        """The candidates against the best so far, in their order."""
        asked = [self._asked(one) for one in candidates]
        tasks = [
            self._task(asked[at], candidate, at)
            for at, candidate in enumerate(candidates) if candidate.refusal is None
        ]
        found = {task.at: result for task, result in self.pool.each(tasks)}
        raced = []
        for at, candidate in enumerate(candidates):
            result = found.get(at) or self._refused(candidate)
            if isinstance(result, Lost):
                said = Judgement(verdict=Verdict.UNCLEAR, method="hosts lost", note=result.note)
                result = _told(result.session, asked[at], Found(judgement=said))
            elif isinstance(result, Found):
                result = _told(self.pool.home, asked[at], result)
            raced.append((candidate, *result))
        return raced

    def _asked(self, candidate: Candidate) -> Comparison:
        setting = {**self._base(candidate), **candidate.setting}
        return Comparison(
            line=f"screen/{self.plan.name}", outcome=Outcome.CLEAN, mode="screen",
            member=Member(
                name=candidate.label, kind="feature" if self.plan.screen.exact else "experiment"
            ),
            name=self.plan.screen.bench, bench=self.plan.bench,
            before=self._arm(self.best, self.best_label),
            after=self._arm(setting, candidate.label),
        )

    def _task(self, asked: Comparison, candidate: Candidate, at: int) -> Task[Told]:
        def run(session: Session) -> Told:
            found = Racing(
                session, asked, self.plan.pairs, hopeless=self.plan.screen.hopeless,
                prior=prior_of(session, asked.name, asked.bench),
                family=sum(one.refusal is None for one in self.plan.candidates),
            ).race()
            return _told(session, asked, found)

        unit = self.plan.candidates.index(candidate)
        return Task(at=at, unit=unit, run=run, cost=self.plan.each, about=about(asked))

    @staticmethod
    def _refused(candidate: Candidate) -> Found:
        refusal = candidate.refusal
        assert refusal is not None, "every other candidate was raced"
        return Found(judgement=Judgement(
            verdict=Verdict.BLOCKED, method="preflight", cause=refusal.text,
            note=f"never started: {refusal.what}: {refusal.text}",
        ))

    def _settle(self, raced: Raced) -> Tried:
        """Write down what a race came to; a candidate that won is the best from now on."""
        candidate, found, record = raced
        known = self.known.get((record.line, record.patch, record.trials))
        if known is None or (known.verdict, known.note) != (record.verdict, record.note):
            self.book.record(record)
        self.emit(Said(f"{candidate.label}: {record.verdict}: {record.note}"))
        against = self.best_label
        if record.verdict in (Verdict.FASTER, Verdict.UNBLOCKED):
            self.best = {**self._base(candidate), **candidate.setting}
            self.best_label = label(self.best)
        return Tried(
            candidate=candidate, against=against, record=record, trials=found.trials,
            tokens_differ=_tokens_differ(found),
        )

    def _base(self, candidate: Candidate) -> Setting:
        """What a candidate changes: the best so far, or of a whole combination the control."""
        return self.best if self.plan.screen.combine == "one" else self.plan.control

    def _arm(self, setting: Setting, name: str) -> Arm:
        """The whole stack with the knobs of a setting over those of profile, bench and patches."""
        lines = [self.project.find(text) for text in self.plan.profile.lines]
        applied = [member for line in lines for member in line.series.select()]
        common = {**self.plan.profile.env, **self.plan.bench.env}
        both = {**knobs(common, applied, None), **environment(setting)}
        more = arguments(setting)
        if not lines:
            return Arm(
                prefix=name, patched={}, knobs=both, trees={}, layers=(), arguments=more
            )
        first = lines[0]
        side = arm(self.built, first, self.built.layers[first.id][-1], both)
        return msgspec.structs.replace(side, prefix=name, arguments=more)


def _told(session: Session, asked: Comparison, found: Found) -> Told:
    """A race with its record, which says where the tokens of the two sides differ."""
    judgement = found.judgement
    if _tokens_differ(found) and judgement.verdict not in (Verdict.BROKEN, Verdict.BLOCKED):
        note = f"{judgement.note}; its greedy tokens differ"
        judgement = msgspec.structs.replace(judgement, note=note)
    return found, record_of(session, asked, found, judgement)


def _tokens_differ(found: Found) -> bool:
    """By what its gates said; a trial keeps the side that it was first run for."""
    return len({trial.tokens for trial in found.trials if trial.tokens}) > 1
