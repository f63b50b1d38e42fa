"""A simple verdict over pairs: their ratios, and what the spread of these allows to say."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

Verdict = Literal["FASTER", "SLOWER", "SAME", "UNCLEAR"]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with the ratio of after to before (above 1 is better) and its bounds."""

    verdict: Verdict
    ratio: float
    low: float
    high: float
    level: float | None
    method: str
    note: str


def judge(
    before: Sequence[float], after: Sequence[float], *, better: Literal["higher", "lower"],
    minimum_effect: float,
) -> Judged:
    """The verdict over paired values: every pair has to say the same.

    FASTER or SLOWER where every pair's ratio lies beyond the minimum effect on one side, SAME
    where every one lies within it, else UNCLEAR. The bounds are the smallest and largest ratio.
    """
    sign = 1.0 if better == "higher" else -1.0
    logs = [sign * math.log(b / a) for a, b in zip(before, after, strict=True)]
    low, high = math.exp(min(logs)), math.exp(max(logs))
    edge = math.log1p(minimum_effect)
    if min(logs) > edge:
        verdict: Verdict = "FASTER"
    elif max(logs) < -edge:
        verdict = "SLOWER"
    elif -edge <= min(logs) and max(logs) <= edge and len(logs) > 1:
        verdict = "SAME"
    else:
        verdict = "UNCLEAR"
    return Judged(
        verdict=verdict, ratio=math.exp(statistics.fmean(logs)), low=low, high=high, level=None,
        method="spread of pairs", note=f"pairs from {low:.3f} to {high:.3f}",
    )
