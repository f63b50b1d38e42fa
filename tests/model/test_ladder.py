"""Effects of single patches, multiplied up a line."""

from __future__ import annotations

import math

import msgspec
import pytest

from stack.model.measure.ladder import cumulative
from stack.model.measure.trial import VerdictRecord


def effect(patch: str, ratio: float | None, distance: float | None = None, word: str = "SAME") -> (
    VerdictRecord
):
    record = VerdictRecord(
        id=patch, run="r", time="t", profile="p", line="demo/1", patch=patch, state="active",
        outcome="clean", claim=None, mode="marginal", bench="b", bench_digest="d", verdict="SAME",
        holds=True, method="m", before="x", after=patch, unit="tok/s", note="", trials=(),
        machine="m", ratio=ratio,
    )
    if ratio and distance is not None:
        low, high = ratio * math.exp(-distance), ratio * math.exp(distance)
        record = msgspec.structs.replace(record, low=low, high=high)
    return msgspec.structs.replace(record, verdict=word)


def test_effects_multiply_and_distances_add_in_quadrature() -> None:
    found = cumulative([effect("a", 1.1, 0.03), effect("b", 0.9, 0.04)], base="base")[1]
    assert found is not None
    assert (found.since, found.counted) == ("base", 2)
    assert found.ratio == pytest.approx(0.99)
    assert found.low == pytest.approx(0.99 * math.exp(-0.05))
    assert found.high == pytest.approx(0.99 * math.exp(0.05))


def test_what_was_not_measured_changes_nothing_and_a_missing_interval_spoils_it() -> None:
    first, second, third = cumulative(
        [effect("a", 1.1, 0.03), None, effect("c", 1.2)], base="base"
    )
    assert first == second
    assert third is not None
    assert (third.ratio, third.low, third.high) == (pytest.approx(1.32), None, None)


@pytest.mark.parametrize("word", ["UNBLOCKED", "BLOCKED", "BROKEN", "STALLED"])
def test_it_begins_again_behind_a_prefix_without_a_number(word: str) -> None:
    found = cumulative(
        [effect("a", 2.0, 0.1), effect("b", None, word=word), effect("c", 1.5, 0.1)], base="base"
    )
    assert found[1] is None
    assert found[2] is not None
    assert (found[2].since, found[2].ratio, found[2].counted) == ("b", 1.5, 1)
    assert cumulative([None], base="base") == [None]
