"""From what two sides of a comparison did to one of eight verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from stack.model.measure.pairs import (
    Estimate,
    Pair,
    Prior,
    detectable,
    estimate,
    log_ratios,
    slow_outlier,
)
from stack.model.measure.verdict import Judgement, Verdict

LOOKS = (3, 4, 5, 6, 8)
"""After so many pairs a decision may fall."""
LOOK_ALPHA = {1: 0.05, 2: 0.029, 3: 0.022, 4: 0.018, 5: 0.016}
"""Significance asked for at each of so many looks; over all of them 5 % (Pocock 1977)."""
LEVEL = 0.90


def looks_up_to(pairs: int) -> tuple[int, ...]:
    """The looks of a comparison that may measure at most `pairs` pairs."""
    return tuple(look for look in LOOKS if look <= pairs) or (pairs,)


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench calls better, the smallest effect that matters (a fraction), and the noise.

    `prior` is the machine's A/A history; without it a verdict is marked uncalibrated. `family` is
    how many patches one report judges: each has to be that much more significant (Bonferroni),
    so that Holm's correction over the report takes back none that was found.
    """

    better: Literal["higher", "lower"] = "higher"
    minimum_effect: float = 0.01
    prior: Prior | None = None
    looks: tuple[int, ...] = LOOKS
    level: float = LEVEL
    family: int = 1

    @property
    def alpha(self) -> float:
        """The significance asked for at one look."""
        return LOOK_ALPHA[len(self.looks)] / self.family

    @property
    def edge(self) -> float:
        """The minimum effect as a log ratio."""
        return math.log1p(self.minimum_effect)


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """One side: `outcome` is `ok` or a class such as `blocked:oom`, `cause` its innermost error.

    `red` is what its gate found wrong, None for a green gate or none.
    """

    outcome: str = "ok"
    cause: str | None = None
    red: str | None = None

    @property
    def ran(self) -> bool:
        return self.outcome == "ok" and self.red is None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What to do next: measure `pairs` more, measure pair `replace` again, or stop.

    The pair that is replaced keeps its place and order; it stays on record.
    """

    pairs: int = 0
    replace: int | None = None
    judgement: Judgement | None = None


def next_step(pairs: Sequence[Pair], rule: Rule, *, replaced: bool = False) -> Step:
    """Look at the pairs so far. `replaced` says that an outlier was replaced before, which
    happens only once.

    Raises ValueError for a measured value that is not positive.
    """
    looks = rule.looks
    done = len(pairs)
    if done < looks[0]:
        return Step(pairs=looks[0] - done)
    if not replaced and done in looks:
        far = slow_outlier(pairs, rule.better, rule.prior)
        if far is not None:
            return Step(replace=far)
    last = done >= looks[-1]
    if done in looks or last:
        judgement = judge_pairs(pairs, rule)
        if last or judgement.verdict is not Verdict.UNCLEAR:
            return Step(judgement=judgement)
    return Step(pairs=next(look for look in looks if look > done) - done)


def judge_pairs(pairs: Sequence[Pair], rule: Rule) -> Judgement:
    """The verdict that these pairs, at least one, bear out.

    FASTER and SLOWER need significance and an effect beyond the minimum, SAME needs the whole
    interval inside it. One pair on a machine whose noise is not known says nothing.
    """
    ratios = log_ratios(pairs, rule.better)
    if len(ratios) == 1 and rule.prior is None:
        note = f"{_percent(ratios[0])} in one pair, of a machine whose noise is not known"
        return Judgement(
            verdict=Verdict.UNCLEAR,
            method="one pair",
            note=note,
            ratio=math.exp(ratios[0]),
            pairs=1,
        )
    found = estimate(ratios, rule.prior)
    low, high = found.interval(rule.level)
    if found.p < rule.alpha and abs(found.effect) > rule.edge:
        verdict = Verdict.FASTER if found.effect > 0 else Verdict.SLOWER
    elif -rule.edge < low and high < rule.edge:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.UNCLEAR
    smallest = detectable(found.error, found.df, alpha=rule.alpha, edge=rule.edge)
    return Judgement(
        verdict=verdict,
        method=f"{'moderated ' if found.trusted_prior else ''}paired t, look "
        f"{_look(len(pairs), rule)} of {len(rule.looks)}",
        note=_note(verdict, found, low, high, smallest, rule),
        ratio=math.exp(found.effect),
        low=math.exp(low),
        high=math.exp(high),
        level=rule.level,
        pairs=len(pairs),
        p=found.p,
        alpha=LOOK_ALPHA[len(rule.looks)],
        detectable=math.expm1(smallest),
        calibrated=found.trusted_prior,
        error=found.error,
    )


def _look(pairs: int, rule: Rule) -> int:
    return max(1, sum(look <= pairs for look in rule.looks))


def _note(
    verdict: Verdict, found: Estimate, low: float, high: float, smallest: float, rule: Rule
) -> str:
    effect = f"{_percent(found.effect)} ({_percent(low)} to {_percent(high)})"
    if verdict is Verdict.UNCLEAR:
        effect += f"; smallest effect that could have been seen: {_percent(smallest)}"
    if rule.prior is None:
        effect += "; uncalibrated: no A/A history of this machine"
    elif not found.trusted_prior:
        effect += "; noisier than this machine's A/A history, which was left out"
    return effect


def _percent(log: float) -> str:
    return f"{100 * math.expm1(log):+.2f} %"


def judge_arms(before: Arm, after: Arm) -> Judgement | None:
    """The verdict where a side did not run or its gate is red; None where both are to be timed."""
    if before.ran and after.ran:
        return None
    if not after.ran:
        why = after.red or told(after)
        if not before.ran:
            same = same_cause(before, after)
            note = f"before and after: {why}" if same else f"{why}; before: {_why(before)}"
            stalled = after.outcome.startswith("stalled:")
            return Judgement(
                verdict=Verdict.STALLED if stalled and not same else Verdict.BLOCKED,
                method="ran on neither side",
                note=note,
                cause=after.cause or why,
                same_cause=same,
            )
        stalled = after.red is None and after.outcome.startswith("stalled:")
        return Judgement(
            verdict=Verdict.STALLED if stalled else Verdict.BROKEN,
            method="gate" if after.red else "ran only without the patch",
            note=why,
            cause=after.cause or why,
        )
    return Judgement(
        verdict=Verdict.UNBLOCKED,
        method="ran only with the patch",
        note=f"before: {_why(before)}",
        cause=before.cause or _why(before),
    )


def told(arm: Arm) -> str:
    """An outcome in words: its class and its innermost cause."""
    words = arm.outcome.partition(":")[2].replace("_", " ") or arm.outcome
    return f"{words}: {arm.cause}" if arm.cause else words


def _why(arm: Arm) -> str:
    return arm.red or told(arm)


def same_cause(one: Arm, other: Arm) -> bool:
    """Whether two failures are the same one.

    A damaged heap shows itself in other words each time, so a class of its own is enough; for
    what no signature knows the words decide, but for numbers and addresses.
    """
    if one.outcome != other.outcome or one.red != other.red:
        return False
    if one.outcome not in ("blocked:exception", "blocked:exit", "blocked:no_result"):
        return True
    plain = [re.sub(r"0x[0-9a-f]+|\d+", "N", arm.cause or "") for arm in (one, other)]
    return plain[0] == plain[1]


def judge(before: Arm, after: Arm, pairs: Sequence[Pair], rule: Rule) -> Judgement:
    """The whole decision: outcomes first (a red gate beats any number), then the pairs."""
    return judge_arms(before, after) or judge_pairs(pairs, rule)
