"""The distribution of a stream of numbers of any length, in bounded memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

_MOST_DISTINCT = 300_000
_DIGITS = 4


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Count, mean, median, 95th percentile and maximum, in the unit of the samples.

    Quantiles are interpolated linearly between order statistics (Hyndman and Fan's type 7).
    `exact` is false where values had to be rounded to four digits for the two quantiles.
    """

    count: int
    total: float
    mean: float
    median: float
    p95: float
    max: float
    exact: bool = True


class Samples:
    """Counts equal values; beyond 300,000 different ones, values rounded to four digits.

    Values are taken as the text that was printed, which is far faster than reading every one of
    them as a number, and the same text comes often.
    """

    def __init__(self) -> None:
        self._fresh: Counter[bytes] = Counter()
        self._folded: Counter[float] = Counter()
        self._total = 0.0
        self._max = -math.inf
        self.unread = 0

    def add(self, texts: Iterable[bytes]) -> None:
        """Take printed numbers; what is no number is counted in `unread`."""
        self._fresh.update(texts)
        if len(self._fresh) > _MOST_DISTINCT:
            self._fold()

    def add_counts(self, counts: dict[bytes, int]) -> None:
        """The same for numbers with how often they came."""
        self._fresh.update(counts)
        if len(self._fresh) > _MOST_DISTINCT:
            self._fold()

    def pour_into(self, other: Samples) -> None:
        """Add everything to `other`; this one keeps it as well."""
        other._fresh.update(self._fresh)
        other._folded.update(self._folded)
        other._total += self._total
        other._max = max(other._max, self._max)
        other.unread += self.unread

    def _values(self) -> dict[float, int]:
        values: Counter[float] = Counter()
        for text, count in self._fresh.items():
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if math.isfinite(value):
                values[value] += count
            else:
                self.unread += count
        self._fresh.clear()
        return values

    def _fold(self) -> None:
        values = self._values()
        self._total += math.fsum(value * count for value, count in values.items())
        self._max = max(self._max, *values, -math.inf)
        for value, count in values.items():
            self._folded[float(f"{value:.{_DIGITS - 1}e}")] += count

    def distribution(self) -> Distribution | None:
        """What came so far, or None for nothing; more may be added."""
        if self._folded:
            self._fold()
            values, total, highest = dict(self._folded), self._total, self._max
        else:
            values = self._values()
            total = math.fsum(value * count for value, count in values.items())
            highest = max(values, default=-math.inf)
            for value, count in values.items():
                self._fresh[repr(value).encode()] += count
        count = sum(values.values())
        if not count:
            return None
        ordered = sorted(values.items())
        return Distribution(
            count=count,
            total=total,
            mean=total / count,
            median=_quantile(ordered, count, 0.5),
            p95=_quantile(ordered, count, 0.95),
            max=highest,
            exact=not self._folded,
        )


def _quantile(ordered: list[tuple[float, int]], count: int, q: float) -> float:
    """Type 7: the value at position (count - 1) q, counted from 0."""
    position = (count - 1) * q
    low = math.floor(position)
    passed = 0
    lower: float | None = None
    for value, times in ordered:
        passed += times
        if lower is None and passed > low:
            lower = value
            if passed > low + 1 or position == low:
                return value
        elif lower is not None:
            return lower + (value - lower) * (position - low)
    assert lower is not None, "the counts add up"
    return lower
