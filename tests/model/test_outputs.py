"""Outputs are equal exactly, or within a tolerance, and never where a number is none."""

from __future__ import annotations

import math

import pytest

from stack.model.measure import outputs


@pytest.mark.parametrize(
    ("one", "other", "tolerance", "equal"),
    [
        ("abc", "abc", 0.0, True), ("abc", "abd", 0.5, False), ("1.0", "1.0", 0.0, True),
        ("1.0", "1.001", 0.0, False), ("1.0", "1.001", 0.01, True), ("1.0", "1.1", 0.01, False),
        ("-2.0", "2.0", 0.5, False), ("0.0", "0.0", 0.1, True),
        ("[1.0, 2]", "[1.004, 2]", 0.01, True),
        ("[1.0, 2]", "[1.0]", 0.01, False), ('{"a": 1.0}', '{"a": 1.01}', 0.1, True),
        ('{"a": 1.0}', '{"b": 1.0}', 0.1, False), ("true", "1", 0.5, False),
        ("[NaN]", "[1.0]", 0.5, False), (None, "1.0", 0.5, False),
    ],
)
def test_equal_within_a_tolerance(
    one: str | None, other: str, tolerance: float, equal: bool
) -> None:
    assert outputs.same(one, other, tolerance) is equal
    assert outputs.same(other, one, tolerance) is equal


def test_a_text_is_kept_as_it_is_and_numbers_as_json() -> None:
    assert outputs.text_of("feed") == "feed"
    assert outputs.text_of({"b": [1.5], "a": 2}) == '{"a": 2, "b": [1.5]}'


@pytest.mark.parametrize("value", [math.nan, [1.0, math.inf], {"a": [-math.inf]}])
def test_what_is_no_number_is_found_inside(value: object) -> None:
    assert not outputs.finite(value)
    assert outputs.finite([1, "nan", {"x": 2.0}, True, None])
