"""One comparison from its gates to its verdict: what runs, in which order, and when to stop."""

from __future__ import annotations

import re
import secrets
import statistics
from typing import Literal

import msgspec

from stack.flows.arms import Comparison
from stack.flows.verify_judge import judge
from stack.flows.verify_trials import Session
from stack.model.trial import Side, Trial, Word

_SIDES: tuple[Side, Side] = ("before", "after")


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A side that runs, as its warm-up showed."""

    warm_up: Trial


class Down(msgspec.Struct, frozen=True, kw_only=True):
    """A side that does not: the trial that says so best. `red` when its own output is at fault."""

    trial: Trial
    red: bool = False

    @property
    def kind(self) -> Literal["STALLED", "BLOCKED"]:
        return "STALLED" if self.trial.outcome.startswith("stalled:") else "BLOCKED"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison came to; see `VerdictRecord` for the words."""

    verdict: Word
    note: str
    method: str
    cause: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    pairs: int = 0
    before_value: float | None = None
    after_value: float | None = None
    same_cause: bool = False
    trials: tuple[Trial, ...] = ()


class Comparing:
    """Puts one patch to the test. At most `pairs` pairs are measured."""

    def __init__(self, session: Session, asked: Comparison, pairs: int) -> None:
        self.session, self.asked, self.pairs = session, asked, pairs
        self.trials: list[Trial] = []

    @staticmethod
    def planned(asked: Comparison, pairs: int) -> int:
        """How many trials it takes where both sides run."""
        return 2 * (bool(asked.bench.gate) + 1 + pairs)

    def run(self) -> Found:
        """Gates first, then warm-ups, then pairs; a red gate or a side that is down ends it."""
        gates = {side: self._gate(side) for side in _SIDES}
        red = self._compare_gates(gates)
        if red is not None:
            return self._with_trials(red)
        before, after = (self._ready(side, gates[side]) for side in _SIDES)
        if isinstance(before, Down) or isinstance(after, Down):
            return self._with_trials(self._without_pairs(before, after))
        return self._with_trials(self._measure())

    def _with_trials(self, found: Found) -> Found:
        return msgspec.structs.replace(found, trials=tuple(self.trials))

    def _ask(
        self, side: Side, role: Literal["gate", "warm-up", "single", "pair"],
        *, pair: int | None = None, place: int = 0,
    ) -> Trial:
        trial = self.session.ask(self.asked, side, role, pair=pair, place=place)
        self.trials.append(trial)
        return trial

    def _gate(self, side: Side) -> Trial | Down | None:
        """The gate's trial where it gave its value, tried twice on the side with the patch.

        On the side before, the warm-up will confirm what the gate saw.
        """
        if self.asked.bench.gate is None:
            return None
        trial = self._ask(side, "gate")
        if not trial.ran and side == "after" and not trial.outcome.startswith("quality:"):
            trial = self._ask(side, "gate", place=1)
        if trial.ran:
            return trial
        return Down(trial=trial, red=trial.outcome.startswith("quality:"))

    def _compare_gates(self, gates: dict[Side, Trial | Down | None]) -> Found | None:
        """BROKEN where the patch changed what it promised to leave alone."""
        before, after = gates["before"], gates["after"]
        if isinstance(after, Down) and after.red:
            if isinstance(before, Down) and before.red:
                return _both_down(before, after)
            return _broken(f"red gate: {told(after.trial)}", after.trial)
        if not (isinstance(before, Trial) and isinstance(after, Trial)):
            return None
        if before.tokens == after.tokens or not self.asked.promises_equal_output:
            return None
        again = self._ask("before", "gate", place=2)
        if again.ran and again.tokens != before.tokens:
            return Found(
                verdict="UNCLEAR", method="gate", cause="the prefix before it differs from itself",
                note="the gate tells nothing: two runs without the patch differ as well",
            )
        return _broken("greedy tokens differ from the prefix before it", after)

    def _ready(self, side: Side, gate: Trial | Down | None) -> Ready | Down:
        if isinstance(gate, Down) and (side == "after" or gate.red):
            return gate
        warm_up = self._ask(side, "warm-up")
        if not warm_up.ran and not isinstance(gate, Down):
            warm_up = self._ask(side, "warm-up", place=1)
        if not warm_up.ran:
            return Down(trial=warm_up)
        return Ready(warm_up=warm_up)

    def _without_pairs(self, before: Ready | Down, after: Ready | Down) -> Found:
        """The verdict where at least one side does not run."""
        if isinstance(after, Ready):
            assert isinstance(before, Down), "both sides run"
            measured = self._ask("after", "single")
            if not measured.ran or measured.figures is None:
                return _broken(f"ran only sometimes: {told(measured)}", measured)
            value = measured.figures
            return Found(
                verdict="UNBLOCKED", method="ran only with the patch",
                cause=told(before.trial), after_value=value.value,
                note=f"{value.value:.4g} {value.unit}; before: {told(before.trial)}",
            )
        if isinstance(before, Down):
            return _both_down(before, after)
        if after.kind == "STALLED":
            return Found(
                verdict="STALLED", method="ran only without the patch", cause=told(after.trial),
                note=told(after.trial),
            )
        return _broken(told(after.trial), after.trial)

    def _measure(self) -> Found:
        """Pairs in the order A B B A, the first side drawn by lot; what was measured is reused."""
        first = self._first_side()
        values: dict[Side, list[float]] = {"before": [], "after": []}
        for pair in range(1, self.pairs + 1):
            order = _SIDES if (first == "before") == (pair % 2 == 1) else _SIDES[::-1]
            self.session.drop_stale_half(self.asked, order, pair)
            for place, side in enumerate(order):
                trial = self._ask(side, "pair", pair=pair, place=place)
                if not trial.ran:
                    trial = self._ask(side, "pair", pair=pair, place=place + 2)
                if trial.figures is None:
                    return _stopped(side, trial, pair - 1)
                values[side].append(trial.figures.value)
        bench = self.asked.bench
        judged = judge(
            values["before"], values["after"], better=bench.better,
            minimum_effect=bench.minimum_effect,
        )
        before, after = (statistics.fmean(values[side]) for side in _SIDES)
        return Found(
            verdict=judged.verdict, method=judged.method, ratio=judged.ratio, low=judged.low,
            high=judged.high, level=judged.level, pairs=len(values["after"]),
            before_value=before, after_value=after,
            note=f"{before:.4g} to {after:.4g} {bench.unit}; {judged.note}",
        )

    def _first_side(self) -> Side:
        """The side that an earlier run began with, else one drawn by lot."""
        for side in _SIDES:
            if self.session.find(self.asked, side, "pair", pair=1, place=0):
                return side
        return secrets.choice(_SIDES)


