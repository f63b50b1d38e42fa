"""What the patches of a line come to together, from the effect of each on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from stack.model.measure.trial import VerdictRecord

_ENDS = ("UNBLOCKED", "BLOCKED", "BROKEN", "STALLED")


class Cumulative(msgspec.Struct, frozen=True, kw_only=True):
    """The product of `counted` effects since the prefix `since`; above 1 better.

    `low` and `high` are None where one of the effects has no interval.
    """

    since: str
    ratio: float
    low: float | None
    high: float | None
    counted: int


def cumulative(
    records: Sequence[VerdictRecord | None], *, base: str
) -> list[Cumulative | None]:
    """One bench's marginal verdicts in the order of the line; None where there is no product yet.

    Distances on the log scale add in quadrature, since every comparison has trials of its own. A
    prefix that did not run has no number, so the product begins again behind it.
    """
    found: list[Cumulative | None] = []
    since, effects = base, list[VerdictRecord]()
    for record in records:
        if record is not None and record.verdict in _ENDS:
            since, effects = record.after, []
        elif record is not None and record.ratio is not None:
            effects.append(record)
        found.append(_product(since, effects) if effects else None)
    return found


def _product(since: str, effects: Sequence[VerdictRecord]) -> Cumulative:
    ratio = math.prod(record.ratio or 1.0 for record in effects)
    low, high = (_bound(effects, ratio, side) for side in ("low", "high"))
    return Cumulative(since=since, ratio=ratio, low=low, high=high, counted=len(effects))


def _bound(effects: Sequence[VerdictRecord], ratio: float, side: str) -> float | None:
    squares = 0.0
    for record in effects:
        bound = getattr(record, side)
        if not bound or not record.ratio:
            return None
        squares += math.log(bound / record.ratio) ** 2
    distance = math.sqrt(squares)
    return ratio * math.exp(distance if side == "high" else -distance)
