"""Student's t and F distributions and Holm's correction, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

_TINY = 1e-300
_MOST_TERMS = 10_000


def beta_cdf(x: float, a: float, b: float, *, rest: float | None = None) -> float:
    """The regularised incomplete beta function I_x(a, b), for 0 <= x <= 1 and a, b > 0.

    Continued fraction (DLMF 8.17.22), evaluated forward by Lentz's method. `rest` is 1 - x, for
    who knows it better than the difference says where x is close to 1.
    """
    rest = 1.0 - x if rest is None else rest
    if x <= 0.0:
        return 0.0
    if rest <= 0.0:
        return 1.0
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction converges fast
        return 1.0 - beta_cdf(rest, b, a, rest=x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * (math.log1p(-x) if x < 0.5 else math.log(rest))
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    fraction = d
    for m in range(1, _MOST_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            fraction *= c * d
        if abs(fraction - before) <= 1e-16 * abs(fraction):
            break
    return math.exp(front) * fraction / a


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def t_tail(t: float, df: float) -> float:
    """P(T > t) for Student's t with `df` > 0 degrees of freedom."""
    whole = df + t * t
    half = 0.5 * beta_cdf(df / whole, df / 2.0, 0.5, rest=t * t / whole)
    return half if t >= 0.0 else 1.0 - half


def t_cdf(t: float, df: float) -> float:
    """P(T <= t) for Student's t with `df` > 0 degrees of freedom."""
    return t_tail(-t, df)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """The t below which a fraction `p` (0 < p < 1) lies; Newton's method inside a bracket."""
    if not 0.0 < p < 1.0:
        raise ValueError(f"p is {p}, not between 0 and 1")
    if p == 0.5:
        return 0.0
    if p < 0.5:
        return -_upper_quantile(p, df)
    return _upper_quantile(1.0 - p, df)


def _upper_quantile(tail: float, df: float) -> float:
    log_norm = math.lgamma((df + 1.0) / 2.0) - math.lgamma(df / 2.0)
    log_norm -= 0.5 * math.log(df * math.pi)
    low, high = 0.0, max(1.0, -NormalDist().inv_cdf(tail))
    while t_tail(high, df) > tail:
        low, high = high, high * 2.0
    t = high
    for _ in range(200):
        miss = t_tail(t, df) - tail
        low, high = (t, high) if miss > 0.0 else (low, t)
        density = math.exp(log_norm - (df + 1.0) / 2.0 * math.log1p(t * t / df))
        step = miss / density if density > 0.0 else math.inf
        following = t + step if low <= t + step <= high else (low + high) / 2.0
        if abs(following - t) <= 1e-15 * t:
            return following
        t = following
    return t


def f_tail(x: float, df1: float, df2: float) -> float:
    """P(F > x) for the ratio of two variances with `df1` and `df2` degrees of freedom."""
    whole = df2 + df1 * x
    return beta_cdf(df2 / whole, df2 / 2.0, df1 / 2.0, rest=df1 * x / whole)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values (Holm 1979): rejecting those up to alpha keeps the family at alpha."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted
