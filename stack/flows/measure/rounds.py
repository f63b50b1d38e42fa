"""Comparisons that share sides, measured together: every side once a round, there and back."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import msgspec

from stack.flows.measure.arms import Arm, Comparison, drawn
from stack.flows.measure.compare import SIDES, Comparing, Found, stopped, timed
from stack.model.measure.judge import next_step
from stack.model.measure.pairs import Pair
from stack.model.measure.trial import Side, Trial, digest
from stack.model.measure.verdict import Judgement

# Places of a side beyond its own: the second try of one that failed, and pairs measured again.
_SECOND, _AGAIN = 1000, 2000


def key_of(arm: Arm) -> str:
    """What makes two sides the same one."""
    return digest(arm.identity, arm.knobs)


def groups(asked: Sequence[Comparison]) -> list[list[int]]:
    """The comparisons, by index, that are connected by sides which they share in one bench."""
    found: list[tuple[set[tuple[str, str]], list[int]]] = []
    for index, one in enumerate(asked):
        sides = {(one.name, key_of(one.before)), (one.name, key_of(one.after))}
        joined = [group for group in found if group[0] & sides]
        rest = [group for group in found if not group[0] & sides]
        members = sorted([index, *(at for group in joined for at in group[1])])
        found = [*rest, (sides.union(*(group[0] for group in joined)), members)]
    return sorted(group[1] for group in found)


class Rounds:
    """Measures comparisons that share sides: k patches of a chain cost k + 1 runs a round, not 2k.

    Every round goes over the sides in their order, every other one backward, so that each
    comparison sees its sides in the order A B B A.
    """

    def __init__(self, every: Sequence[Comparison], timed_: Sequence[Comparing]) -> None:
        """`every` are all comparisons of the group, `timed_` those that are to be timed."""
        self.arms: list[str] = []
        for one in every:
            for side in SIDES:
                if key_of(one.arm(side)) not in self.arms:
                    self.arms.append(key_of(one.arm(side)))
        name = digest(every[0].name, self.arms)
        self.open = dict(enumerate(timed_))
        for comparing in timed_:
            comparing.asked = msgspec.structs.replace(comparing.asked, rounds=name)
        self.session = timed_[0].session
        self.found: dict[int, Found] = {}
        self.pairs: dict[int, list[Pair]] = {at: [] for at in self.open}
        self.replaced: set[int] = set()
        self.forward: bool | None = None

    def run(self) -> list[Found]:
        """The answer to each comparison that was to be timed, in their order."""
        count = len(self.open)
        while self.open:
            for at in list(self.open):
                self._look(at)
            if self.open:
                self._round(min(len(self.pairs[at]) for at in self.open))
        return [self.found[at] for at in range(count)]

    def _look(self, at: int) -> None:
        """Decide a comparison where its pairs are enough; measure a slow pair again, once."""
        one, pairs = self.open[at], self.pairs[at]
        while True:
            step = next_step(pairs, one.rule, replaced=at in self.replaced)
            if step.judgement is not None:
                self._close(at, step.judgement)
                return
            if step.replace is None:
                return
            self.replaced.add(at)
            pair = self._again(at, step.replace)
            if isinstance(pair, Judgement):
                self._close(at, pair)
                return
            pairs[step.replace] = pair

    def _close(self, at: int, judgement: Judgement) -> None:
        one = self.open.pop(at)
        found = timed(self.pairs[at], judgement)
        self.found[at] = msgspec.structs.replace(found, trials=tuple(one.trials))

    def _round(self, number: int) -> None:
        """Run every side that an open comparison needs once."""
        wanted = dict(self._wanted())
        order = [key for key in self.arms if key in wanted]
        asked = {id(one): one.warm(number) for one in self.open.values()}
        cells = [self._held(wanted[key], key, number) for key in order]
        self.session.drop_stale(cells)
        if self._direction(cells) != (number % 2 == 0):
            order.reverse()
        ran: dict[str, Trial] = {}
        for key in order:
            if key not in dict(self._wanted()):  # the comparison that needed it has just ended
                continue
            one, side = wanted[key]
            here = asked[id(one)]
            trial = one.session.ask(
                here, side, "pair", pair=number + 1, place=self.arms.index(key)
            )
            if not trial.ran:
                trial = one.session.ask(
                    here, side, "pair", pair=number + 1, place=self.arms.index(key) + _SECOND
                )
            ran[key] = trial
            for at in list(self.open):
                self._take(at, ran, number, order)

    def _take(self, at: int, ran: dict[str, Trial], number: int, order: Sequence[str]) -> None:
        """Give a comparison its pair as soon as both sides ran; end it where one does not."""
        one, pairs = self.open[at], self.pairs[at]
        keys = [key_of(one.asked.arm(side)) for side in SIDES]
        if len(pairs) != number or not all(key in ran for key in keys):
            return
        trials = [ran[key] for key in keys]
        one.trials += sorted(trials, key=lambda trial: trial.id)
        values = []
        for side, trial in zip(SIDES, trials, strict=True):
            if trial.figures is None:
                self._close(at, stopped(side, trial, number))
                return
            values.append(trial.figures.value)
        first = order.index(keys[0]) < order.index(keys[1])
        pairs.append(Pair(values[0], values[1], first))

    def _again(self, at: int, number: int) -> Pair | Judgement:
        """One pair of a comparison once more, in its own order."""
        one = self.open[at]
        asked = one.warm(number)
        first = self.pairs[at][number].before_first
        values: dict[Side, float] = {}
        for place, side in enumerate(SIDES if first else SIDES[::-1]):
            trial = self.session.ask(
                asked, side, "pair", pair=number + 1, place=_AGAIN + 2 * at + place
            )
            one.trials.append(trial)
            if trial.figures is None:
                return stopped(side, trial, number)
            values[side] = trial.figures.value
        return Pair(values["before"], values["after"], first)

    def _wanted(self) -> Iterator[tuple[str, tuple[Comparing, Side]]]:
        for one in reversed(self.open.values()):
            for side in SIDES:
                yield key_of(one.asked.arm(side)), (one, side)

    def _held(self, who: tuple[Comparing, Side], key: str, number: int) -> Trial | None:
        one, side = who
        asked, place = drawn(one.asked, number), self.arms.index(key)
        return self.session.find(asked, side, "pair", pair=number + 1, place=place)

    def _direction(self, cells: Sequence[Trial | None]) -> bool:
        """Whether the first round goes forward: as an earlier run began, else drawn by lot."""
        if self.forward is None:
            first, last = cells[0], cells[-1]
            if first is not None and last is not None:
                self.forward = self.session.ran_before(first, last)
            elif first is not None or last is not None:
                self.forward = first is not None
            else:
                self.forward = secrets.choice((True, False))
        return self.forward
