"""What one state of a bisection says: like the good end, like the bad one, or nothing."""

from __future__ import annotations

import pytest

from stack.flows.measure.arms import Arm
from stack.flows.verify.bisect_probe import Ends, Prober
from tests.flows.test_verify_compare import CRASH, RAISES, Lab, behaves, lab

USELESS = "import sys\nsys.exit(125)\n"


def prober(lab: Lab, *texts: str, gate: bool = True) -> tuple[Prober, list[Arm]]:
    asked = lab.asked(behaves(), behaves(), gate=gate)
    arms = [lab.arm(f"s{at}", text) for at, text in enumerate(texts)]
    return Prober(lab.session(), "toy/1", "speed", asked.bench, 3), arms


def answers(lab: Lab, *texts: str, gate: bool = True) -> tuple[Ends | None, list[str]]:
    """How the first and the last text differ, and the answer of those between."""
    ask, (good, *between, bad) = prober(lab, *texts, gate=gate)
    ends = ask.ends(good, bad)
    if ends is None:
        return None, []
    return ends, [ask.answer(ends, good, bad, one)[0] for one in between]


def test_tokens_tell_and_other_tokens_tell_nothing(lab: Lab) -> None:
    ends, said = answers(
        lab, behaves(tokens="'t'"), behaves("90.0", "'t'"), behaves(tokens="'v'"), USELESS, CRASH,
        behaves(tokens="'u'") + "#\n", behaves(tokens="'u'"),
    )
    assert ends is not None
    assert (ends.kind, ends.note) == ("gate", "tokens t before, tokens u after")
    assert said == ["good", "cannot tell", "cannot tell", "cannot tell", "bad"]


def test_whether_it_runs_tells_and_another_failure_tells_nothing(lab: Lab) -> None:
    ends, said = answers(lab, behaves(), behaves("50.0"), RAISES, USELESS, CRASH + "#\n", CRASH)
    assert ends is not None
    assert ends.kind == "outcome"
    assert said == ["good", "cannot tell", "cannot tell", "bad"]


def test_half_of_the_change_is_where_good_ends(lab: Lab) -> None:
    ends, said = answers(
        lab, behaves("100.0"), behaves("99.0"), behaves("97.0"), behaves("81.0"), behaves("80.0"),
        gate=False,
    )
    assert ends is not None
    assert (ends.kind, ends.ratio) == ("metric", pytest.approx(0.8))
    assert said == ["good", "good", "bad"]


def test_ends_that_do_not_differ_leave_nothing_to_find(lab: Lab) -> None:
    assert answers(lab, behaves("100.0"), behaves("100.1")) == (None, [])
    assert answers(lab, CRASH, CRASH + "#\n") == (None, [])
