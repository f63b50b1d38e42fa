"""Where the marks of the page's pictures stand; the template draws them, escaped like all else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from stack.model.measure.trial import VerdictRecord

WIDTH, MIDDLE = 240.0, 120.0
"""Units of an effect's picture; no effect stands in the middle."""
STEP, LEFT, TOP, BOTTOM = 28.0, 70.0, 12.0, 132.0
_ROOM, _WIDE = math.log(1.02), math.log(1.25)


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """An effect on the log scale: its point, its interval, and what counts as none."""

    at: float
    low: float | None
    high: float | None
    band: float


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict in a history: both values as heights."""

    x: float
    before: float | None
    after: float | None
    record: VerdictRecord


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of one bench in the order of time; `low` and `high` in its unit."""

    bench: str
    unit: str
    width: float
    low: float
    high: float
    columns: tuple[Column, ...]


def span(ratios: Iterable[float | None], bounds: Iterable[float | None]) -> float:
    """Half of a scale on which all effects have room, as a distance of logarithms.

    An interval beyond 25 % is cut off, so that it does not hide the others.
    """
    far = min(_farthest(bounds), _WIDE)
    return max(_farthest(ratios), far) + _ROOM


def _farthest(ratios: Iterable[float | None]) -> float:
    return max((abs(math.log(ratio)) for ratio in ratios if ratio and ratio > 0), default=0.0)


def bar(
    ratio: float, low: float | None, high: float | None, *, scale: float, minimum: float
) -> Bar:
    """Place an effect; `scale` as from `span`, `minimum` a fraction."""

    def place(value: float) -> float:
        x = MIDDLE + MIDDLE * math.log(value) / scale if value > 0 else 0.0
        return round(min(max(x, 0.0), WIDTH), 2)

    return Bar(
        at=place(ratio), low=place(low) if low else None, high=place(high) if high else None,
        band=round(place(1 + minimum) - MIDDLE, 2),
    )


def history(bench: str, records: Sequence[VerdictRecord]) -> History | None:
    """Place the values of a bench's verdicts, or None where none has a value."""
    values = [v for one in records for v in (one.before_value, one.after_value) if v is not None]
    if not values:
        return None
    low, high = min(values), max(values)

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        share = (value - low) / (high - low) if high > low else 0.5
        return round(BOTTOM - share * (BOTTOM - TOP), 2)

    columns = [
        Column(
            x=LEFT + STEP * (at + 0.5), before=place(one.before_value),
            after=place(one.after_value), record=one,
        )
        for at, one in enumerate(records)
    ]
    return History(
        bench=bench, unit=records[-1].unit, width=LEFT + STEP * len(records) + 10, low=low,
        high=high, columns=tuple(columns),
    )
