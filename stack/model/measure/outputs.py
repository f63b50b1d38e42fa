"""Whether two sides of a comparison gave the same output: exactly, or within a tolerance."""

from __future__ import annotations

import json
import math
from typing import Any


def text_of(value: Any) -> str:
    """An output as the ledger keeps it: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def finite(value: Any) -> bool:
    """Whether every number in an output is one."""
    if isinstance(value, list):
        return all(map(finite, value))
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return not isinstance(value, float) or math.isfinite(value)


def same(one: str | None, other: str | None, tolerance: float) -> bool:
    """Whether two kept outputs are equal; numbers may differ by a fraction of the larger one."""
    if one == other or one is None or other is None or not tolerance:
        return one == other
    try:
        return _near(json.loads(one), json.loads(other), tolerance)
    except ValueError:
        return False


def _near(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(
            _near(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _near(one[key], other[key], tolerance) for key in one
        )
    if _number(one) and _number(other):
        return bool(abs(one - other) <= tolerance * max(abs(one), abs(other)))
    return type(one) is type(other) and bool(one == other)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
