"""A comparison that is given up early where it is hopeless."""

from __future__ import annotations

import math

import msgspec

from stack.flows.measure.arms import Comparison
from stack.flows.measure.compare import Comparing, Found, timed
from stack.flows.measure.trials import Session
from stack.model.measure.judge import judge_pairs
from stack.model.measure.pairs import Pair, Prior


class Racing(Comparing):
    """A comparison that is given up where its first pairs are hopeless.

    One pair is enough on a machine whose noise is known, else it takes two.
    """

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
        enough = min(1 if self.rule.prior else 2, self.rule.looks[-1] - 1)
        first = self._first_side()
        pairs: list[Pair] = []
        while len(pairs) < enough:
            pair = self._pair(first, len(pairs), again=False)
            if not isinstance(pair, Pair):
                return timed(pairs, pair)
            pairs.append(pair)
            if not self._lost(pair):
                break
        if not pairs or not self._lost(pairs[-1]):
            return super()._measure()  # which finds these pairs in the ledger
        judgement = judge_pairs(pairs, self.rule)
        count = "one pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
        note = f"given up after {count}, more than {self.hopeless:.0%} behind: {judgement.note}"
        return timed(pairs, msgspec.structs.replace(judgement, note=note))

    def _lost(self, pair: Pair) -> bool:
        effect = math.log(pair.after / pair.before)
        behind = -effect if self.rule.better == "higher" else effect
        return behind > -math.log1p(-self.hopeless)
