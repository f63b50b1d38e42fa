"""One comparison from its gates to its verdict: what runs, in which order, and when to stop."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Sequence

import msgspec

from stack.flows.measure.arms import Comparison, drawn
from stack.flows.measure.trials import Session
from stack.model.measure import outputs
from stack.model.measure.judge import Arm, Rule, judge_arms, looks_up_to, next_step, told
from stack.model.measure.pairs import Pair, Prior, slow_outlier
from stack.model.measure.trial import Role, Side, Trial
from stack.model.measure.verdict import Judgement, Verdict

SIDES: tuple[Side, Side] = ("before", "after")
# Places beyond 0 and 1: the second try of a side that failed, and a pair that is measured again.
_SECOND, _AGAIN = 2, 4


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison came to, the mean value of each side, and the trials that it rests on."""

    judgement: Judgement
    before_value: float | None = None
    after_value: float | None = None
    trials: tuple[Trial, ...] = ()


class Comparing:
    """Puts one patch to the test. At most `pairs` pairs are measured, fewer where they suffice."""

    def __init__(
        self, session: Session, asked: Comparison, pairs: int, *, prior: Prior | None = None,
        family: int = 1,
    ) -> None:
        self.session, self.asked = session, asked
        self.rule = Rule(
            better=asked.bench.better, minimum_effect=asked.bench.minimum_effect, prior=prior,
            looks=looks_up_to(pairs), family=family,
        )
        self.trials: list[Trial] = []

    def run(self) -> Found:
        """Gates first, then warm-ups, then pairs; a red gate or a side that is down ends it."""
        return self.prepare() or self.measure()

    def prepare(self) -> Found | None:
        """Gates and warm-ups; None where both sides run, so that pairs have to tell."""
        found = self._prepare()
        return found and msgspec.structs.replace(found, trials=tuple(self.trials))

    def measure(self, *, family: int | None = None) -> Found:
        """Pairs until a look decides; `family` is how many comparisons one report judges."""
        if family is not None:
            self.rule = msgspec.structs.replace(self.rule, family=family)
        return msgspec.structs.replace(self._measure(), trials=tuple(self.trials))

    def equal_sides(self, pairs: int) -> list[Pair] | Judgement:
        """So many pairs of two sides that run the same, whatever they show.

        One that is far slower than the others is measured again, once, as in every comparison.
        """
        states = [self._state(side, None) for side in SIDES]
        judgement = judge_arms(states[0], states[1])
        if judgement is not None:
            return judgement
        first = self._first_side()
        found: list[Pair] = []
        for number in range(pairs):
            pair = self._pair(first, number, again=False)
            if isinstance(pair, Judgement):
                return pair
            found.append(pair)
        far = slow_outlier(found, self.rule.better, self.rule.prior)
        if far is not None:
            pair = self._pair(first, far, again=True)
            if isinstance(pair, Judgement):
                return pair
            found[far] = pair
        return found

    def _prepare(self) -> Found | None:
        if not (self.asked.before.made and self.asked.after.made):
            name = self.asked.member.name
            note = (
                f"`{name}` does not apply where it stands" if self.asked.before.made
                else f"what stands above does not apply without `{name}`"
            )
            return Found(
                judgement=Judgement(verdict=Verdict.UNCLEAR, method="not made", note=note)
            )
        if self.asked.mode != "screen" and self.asked.before.patched == self.asked.after.patched:
            note = "changes no file that the engine could load"
            return Found(
                judgement=Judgement(verdict=Verdict.SAME, method="equal layers", note=note)
            )
        before, after = (self._gate(side) for side in SIDES)
        if before is not None and after is not None:
            if before.ran and after.ran and not self._same(before, after):
                changed = self._changed(before)
                if changed is not None:
                    return Found(judgement=changed)
            elif after.outcome.startswith("quality:"):
                return Found(judgement=_judged(_state(before), _state(after)))
        states = [
            self._state(side, gate)
            for side, gate in zip(SIDES, (before, after), strict=True)
        ]
        judgement = judge_arms(states[0], states[1])
        if judgement is None:
            return None
        if judgement.verdict is Verdict.UNBLOCKED:
            return self._unblocked(states[0], judgement)
        return Found(judgement=judgement)

    def _ask(
        self, side: Side, role: Role, *, pair: int | None = None, place: int = 0,
        twice: bool = False, asked: Comparison | None = None,
    ) -> Trial:
        """A trial; with `twice` a side that did not run is given a second try."""
        trial = self.session.ask(asked or self.asked, side, role, pair=pair, place=place)
        self.trials.append(trial)
        if twice and not trial.ran:
            return self._ask(side, role, pair=pair, place=place + _SECOND, asked=asked)
        return trial

    def warm(self, number: int) -> Comparison:
        """The comparison as a pair makes it, with the caches of its builds warmed up."""
        asked = drawn(self.asked, number)
        if asked is not self.asked:
            for side in SIDES:
                self._ask(side, "warm-up", asked=asked)
        return asked

    def warm_here(self) -> None:
        """Warm up what another host has warmed before us, or nobody since."""
        for side in SIDES:
            held = (
                self.session.find(self.asked, side, "warm-up", place=place)
                for place in (0, _SECOND)
            )
            if not any(trial is not None and trial.ran for trial in held):
                self._ask(side, "warm-up")

    def _gate(self, side: Side) -> Trial | None:
        """The gate; on the side before, the warm-up will confirm that it does not run."""
        if self.asked.bench.gate is None:
            return None
        return self._ask(side, "gate", twice=side == "after")

    def _same(self, one: Trial, other: Trial) -> bool:
        gate = self.asked.bench.gate
        return outputs.same(one.tokens, other.tokens, gate.tolerance if gate else 0.0)

    def _changed(self, before: Trial) -> Judgement | None:
        """BROKEN where the patch changed tokens that it promised to leave alone."""
        if not self.asked.promises_equal_output:
            return None
        again = self._ask("before", "gate", place=_AGAIN)
        if again.ran and not self._same(again, before):
            return Judgement(
                verdict=Verdict.UNCLEAR, method="gate",
                cause="the prefix before it differs from itself",
                note="the gate tells nothing: two runs without the patch differ as well",
            )
        return _judged(Arm(), Arm(red=_differ(self.asked)))

    def _state(self, side: Side, gate: Trial | None) -> Arm:
        """Whether a side runs: its gate says so first, its warm-up decides."""
        if gate is not None and not gate.ran:
            if side == "after" or gate.outcome.startswith("quality:"):
                return _state(gate)
            warm_up = self._ask(side, "warm-up")
            # A damaged heap crashes one time and hangs the next: the crash tells more.
            hung = warm_up.outcome.startswith("stalled:")
            return _state(gate if hung else warm_up)
        return _state(self._ask(side, "warm-up", twice=True))

    def _unblocked(self, before: Arm, judgement: Judgement) -> Found:
        """It runs only with the patch: how fast is worth one trial."""
        measured = self._ask("after", "single", twice=True)
        if measured.figures is None:
            return Found(judgement=_judged(before, _state(measured)))
        value = measured.figures.value
        note = f"{value:.4g} {measured.figures.unit}; {judgement.note}"
        if self.asked.upstream is not None:  # what a user without any patch meets
            bare = self._ask("upstream", "single")
            note += f"; upstream: {'runs' if bare.ran else told(_state(bare))}"
        return Found(judgement=msgspec.structs.replace(judgement, note=note), after_value=value)

    def _measure(self) -> Found:
        """Pairs in the order A B B A until a look decides; what was measured is reused."""
        first = self._first_side()
        pairs: list[Pair] = []
        replaced = False
        while True:
            step = next_step(pairs, self.rule, replaced=replaced)
            if step.judgement is not None:
                return timed(pairs, step.judgement)
            if step.replace is not None:
                replaced = True
                numbers = [step.replace]
            else:
                numbers = list(range(len(pairs), len(pairs) + step.pairs))
            for number in numbers:
                pair = self._pair(first, number, again=step.replace is not None)
                if isinstance(pair, Judgement):
                    return timed(pairs, pair)
                pairs[number : number + 1] = [pair]

    def _pair(self, first: Side, number: int, *, again: bool) -> Pair | Judgement:
        order = SIDES if (first == "before") == (number % 2 == 0) else SIDES[::-1]
        start = _AGAIN if again else 0
        asked = self.warm(number)
        self.session.drop_stale_half(asked, order, number + 1, start)
        values: dict[Side, float] = {}
        for place, side in enumerate(order, start):
            trial = self._ask(
                side, "pair", pair=number + 1, place=place, twice=True, asked=asked
            )
            if trial.figures is None:
                return stopped(side, trial, number)
            values[side] = trial.figures.value
        return Pair(values["before"], values["after"], order[0] == "before")

    def _first_side(self) -> Side:
        """The side that an earlier run began with, else one drawn by lot."""
        for side in SIDES:
            if self.session.find(self.asked, side, "pair", pair=1, place=0):
                return side
        return secrets.choice(SIDES)


