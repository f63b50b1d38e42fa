"""The comparisons of one verify, from their gates to their corrected verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from stack.flows.arms import Comparison
from stack.flows.calibrate import prior_of
from stack.flows.events import Emit, Said
from stack.flows.pool import Lost, Pool, Task, pieces
from stack.flows.proving import Proved, label, record_of, rejudged
from stack.flows.verify_compare import SIDES, Comparing, Found
from stack.flows.verify_rounds import Rounds, groups
from stack.flows.verify_trials import Session
from stack.model.trial import Trial, VerdictRecord, digest
from stack.model.verdict import Judgement, Verdict, over_patches

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
            return (found, record_of(session, asked, found, found.judgement)), found.trials

        return Task(
            at=at[0], unit=self.unit[at[0]], machine=at[1], run=run, cost=self.gates[at],
            about=about(asked),
        )

    def _measure(self) -> None:
        """The family are all comparisons that some machine is to time."""
        family = len({at for at, machine in self.gates if (at, machine) not in self.found})
        tasks = [
            self._timing(piece, timed, machine, max(1, family))
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
        self, piece: Sequence[int], timed: Sequence[int], machine: int, family: int
    ) -> Task[Timed]:
        def run(session: Session) -> Timed:
            open_ = []
            for at in timed:
                asked = self.asked[at]
                one = Comparing(
                    session, asked, self.counts[at], family=family,
                    prior=prior_of(session, asked.name, asked.bench),
                )
                one.trials = list(self.trials[at, machine])
                one.warm_here()
                open_.append(one)
            if len(piece) == 1:
                found = [open_[0].measure()]
            else:
                found = Rounds([self.asked[at] for at in piece], open_).run()
            return [
                (at, (one, record_of(session, self.asked[at], one, one.judgement)))
                for at, one in zip(timed, found, strict=True)
            ]

        return Task(
            at=timed[0], unit=self.unit[timed[0]], machine=machine, run=run,
            cost=sum(self.pairs[at, machine] for at in timed), about=about(self.asked[timed[0]]),
        )

    def _lost(self, lost: Lost, at: int) -> Told:
        judgement = Judgement(verdict=Verdict.UNCLEAR, method="hosts lost", note=lost.note)
        found = Found(judgement=judgement)
        return found, record_of(lost.session, self.asked[at], found, judgement)

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
        results = [self.found[at, 0] for at in range(len(self.asked))]
        judgements = over_patches([found.judgement for found, _ in results])
        proved = []
        for at, ((found, first), judgement) in enumerate(zip(results, judgements, strict=True)):
            record = first
            if judgement != found.judgement:
                record = rejudged(first, self.asked[at], judgement)
                self.book.record(record)
                self._say(record)
            proved.append(Proved(record=record, trials=found.trials))
        return tuple(proved)


def about(asked: Comparison) -> tuple[str, ...]:
    """What the trials of a comparison run, by which those of earlier runs are found."""
    return tuple(digest(asked.name, asked.arm(side).trees) for side in SIDES)
