"""Verdicts: outcomes before numbers, the same from either side, and seldom wrong."""

from __future__ import annotations

import math
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stack.model.line.line import Claim
from stack.model.measure.judge import LOOKS, Arm, Rule, judge, judge_pairs, looks_up_to, next_step
from stack.model.measure.pairs import Pair, Prior
from stack.model.measure.verdict import Judgement, Verdict, holds, over_patches

PRIOR = Prior(sd=0.009, pairs=16)
RULE = Rule(prior=PRIOR)
OK = Arm()
OOM = Arm(outcome="blocked:oom", cause="out of memory")
CRASH = Arm(outcome="blocked:native_crash", cause="free(): invalid size")
OTHER_CRASH = Arm(outcome="blocked:native_crash", cause="malloc(): corrupted")
HUNG = Arm(outcome="stalled:shm_broadcast", cause="No available shared memory broadcast block")
RED = Arm(red="greedy tokens differ")

TURNED = {
    Verdict.FASTER: {Verdict.SLOWER},
    Verdict.SLOWER: {Verdict.FASTER},
    Verdict.SAME: {Verdict.SAME},
    Verdict.UNCLEAR: {Verdict.UNCLEAR},
    Verdict.UNBLOCKED: {Verdict.BROKEN, Verdict.STALLED},
    Verdict.BROKEN: {Verdict.UNBLOCKED},
    Verdict.STALLED: {Verdict.UNBLOCKED, Verdict.BLOCKED, Verdict.STALLED},
    Verdict.BLOCKED: {Verdict.BLOCKED, Verdict.STALLED},
}
values = st.floats(1.0, 1000.0)
pair_lists = st.lists(st.builds(Pair, values, values), min_size=3, max_size=8)
near_pairs = st.lists(
    st.builds(lambda a, r: Pair(a, a * math.exp(r)), values, st.floats(-0.03, 0.03)),
    min_size=3, max_size=8,
)  # fmt: skip
rules = st.builds(
    Rule,
    better=st.sampled_from(["higher", "lower"]),
    minimum_effect=st.floats(0.001, 0.2),
    prior=st.sampled_from([None, PRIOR]),
)
arms = st.sampled_from([OK, OK, OK, OOM, CRASH, OTHER_CRASH, HUNG, RED])


def paired(*ratios: float) -> list[Pair]:
    return [Pair(100.0, 100.0 * ratio) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.05, 1.051, 1.049), Verdict.FASTER),
        ((0.95, 0.951, 0.949), Verdict.SLOWER),
        ((1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0, 1.001, 0.999), Verdict.SAME),
        ((1.03, 0.99, 1.01), Verdict.UNCLEAR),
        ((1.006, 1.006, 1.006), Verdict.UNCLEAR),
    ],
)
def test_verdict_over_pairs(ratios: tuple[float, ...], verdict: Verdict) -> None:
    found = judge_pairs(paired(*ratios), RULE)
    assert found.verdict is verdict
    assert found.pairs == len(ratios)
    assert found.level == 0.9
    assert found.calibrated
    assert found.low is not None
    assert found.ratio is not None
    assert found.high is not None
    assert found.low <= found.ratio <= found.high
    if verdict is Verdict.UNCLEAR:
        assert "could have been seen" in found.note


def test_lower_is_better() -> None:
    found = judge_pairs(paired(0.95, 0.951, 0.949), Rule(better="lower", prior=PRIOR))
    assert found.verdict is Verdict.FASTER
    assert found.ratio == pytest.approx(1 / 0.95, rel=1e-3)


def test_without_history_it_is_uncalibrated() -> None:
    found = judge_pairs(paired(1.05, 1.051, 1.049), Rule())
    assert found.verdict is Verdict.FASTER
    assert not found.calibrated
    assert "uncalibrated" in found.note
    wild = judge_pairs(paired(1.3, 0.8, 1.1), Rule(prior=Prior(sd=0.001, pairs=16)))
    assert not wild.calibrated
    assert "noisier" in wild.note


