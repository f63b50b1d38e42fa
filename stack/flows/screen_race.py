"""A comparison that is given up early where it is hopeless."""

from __future__ import annotations

import math

import msgspec

from stack.flows.arms import Comparison
from stack.flows.verify_compare import Comparing, Found, timed
from stack.flows.verify_trials import Session
from stack.model.judge import judge_pairs
from stack.model.pairs import Pair, Prior


class Racing(Comparing):
    """A comparison that is given up after its first pair where that is hopeless."""

    def __init__(
        self, session: Session, asked: Comparison, pairs: int, *, hopeless: float,
        prior: Prior | None, family: int,
    ) -> None:
        super().__init__(session, asked, pairs, prior=prior, family=family)
        self.hopeless = hopeless

    def race(self) -> Found:
        """Gates and warm-ups, then pairs; each trial is named once, however often it was asked."""
        found = self.run()
        unique = {trial.id: trial for trial in found.trials}
        return msgspec.structs.replace(found, trials=tuple(unique.values()))

    def _measure(self) -> Found:
        pair = self._pair(self._first_side(), 0, again=False)
        if not isinstance(pair, Pair):
            return timed([], pair)
        effect = math.log(pair.after / pair.before)
        lost = -effect if self.rule.better == "higher" else effect
        if lost <= -math.log1p(-self.hopeless):
            return super()._measure()  # which finds this pair in the ledger
        judgement = judge_pairs([pair], self.rule)
        note = f"given up after one pair, more than {self.hopeless:.0%} behind: {judgement.note}"
        return timed([pair], msgspec.structs.replace(judgement, note=note))
