"""Says of one side whether it is like the good or like the bad end of a bisection."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from stack.flows.measure.arms import Arm, Comparison
from stack.flows.measure.compare import Comparing
from stack.flows.measure.trials import Session
from stack.flows.verify.calibrate import prior_of
from stack.model.line.line import Member
from stack.model.line.outcome import Outcome
from stack.model.measure import outputs
from stack.model.measure.bisect import Answer
from stack.model.measure.trial import Trial
from stack.model.measure.verdict import Judgement, Verdict
from stack.model.project.settings import Bench

Kind = Literal["outcome", "gate", "metric"]
CANNOT_TELL = 125
"""A command that ends with this says that its state is of no use, as in `git bisect run`."""
_SECOND = 2


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one side did: its outcome class and cause, and the value of its gate."""

    outcome: str
    cause: str | None = None
    tokens: str | None = None
    useless: bool = False

    @property
    def ran(self) -> bool:
        return self.outcome == "ok"

    def __str__(self) -> str:
        said = f"tokens {self.tokens[:12]}" if self.tokens and self.ran else self.outcome
        return f"{said}: {self.cause}" if self.cause else said


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """How the good and the bad end differ; `ratio` is bad to good, above 1 better."""

    kind: Kind
    note: str
    ratio: float | None = None


class Prober:
    """Looks at sides in one bench; what the ledger holds is not run again."""

    def __init__(self, session: Session, line: str, name: str, bench: Bench, pairs: int) -> None:
        self.session, self.line, self.name, self.bench = session, line, name, bench
        self.pairs = pairs
        self.prior = prior_of(session, name, bench)

    def ends(self, good: Arm, bad: Arm) -> Ends | None:
        """What changed between the two ends, or None where nothing did that can be told."""
        one, other = self.look(good), self.look(bad)
        if one.ran != other.ran or (not one.ran and one.outcome != other.outcome):
            return Ends(kind="outcome", note=f"{one} before, {other} after")
        if not one.ran:
            return None
        if not self._same(one, other):
            return Ends(kind="gate", note=f"{one} before, {other} after")
        judgement = self._timed(good, bad, self.bench.minimum_effect)
        if judgement.verdict not in (Verdict.FASTER, Verdict.SLOWER):
            return None
        return Ends(kind="metric", note=judgement.note, ratio=judgement.ratio)

    def answer(self, ends: Ends, good: Arm, bad: Arm, here: Arm) -> tuple[Answer, str]:
        """Whether a side is like the good end or like the bad one, and why."""
        seen, one, other = self.look(here), self.look(good), self.look(bad)
        if seen.useless:
            return "cannot tell", f"it ended with {CANNOT_TELL}"
        if ends.kind == "outcome":
            if seen.outcome == one.outcome:
                return "good", str(seen)
            return ("bad" if seen.outcome == other.outcome else "cannot tell"), str(seen)
        if ends.kind == "gate" or not seen.ran or not self._same(seen, one):
            if ends.kind == "gate" and seen.ran and self._same(seen, one):
                return "good", str(seen)
            if ends.kind == "gate" and seen.ran and self._same(seen, other):
                return "bad", str(seen)
            return "cannot tell", str(seen)
        assert ends.ratio is not None, "a metric has changed by something"
        half = math.expm1(abs(math.log(ends.ratio)) / 2.0)
        judgement = self._timed(good, here, half)
        worse = Verdict.SLOWER if ends.ratio < 1.0 else Verdict.FASTER
        if judgement.verdict is Verdict.UNCLEAR:
            return "cannot tell", judgement.note
        return ("bad" if judgement.verdict is worse else "good"), judgement.note

    def look(self, arm: Arm) -> Seen:
        """The gate of a side, then its warm-up; a side that fails is given a second try."""
        asked = self._asked(arm, arm)
        gate = None
        if self.bench.gate is not None:
            gate = self._twice(asked, "gate")
            if not gate.ran:
                return _seen(gate)
        warm = self._twice(asked, "warm-up")
        return msgspec.structs.replace(_seen(warm), tokens=gate.tokens if gate else None)

    def _twice(self, asked: Comparison, role: Literal["gate", "warm-up"]) -> Trial:
        trial = self.session.ask(asked, "after", role)
        if trial.ran or trial.exit_code == CANNOT_TELL:
            return trial
        return self.session.ask(asked, "after", role, place=_SECOND)

    def _timed(self, good: Arm, here: Arm, minimum: float) -> Judgement:
        asked = self._asked(good, here)
        bench = msgspec.structs.replace(self.bench, minimum_effect=min(max(minimum, 1e-4), 0.99))
        asked = msgspec.structs.replace(asked, bench=bench)
        return Comparing(self.session, asked, self.pairs, prior=self.prior).measure().judgement

    def _same(self, one: Seen, other: Seen) -> bool:
        gate = self.bench.gate
        return outputs.same(one.tokens, other.tokens, gate.tolerance if gate else 0.0)

    def _asked(self, before: Arm, after: Arm) -> Comparison:
        return Comparison(
            line=self.line, member=Member(name="bisect"), outcome=Outcome.CLEAN, mode="marginal",
            name=self.name, bench=self.bench, before=before, after=after,
        )


def _seen(trial: Trial) -> Seen:
    return Seen(
        outcome=trial.outcome, cause=trial.cause, tokens=trial.tokens,
        useless=trial.exit_code == CANNOT_TELL,
    )