@given(st.one_of(pair_lists, near_pairs), rules, arms, arms)
@settings(deadline=None)
def test_swapping_the_sides_turns_the_verdict_round(
    pairs: list[Pair], rule: Rule, before: Arm, after: Arm
) -> None:
    turned = [Pair(p.after, p.before, not p.before_first) for p in pairs]
    one, other = judge(before, after, pairs, rule), judge(after, before, turned, rule)
    assert other.verdict in TURNED[one.verdict]
    assert one.same_cause == other.same_cause
    if one.ratio is not None:
        assert other.ratio is not None
        assert one.ratio * other.ratio == pytest.approx(1.0)
        assert (one.p, one.detectable) == (other.p, other.detectable)


@given(near_pairs, rules, st.floats(0.001, 1000.0))
@settings(deadline=None)
def test_the_unit_does_not_matter(pairs: list[Pair], rule: Rule, unit: float) -> None:
    scaled = [Pair(p.before * unit, p.after * unit) for p in pairs]
    one, other = judge_pairs(pairs, rule), judge_pairs(scaled, rule)
    assert one.ratio == pytest.approx(other.ratio)
    assert one.low == pytest.approx(other.low)


@given(near_pairs, rules)
@settings(deadline=None)
def test_same_lies_inside_the_minimum_effect(pairs: list[Pair], rule: Rule) -> None:
    found = judge_pairs(pairs, rule)
    assert found.low is not None
    assert found.high is not None
    edge = 1.0 + rule.minimum_effect
    if found.verdict is Verdict.SAME:
        assert 1 / edge < found.low
        assert found.high < edge
    if found.verdict is Verdict.FASTER:
        assert found.ratio is not None
        assert found.ratio > edge


@pytest.mark.parametrize(
    ("before", "after", "verdict", "same"),
    [
        (OOM, OK, Verdict.UNBLOCKED, False),
        (HUNG, OK, Verdict.UNBLOCKED, False),
        (RED, OK, Verdict.UNBLOCKED, False),
        (OK, RED, Verdict.BROKEN, False),
        (OK, OOM, Verdict.BROKEN, False),
        (OK, HUNG, Verdict.STALLED, False),
        (OOM, OOM, Verdict.BLOCKED, True),
        (CRASH, OTHER_CRASH, Verdict.BLOCKED, True),
        (OOM, CRASH, Verdict.BLOCKED, False),
        (HUNG, HUNG, Verdict.BLOCKED, True),
        (OOM, HUNG, Verdict.STALLED, False),
        (RED, RED, Verdict.BLOCKED, True),
    ],
)
def test_outcomes_come_before_numbers(
    before: Arm, after: Arm, verdict: Verdict, same: bool
) -> None:
    fast = paired(2.0, 2.0, 2.0)
    found = judge(before, after, fast, RULE)
    assert (found.verdict, found.same_cause) == (verdict, same)
    assert found.ratio is None
    assert found.p is None
    assert found.note
    assert found.cause


def test_unknown_errors_are_the_same_by_their_words() -> None:
    one = Arm(outcome="blocked:exception", cause="KeyError: 0x7f12 at 3")
    two = Arm(outcome="blocked:exception", cause="KeyError: 0x8a00 at 4")
    three = Arm(outcome="blocked:exception", cause="KeyError: 'w13'")
    assert judge(one, two, [], RULE).same_cause
    assert not judge(one, three, [], RULE).same_cause


@pytest.mark.parametrize(
    ("verdict", "same", "expected"),
    [
        (Verdict.FASTER, False, {None: True, "same": False, "faster": True, "unblocked": False}),
        (Verdict.SLOWER, False, {None: False, "same": False, "faster": False, "unblocked": False}),
        (Verdict.SAME, False, {None: True, "same": True, "faster": False, "unblocked": False}),
        (Verdict.UNCLEAR, False, {None: True, "same": True, "faster": False, "unblocked": False}),
        (Verdict.UNBLOCKED, False, {None: True, "same": True, "faster": True, "unblocked": True}),
        (Verdict.BROKEN, False, {None: False, "same": False, "faster": False, "unblocked": False}),
        (Verdict.STALLED, False, {None: False, "same": False, "faster": False, "unblocked": False}),
        (Verdict.BLOCKED, True, {None: True, "same": None, "faster": None, "unblocked": False}),
        (Verdict.BLOCKED, False, {None: False, "same": False, "faster": False, "unblocked": False}),
    ],
)
def test_claims(verdict: Verdict, same: bool, expected: dict[Claim | None, bool | None]) -> None:
    judgement = Judgement(verdict=verdict, method="", note="", same_cause=same)
    assert {claim: holds(judgement, claim) for claim in expected} == expected


