"""Effects of several machines: combined as published, and no surer than they may be."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from scipy import stats

from stack.model.measure.judge import Rule, judge_pairs
from stack.model.measure.over_hosts import combine, over_machines
from stack.model.measure.pairs import Pair
from stack.model.measure.verdict import Judgement, Verdict


def judged(before: float, after: float, scatter: float, seed: int, pairs: int = 3) -> Judgement:
    rng = random.Random(seed)
    ratios = [after / before * (1.0 + rng.gauss(0.0, scatter)) for _ in range(pairs)]
    return judge_pairs([Pair(before, before * ratio) for ratio in ratios], Rule())


def test_it_is_students_t_over_the_machines() -> None:
    effects, errors = [0.021, 0.034, 0.018, 0.049], [0.002, 0.004, 0.001, 0.003]
    found = combine(effects, errors)
    oracle = stats.ttest_1samp(effects, 0.0)
    assert found.effect == pytest.approx(sum(effects) / 4)
    assert found.p == pytest.approx(oracle.pvalue)
    assert found.df == oracle.df
    tau2 = statistics.variance(effects) - sum(error**2 for error in errors) / 4
    assert found.tau == pytest.approx(math.sqrt(tau2))


def test_equal_effects_are_no_surer_than_their_errors() -> None:
    found = combine([0.02, 0.02, 0.02], [0.01, 0.01, 0.01])
    assert found.effect == pytest.approx(0.02)
    assert found.tau == 0.0
    assert found.error == pytest.approx(0.01 / math.sqrt(3))
    with pytest.raises(ValueError, match="1 effects"):
        combine([0.02], [0.01])


def test_one_machine_says_what_it_says_alone() -> None:
    alone = judged(100.0, 103.0, 0.001, 1)
    assert over_machines([alone], Rule()) is alone


def test_machines_that_agree_make_it_surer_and_levels_drop_out() -> None:
    each = [judged(100.0 * 3.0**at, 103.0 * 3.0**at, 0.002, at) for at in range(5)]
    found = over_machines(each, Rule())
    assert (found.verdict, found.pairs) == (Verdict.FASTER, 15)
    assert found.ratio == pytest.approx(1.03, abs=0.002)
    assert "over 5 machines" in found.note
    same = over_machines([judged(100.0, 100.0, 0.001, at) for at in range(4)], Rule())
    assert same.verdict is Verdict.SAME


def test_a_patch_that_helps_here_and_hurts_there_is_unclear() -> None:
    each = [judged(100.0, after, 0.001, at) for at, after in enumerate((110.0, 92.0, 100.0))]
    assert [one.verdict for one in each] == [Verdict.FASTER, Verdict.SLOWER, Verdict.SAME]
    assert over_machines(each, Rule()).verdict is Verdict.UNCLEAR


def test_what_is_wrong_on_one_machine_is_wrong() -> None:
    fast = judged(100.0, 110.0, 0.001, 1)
    broken = Judgement(verdict=Verdict.BROKEN, method="gate", note="tokens differ")
    found = over_machines([fast, broken], Rule())
    assert (found.verdict, found.note) == (Verdict.BROKEN, "tokens differ; on 1 of 2 machines")
    unblocked = Judgement(verdict=Verdict.UNBLOCKED, method="", note="before: x")
    assert over_machines([unblocked, unblocked], Rule()).verdict is Verdict.UNBLOCKED
    assert over_machines([unblocked, fast], Rule()).verdict is Verdict.UNCLEAR
    down = Judgement(verdict=Verdict.BLOCKED, method="", note="oom", same_cause=True)
    assert over_machines([down, fast], Rule()).verdict is Verdict.BLOCKED


@pytest.mark.parametrize("between", [0.0, 0.02])
@pytest.mark.parametrize("machines", [2, 3, 6])
def test_nothing_is_found_by_chance_more_often_than_once_in_twenty(
    machines: int, between: float
) -> None:
    rng = random.Random(11)
    rule = Rule(minimum_effect=0.0001)
    found = 0
    for _ in range(400):
        own = [rng.gauss(0.0, between) for _ in range(machines)]
        each = [
            judge_pairs(
                [Pair(1.0, math.exp(effect + rng.gauss(0.0, 0.01))) for _ in range(3)], rule
            )
            for effect in own
        ]
        found += over_machines(each, rule).verdict in (Verdict.FASTER, Verdict.SLOWER)
    assert found / 400 <= 0.075  # 5 %, and two standard deviations of 400 runs