def told(trial: Trial) -> str:
    """An outcome in words: its class and its innermost cause."""
    words = trial.outcome.partition(":")[2].replace("_", " ") or trial.outcome
    return f"{words}: {trial.cause}" if trial.cause else words


def _broken(note: str, trial: Trial) -> Found:
    return Found(verdict="BROKEN", method="gate", note=note, cause=trial.cause or note)


def _stopped(side: Side, trial: Trial, pairs: int) -> Found:
    """A side that ran, then twice did not."""
    note = f"stopped running in pair {pairs + 1}: {told(trial)}"
    if side == "after":
        return msgspec.structs.replace(_broken(note, trial), pairs=pairs)
    return Found(
        verdict="UNCLEAR", method="pairs", note=f"the prefix before it {note}", cause=trial.cause,
        pairs=pairs,
    )


def _both_down(before: Down, after: Down) -> Found:
    same = _same_cause(before.trial, after.trial)
    note = f"before and after: {told(after.trial)}"
    if not same:
        note = f"{told(after.trial)}; before: {told(before.trial)}"
    return Found(
        verdict=after.kind, method="ran on neither side", note=note, cause=told(after.trial),
        same_cause=same,
    )


def _same_cause(one: Trial, other: Trial) -> bool:
    """Whether two failures are the same one.

    A damaged heap shows itself in other words each time, so a class of its own is enough; for
    what no signature knows the words decide, but for numbers and addresses.
    """
    if one.outcome != other.outcome:
        return False
    if one.outcome not in ("blocked:exception", "blocked:exit", "blocked:no_result"):
        return True
    plain = [re.sub(r"0x[0-9a-f]+|\d+", "N", trial.cause or "") for trial in (one, other)]
    return plain[0] == plain[1]