def _differ(asked: Comparison) -> str:
    """What a red gate says: tokens by their hash, other outputs by their field."""
    gate = asked.bench.gate
    what = "greedy tokens" if gate is None or gate.field == "sha256" else f"`{gate.field}`"
    verb = "differ" if what == "greedy tokens" else "differs"
    return f"{what} {verb} from the prefix before it"


def _state(trial: Trial) -> Arm:
    red = trial.outcome.startswith("quality:")
    arm = Arm(outcome=trial.outcome, cause=trial.cause)
    return msgspec.structs.replace(arm, red=f"red gate: {told(arm)}") if red else arm


def _judged(before: Arm, after: Arm) -> Judgement:
    judgement = judge_arms(before, after)
    assert judgement is not None, "one side is down"
    return judgement


def timed(pairs: Sequence[Pair], judgement: Judgement) -> Found:
    """A judgement over pairs with the mean value of each side."""
    if not pairs:
        return Found(judgement=judgement)
    return Found(
        judgement=judgement, before_value=statistics.fmean(pair.before for pair in pairs),
        after_value=statistics.fmean(pair.after for pair in pairs),
    )


def stopped(side: Side, trial: Trial, measured: int) -> Judgement:
    """A side that ran, then twice did not."""
    note = f"stopped running in pair {measured + 1}: {told(_state(trial))}"
    if side == "after":
        judgement = _judged(Arm(), _state(trial))
        return msgspec.structs.replace(judgement, note=note, pairs=measured)
    return Judgement(
        verdict=Verdict.UNCLEAR, method="pairs", note=f"the prefix before it {note}",
        cause=trial.cause, pairs=measured,
    )