def test_steps_lead_from_look_to_look() -> None:
    unclear = [1.022, 0.995, 1.024, 0.996, 1.021, 0.997, 1.022, 0.995]
    pairs: list[Pair] = []
    looked = []
    while (step := next_step(pairs, RULE)).judgement is None:
        assert step.replace is None
        pairs += paired(*unclear[len(pairs) : len(pairs) + step.pairs])
        looked.append(len(pairs))
    assert tuple(looked) == LOOKS
    assert step.judgement.verdict is Verdict.UNCLEAR
    clear = next_step(paired(1.05, 1.049, 1.051), RULE)
    assert clear.judgement is not None
    assert clear.judgement.verdict is Verdict.FASTER


def test_fewer_pairs() -> None:
    assert [looks_up_to(n) for n in (1, 3, 7, 8)] == [(1,), (3,), (3, 4, 5, 6), LOOKS]
    one = judge_pairs(paired(1.5), Rule(looks=looks_up_to(1)))
    assert (one.verdict, one.ratio, one.low) == (Verdict.UNCLEAR, pytest.approx(1.5), None)
    known = next_step(paired(1.5), Rule(looks=looks_up_to(1), prior=PRIOR)).judgement
    assert known is not None
    assert known.verdict is Verdict.FASTER
    assert known.method == "moderated paired t, look 1 of 1"


def test_an_outlier_is_replaced_once() -> None:
    pairs = [*paired(1.05, 1.049), Pair(100.0, 80.0)]
    assert next_step(pairs, RULE).replace == 2
    again = next_step(pairs, RULE, replaced=True)
    assert again.replace is None
    assert again.pairs == 1


def test_holm_over_the_patches() -> None:
    base = Judgement(verdict=Verdict.FASTER, method="t", note="+2 %", ratio=1.02)
    weak = [Judgement(verdict=Verdict.SAME, method="t", note="", p=0.5) for _ in range(9)]

    def with_p(p: float) -> Judgement:
        return msgspec.structs.replace(base, p=p, alpha=0.016)

    assert over_patches([with_p(0.01)])[0].verdict is Verdict.FASTER
    alone = over_patches([with_p(0.01), *weak])
    assert alone[0].verdict is Verdict.UNCLEAR
    assert "10 patches" in alone[0].note
    assert over_patches([with_p(0.0005), *weak])[0].verdict is Verdict.FASTER
    broken = Judgement(verdict=Verdict.BROKEN, method="gate", note="red")
    assert over_patches([broken, with_p(0.01)])[0] is broken


def test_a_family_asks_for_more() -> None:
    pairs = paired(1.026, 1.014, 1.010, 1.020)
    assert judge_pairs(pairs, RULE).verdict is Verdict.FASTER
    strict = msgspec.structs.replace(RULE, family=10)
    assert judge_pairs(pairs, strict).verdict is Verdict.UNCLEAR
    many = paired(*(1.026, 1.014, 1.010, 1.020) * 2)
    found = judge_pairs(many, strict)
    nulls = [Judgement(verdict=Verdict.SAME, method="t", note="", p=0.5)] * 9
    assert found.verdict is over_patches([found, *nulls])[0].verdict is Verdict.FASTER


def run_verify(rng: random.Random, effect: float) -> Verdict:
    pairs: list[Pair] = []
    replaced = False
    while True:
        step = next_step(pairs, RULE, replaced=replaced)
        if step.judgement is not None:
            return step.judgement.verdict
        fresh = Pair(math.exp(rng.gauss(0, 0.0062)), math.exp(rng.gauss(effect, 0.0062)))
        if step.replace is not None:
            pairs[step.replace], replaced = fresh, True
        else:
            pairs.append(fresh)


def test_few_false_flags_and_high_power() -> None:
    rng = random.Random(20)
    null = Counter(run_verify(rng, 0.0) for _ in range(600))
    real = Counter(run_verify(rng, math.log1p(0.02)) for _ in range(300))
    assert null[Verdict.FASTER] + null[Verdict.SLOWER] <= 0.05 * 600
    assert real[Verdict.FASTER] >= 0.95 * 300
