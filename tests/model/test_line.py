"""Hints that offer names."""

from __future__ import annotations

from stack.model.line.line import near


def test_a_name_that_several_lines_have_is_offered_once() -> None:
    assert near("fp32-rote", ["fp32-route", "fp32-route", "bf16"], "stack list") == (
        "did you mean `fp32-route`?"
    )
