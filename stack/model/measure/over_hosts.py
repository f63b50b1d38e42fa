"""One effect from several machines: estimated within each, combined over them.

A pair never leaves its host, so that what makes one host faster than another drops out of every
ratio. Between machines a patch may help here more than there, and one machine is noisier than
another. So the effect of each machine is one observation, and Student's t over them has K - 1
degrees of freedom: it keeps its level, or is more careful, whatever their variances (Ibragimov &
Mueller, Journal of Business & Economic Statistics 28, 2010). Weights of 1 / error^2 would not: an
error from three pairs is itself so uncertain that chance decides whom to trust. The result is never
surer than the errors within the machines alone would make it (after Knapp & Hartung, Statistics in
Medicine 22, 2003); what scatters beyond them is the effect itself, from machine to machine (the
unweighted moment estimate of Hedges & Olkin, Statistical Methods for Meta-Analysis, 1985).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from stack.model.measure.judge import Rule
from stack.model.measure.pairs import detectable
from stack.model.measure.stats import t_quantile, t_tail
from stack.model.measure.trial import Machine, digest
from stack.model.measure.verdict import FAMILY_ALPHA, Judgement, Verdict

_WORST_FIRST = (Verdict.BROKEN, Verdict.STALLED, Verdict.BLOCKED)


class Combined(NamedTuple):
    """A log effect over machines; `tau` is the standard deviation of the effect between them."""

    effect: float
    error: float
    df: float
    p: float
    tau: float


def combine(effects: Sequence[float], errors: Sequence[float]) -> Combined:
    """The mean over at least two machines, each with its log effect and standard error."""
    k = len(effects)
    if k < 2 or k != len(errors):
        raise ValueError(f"{k} effects with {len(errors)} errors cannot be combined")
    effect = statistics.fmean(effects)
    apart = statistics.variance(effects)
    within = math.fsum(error * error for error in errors)
    error = max(math.sqrt(apart / k), math.sqrt(within) / k, 1e-12)
    p = min(1.0, 2.0 * t_tail(abs(effect) / error, k - 1))
    return Combined(effect, error, float(k - 1), p, math.sqrt(max(0.0, apart - within / k)))


def over_machines(judgements: Sequence[Judgement], rule: Rule) -> Judgement:
    """One verdict from those of several machines; of one machine its own, unchanged.

    A side that is down or wrong anywhere beats any number; machines that do not agree on whether
    the engine runs leave it UNCLEAR. Numbers are combined as above.
    """
    if len(judgements) == 1:
        return judgements[0]
    verdicts = [one.verdict for one in judgements]
    for worst in _WORST_FIRST:
        if worst in verdicts:
            first = judgements[verdicts.index(worst)]
            return msgspec.structs.replace(
                first, note=f"{first.note}; on {_count(verdicts, worst)} machines",
                same_cause=all(one.same_cause for one in judgements if one.verdict == worst),
            )
    if Verdict.UNBLOCKED in verdicts:
        first = judgements[verdicts.index(Verdict.UNBLOCKED)]
        if set(verdicts) == {Verdict.UNBLOCKED}:
            return msgspec.structs.replace(
                first, note=f"{first.note}; on all of {len(verdicts)} machines"
            )
        return Judgement(
            verdict=Verdict.UNCLEAR, method="machines differ", cause=first.cause,
            note=f"without the patch it runs on some machines only: UNBLOCKED on "
            f"{_count(verdicts, Verdict.UNBLOCKED)}",
        )
    known = [one for one in judgements if one.ratio is not None and one.error is not None]
    if len(known) < 2:
        return known[0] if known else judgements[0]
    return _numbers(known, rule, asked=len(judgements))


def together(machines: Sequence[str], time: str) -> Machine:
    """The machines of one verdict as the ledger knows them."""
    return Machine(id=digest("machines", *machines), time=time, facts={"machines": list(machines)})


def _numbers(known: Sequence[Judgement], rule: Rule, *, asked: int) -> Judgement:
    found = combine(
        [math.log(one.ratio or 1.0) for one in known], [one.error or 0.0 for one in known]
    )
    half = t_quantile(0.5 + rule.level / 2.0, found.df) * found.error
    low, high = found.effect - half, found.effect + half
    alpha = FAMILY_ALPHA / rule.family
    if found.p < alpha and abs(found.effect) > rule.edge:
        verdict = Verdict.FASTER if found.effect > 0 else Verdict.SLOWER
    elif -rule.edge < low and high < rule.edge:
        verdict = Verdict.SAME
    else:
        verdict = Verdict.UNCLEAR
    smallest = detectable(found.error, found.df, alpha=alpha, edge=rule.edge)
    note = f"{_percent(found.effect)} ({_percent(low)} to {_percent(high)}) over {len(known)}"
    note += f" machines, between which it scatters by {100 * math.expm1(found.tau):.2f} %"
    if len(known) < asked:
        note += f"; {asked - len(known)} gave no number"
    if verdict is Verdict.UNCLEAR:
        note += f"; smallest effect that could have been seen: {_percent(smallest)}"
    return Judgement(
        verdict=verdict, method=f"t over {len(known)} machines", note=note,
        ratio=math.exp(found.effect), low=math.exp(low), high=math.exp(high), level=rule.level,
        pairs=sum(one.pairs for one in known), p=found.p, alpha=FAMILY_ALPHA,
        detectable=math.expm1(smallest), calibrated=all(one.calibrated for one in known),
        error=found.error,
    )


def _count(verdicts: Sequence[Verdict], which: Verdict) -> str:
    return f"{sum(one == which for one in verdicts)} of {len(verdicts)}"


def _percent(log: float) -> str:
    return f"{100 * math.expm1(log):+.2f} %"
