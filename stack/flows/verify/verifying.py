"""The comparisons of one verify, from their gates to their corrected verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stack.flows.events import Emit, Said
from stack.flows.measure.arms import Comparison
from stack.flows.measure.compare import SIDES, Comparing, Found
from stack.flows.measure.pool import Lost, Pool, Task, pieces
from stack.flows.measure.proving import Proved, label, record_of, rejudged
from stack.flows.measure.rounds import Rounds, groups
from stack.flows.measure.trials import Session
from stack.flows.verify.calibrate import prior_of
from stack.model.measure.judge import Rule, looks_up_to
from stack.model.measure.over_hosts import over_machines, together
from stack.model.measure.trial import Trial, VerdictRecord, digest
from stack.model.measure.verdict import Judgement, Verdict, over_patches
from stack.store.stamps import now

At = tuple[int, int]
"""A comparison and a machine, by their numbers."""
Told = tuple[Found, VerdictRecord]
Prepared = tuple[Told | None, tuple[Trial, ...]]
Timed = list[tuple[int, Told]]


class Verifying:
    """Puts comparisons to the test, each on as many machines as the pool says."""

    def __init__(
        self, pool: Pool, asked: Sequence[Comparison], pairs: int | None, emit: Emit
    ) -> None:
        self.pool, self.book, self.asked, self.emit = pool, pool.book, asked, emit
        self.counts = [pairs or one.bench.pairs for one in asked]
        self.machines = range(pool.machines)
        self.pieces = pieces(groups(asked), pool.longest)
        self.unit = {at: number for number, piece in enumerate(self.pieces) for at in piece}
        places = [(at, machine) for machine in self.machines for at in range(len(asked))]
        self.gates = {at: 2 * (bool(asked[at[0]].bench.gate) + 1) for at in places}
        self.pairs = {at: 2 * self.counts[at[0]] for at in places}
        self.family = 1
        self.trials: dict[At, tuple[Trial, ...]] = {}
        self.found: dict[At, Told] = {}

    def run(self) -> tuple[Proved, ...]:
        """Gates of all, then pairs, then the correction for the number of comparisons."""
        self._prepare()
        self._measure()
        return self._corrected()

    def _prepare(self) -> None:
        tasks = [self._preparing(at) for at in self.gates]
        self._plan()
        for task, result in self.pool.each(tasks):
            at = (task.at, task.machine)
            told, self.trials[at] = (
                (self._lost(result, task.at), ()) if isinstance(result, Lost) else result
            )
            self.gates[at] = 0
            if told is not None:
                self._tell(at, told)
            self._plan()

    def _preparing(self, at: At) -> Task[Prepared]:
        asked, count = self.asked[at[0]], self.counts[at[0]]

        def run(session: Session) -> Prepared:
            comparing = Comparing(session, asked, count)
            found = comparing.prepare()
            if found is None:
                return None, tuple(comparing.trials)
            return _recorded(session, asked, found), found.trials

        return Task(
            at=at[0], unit=self.unit[at[0]], machine=at[1], run=run, cost=self.gates[at],
            about=about(asked),
        )

    def _measure(self) -> None:
        """The family are all comparisons that some machine is to time."""
        timed_somewhere = {at for at, machine in self.gates if (at, machine) not in self.found}
        self.family = max(1, len(timed_somewhere))
        tasks = [
            self._timing(piece, timed, machine)
            for machine in self.machines for piece in self.pieces
            if (timed := [at for at in piece if (at, machine) not in self.found])
        ]
        for task, result in self.pool.each(tasks):
            here = (at for at in self.pieces[task.unit] if (at, task.machine) not in self.found)
            if isinstance(result, Lost):
                result = [(at, self._lost(result, at)) for at in here]
            for at, told in result:
                self._tell((at, task.machine), told)
            self._plan()

    def _timing(
        self, piece: Sequence[int], timed: Sequence[int], machine: int
    ) -> Task[Timed]:
        def run(session: Session) -> Timed:
            told: Timed = []
            open_: dict[int, Comparing] = {}
            for at in timed:
                asked = self.asked[at]
                one = Comparing(
                    session, asked, self.counts[at], family=self.family,
                    prior=prior_of(session, asked.name, asked.bench),
                )
                held = self.trials[at, machine]
                if any(trial.machine != session.ground.machine for trial in held):
                    found = one.prepare()  # its machine is gone: another has gates of its own
                    if found is not None:
                        told.append((at, _recorded(session, asked, found)))
                        continue
                else:
                    one.trials = list(held)
                    one.warm_here()
                open_[at] = one
            if len(piece) == 1:
                results = [one.measure() for one in open_.values()]
            else:
                every = [self.asked[at] for at in piece]
                results = Rounds(every, list(open_.values())).run() if open_ else []
            told += [
                (at, _recorded(session, self.asked[at], found))
                for at, found in zip(open_, results, strict=True)
            ]
            return told

        return Task(
            at=timed[0], unit=self.unit[timed[0]], machine=machine, run=run,
            cost=sum(self.pairs[at, machine] for at in timed), about=about(self.asked[timed[0]]),
        )

    def _lost(self, lost: Lost, at: int) -> Told:
        judgement = Judgement(verdict=Verdict.UNCLEAR, method="hosts lost", note=lost.note)
        return _recorded(lost.session, self.asked[at], Found(judgement=judgement))

    def _plan(self) -> None:
        left = sum(self.gates.values()) + sum(self.pairs.values())
        self.book.planned = self.book.done + left

    def _tell(self, at: At, told: Told) -> None:
        self.book.record(told[1])
        self.found[at] = told
        self.pairs[at] = 0
        self._say(told[1])

    def _say(self, record: VerdictRecord) -> None:
        self.emit(Said(f"{label(record)}: {record.verdict}: {record.note}"))

    def _corrected(self) -> tuple[Proved, ...]:
        """The verdicts, corrected for their number; a changed one is recorded as a correction."""
        results = [self._over_machines(at) for at in range(len(self.asked))]
        judgements = over_patches([judgement for judgement, _ in results])
        proved = []
        for at, ((before, first), judgement) in enumerate(zip(results, judgements, strict=True)):
            record = first.record
            if judgement != before:
                record = rejudged(record, self.asked[at], judgement)
                self.book.record(record)
                self._say(record)
            proved.append(Proved(record=record, trials=first.trials))
        return tuple(proved)

    def _over_machines(self, at: int) -> tuple[Judgement, Proved]:
        """What a comparison came to on all machines; on one it is what it came to there."""
        each = {told[1].machine: told for told in (self.found[at, one] for one in self.machines)}
        found, record = self.found[at, 0]
        if len(each) == 1:
            return found.judgement, Proved(record=record, trials=found.trials)
        asked, bench = self.asked[at], self.asked[at].bench
        rule = Rule(
            better=bench.better, minimum_effect=bench.minimum_effect, family=self.family,
            looks=looks_up_to(self.counts[at]),
        )
        judgement = over_machines([told[0].judgement for told in each.values()], rule)
        whole = together(sorted(each), now())
        self.book.record(whole)
        record = rejudged(record, asked, judgement)
        trials = tuple(trial for told in each.values() for trial in told[0].trials)
        record = msgspec.structs.replace(
            record, machine=whole.id, trials=tuple(trial.id for trial in trials), replaces=None,
            before_value=None, after_value=None,
        )
        self.book.record(record)
        self._say(record)
        return judgement, Proved(record=record, trials=trials)


def _recorded(session: Session, asked: Comparison, found: Found) -> Told:
    return found, record_of(session, asked, found, found.judgement)


def about(asked: Comparison) -> tuple[str, ...]:
    """What the trials of a comparison run, by which those of earlier runs are found."""
    return tuple(digest(asked.name, asked.arm(side).trees) for side in SIDES)
