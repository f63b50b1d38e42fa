"""Effects from pairs of runs: robust, moderated by what is known of the machine's noise.

All values here are natural logarithms, so an effect of 0.01 is about one per cent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from stack.model.measure.stats import f_tail, t_quantile, t_tail

HUBER = 2.5
PRIOR_DF = 6.0
FEWEST_HISTORY = 4
"""Pairs of an A/A history below which it says too little to be used."""
_SUSPECT = 0.01
_OUTLIER = 5.0
_LEAST_SPREAD = 0.003


class Pair(NamedTuple):
    """One run on each side, in the bench's unit, and which side ran first."""

    before: float
    after: float
    before_first: bool = True


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """The standard deviation of a pair's log ratio with equal sides, from `pairs` A/A pairs."""

    sd: float
    pairs: int

    @property
    def df(self) -> float:
        """How many observations it counts as."""
        return min(PRIOR_DF, float(self.pairs))


class Estimate(NamedTuple):
    """A log effect with its standard error, degrees of freedom and two-sided p against zero."""

    effect: float
    error: float
    df: float
    p: float
    trusted_prior: bool

    def interval(self, level: float) -> tuple[float, float]:
        """Bounds that hold the effect with probability `level`."""
        half = t_quantile(0.5 + level / 2.0, self.df) * self.error
        return self.effect - half, self.effect + half


def log_ratios(pairs: Sequence[Pair], better: Literal["higher", "lower"]) -> list[float]:
    """Per pair log(after / before), turned so that above zero is better.

    Raises ValueError for a value that is not a positive, finite number.
    """
    for value in (v for pair in pairs for v in pair[:2]):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"a measured value is {value}, which has no logarithm")
    sign = 1.0 if better == "higher" else -1.0
    return [sign * (math.log(pair.after) - math.log(pair.before)) for pair in pairs]


def prior_from(ratios: Sequence[float]) -> Prior | None:
    """The noise of a machine from the log ratios of its A/A pairs, or None for too few of them.

    Root mean square (the mean is zero by construction), with squares above `HUBER` standard
    deviations cut there.
    """
    if len(ratios) < FEWEST_HISTORY:
        return None
    _, sd = _huber(ratios, center=0.0, prior_df=0.0, prior_sd=0.0)
    return Prior(sd=max(sd, 1e-6), pairs=len(ratios))


def estimate(ratios: Sequence[float], prior: Prior | None) -> Estimate:
    """The effect over log ratios: at least two, or one with a prior.

    Huber's mean and winsorised variance; the variance is shrunk towards the prior's as in a
    moderated t (Smyth 2004): s2 = (d0 s0^2 + d s^2) / (d0 + d) with d0 + d degrees of freedom.
    A prior that the pairs themselves refute (F test at 1 %) is left out.
    """
    n = len(ratios)
    if n < 1 or (n == 1 and prior is None):
        raise ValueError(f"an effect needs two pairs, or one and a prior, not {n}")
    trusted = prior is not None and not _refuted(ratios, prior)
    prior_df, prior_sd = (prior.df, prior.sd) if prior is not None and trusted else (0.0, 0.0)
    center, sd = _huber(ratios, center=None, prior_df=prior_df, prior_sd=prior_sd)
    kept = sum(abs(r - center) <= HUBER * sd for r in ratios) or 1
    error = max(sd / math.sqrt(n) * (n / kept), 1e-12)
    df = prior_df + n - 1
    p = min(1.0, 2.0 * t_tail(abs(center) / error, df))
    return Estimate(center, error, df, p, trusted)


def _refuted(ratios: Sequence[float], prior: Prior) -> bool:
    """Whether these pairs scatter more than the prior allows, a single far one left aside."""
    if len(ratios) < 2:
        return False
    middle = statistics.median(ratios)
    rest = sorted(ratios, key=lambda r: abs(r - middle))[:-1] if len(ratios) > 4 else ratios
    df = len(rest) - 1
    return f_tail(statistics.variance(rest) / prior.sd**2, df, prior.df) < _SUSPECT


def _huber(
    ratios: Sequence[float], *, center: float | None, prior_df: float, prior_sd: float
) -> tuple[float, float]:
    """Huber's mean (or a given one) and the winsorised, moderated standard deviation.

    Begins without winsorising, so of several fixed points the widest is found.
    """
    n = len(ratios)
    df = prior_df + n - (center is None)
    mean = statistics.fmean(ratios) if center is None else center
    limit = math.inf
    sd = 0.0
    for _ in range(50):
        residuals = [max(-limit, min(limit, r - mean)) for r in ratios]
        if center is None:
            shift = math.fsum(residuals) / n
            mean += shift
            residuals = [r - shift for r in residuals]
        squares = math.fsum(r * r for r in residuals)
        following = math.sqrt((prior_df * prior_sd**2 + squares) / df)
        if abs(following - sd) <= 1e-12 * following:
            return mean, following
        sd = following
        limit = HUBER * sd
    return mean, sd


def slow_outlier(
    pairs: Sequence[Pair], better: Literal["higher", "lower"], prior: Prior | None
) -> int | None:
    """The index of the pair with the one run that was far slower than its side's median.

    None where no run is, or more than one: then slow runs belong to what is measured. Far is five
    standard deviations of a run, taken from the prior, else from the runs themselves.
    """
    sign = 1.0 if better == "higher" else -1.0
    sides = [[sign * math.log(p.before) for p in pairs], [sign * math.log(p.after) for p in pairs]]
    below = []
    for values in sides:
        middle = statistics.median(values)
        below += [(middle - v, i) for i, v in enumerate(values)]
    if prior is not None:
        spread = prior.sd / math.sqrt(2.0)
    else:
        spread = 1.4826 * statistics.median(abs(b) for b, _ in below)
    far = [i for b, i in below if b > _OUTLIER * max(spread, _LEAST_SPREAD)]
    return far[0] if len(far) == 1 else None


def detectable(error: float, df: float, *, alpha: float, edge: float, power: float = 0.8) -> float:
    """The smallest log effect that would have been found with probability `power`.

    It has to be significant at `alpha` and to look larger than `edge`; the shifted central t
    stands for the noncentral one, which is a little too large for few pairs.
    """
    bar = max(t_quantile(1.0 - alpha / 2.0, df) * error, edge)
    return bar + t_quantile(power, df) * error
