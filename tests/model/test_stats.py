"""Distributions against scipy, and effects of pairs against their definitions."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stack.model.measure.pairs import (
    Pair,
    Prior,
    detectable,
    estimate,
    log_ratios,
    prior_from,
    slow_outlier,
)
from stack.model.measure.stats import beta_cdf, f_tail, holm, t_cdf, t_quantile, t_tail

oracle = pytest.importorskip("scipy.stats")
dfs = st.one_of(st.integers(1, 60).map(float), st.floats(0.5, 2000.0))
ratios = st.lists(st.floats(-0.2, 0.2), min_size=3, max_size=8)
priors = st.one_of(
    st.none(), st.builds(Prior, sd=st.floats(1e-4, 0.1), pairs=st.integers(4, 40))
)  # fmt: skip


@given(st.floats(-60.0, 60.0), dfs)
@example(1e-9, 1.0)  # where the argument of the beta function rounds to 1
@settings(deadline=None)
def test_t_cdf(t: float, df: float) -> None:
    assert t_cdf(t, df) == pytest.approx(float(oracle.t.cdf(t, df)), rel=1e-9, abs=1e-14)
    assert t_tail(t, df) == pytest.approx(float(oracle.t.sf(t, df)), rel=1e-9, abs=1e-14)


@given(st.floats(1e-7, 1 - 1e-7), dfs)
@settings(deadline=None)
def test_t_quantile(p: float, df: float) -> None:
    assert t_quantile(p, df) == pytest.approx(float(oracle.t.ppf(p, df)), rel=1e-9, abs=1e-9)


@given(st.floats(0.0, 1.0), st.floats(0.3, 300.0), st.floats(0.3, 300.0))
@settings(deadline=None)
def test_beta(x: float, a: float, b: float) -> None:
    assert beta_cdf(x, a, b) == pytest.approx(float(oracle.beta.cdf(x, a, b)), rel=1e-9, abs=1e-12)


@given(st.floats(1e-6, 50.0), st.integers(1, 30), st.integers(1, 30))  # below, scipy is off
@settings(deadline=None)
def test_f_tail(x: float, df1: int, df2: int) -> None:
    expected = float(oracle.f.sf(x, df1, df2))
    assert f_tail(x, df1, df2) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.floats(0.0, 50.0))
@example(1e-16)
def test_f_tail_of_one_and_one_has_a_closed_form(x: float) -> None:
    assert f_tail(x, 1, 1) == pytest.approx(1 - 2 / math.pi * math.atan(math.sqrt(x)), rel=1e-12)


def test_quantile_wants_a_probability() -> None:
    with pytest.raises(ValueError, match="not between"):
        t_quantile(1.0, 5.0)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12))
def test_holm_is_the_step_down_procedure(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for alpha in (0.01, 0.05, 0.3):
        rejected = set()
        for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
            if (len(p_values) - rank) * p_values[i] > alpha:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected


@given(ratios)
def test_without_a_prior_it_is_the_paired_t_test(values: list[float]) -> None:
    found = estimate(values, None)
    n = len(values)
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    assert found.df == n - 1
    assert found.effect == pytest.approx(mean, abs=1e-12)
    assert found.error == pytest.approx(sd / math.sqrt(n), rel=1e-6, abs=1e-12)
    if sd > 1e-6:
        expected = float(oracle.ttest_1samp(values, 0.0).pvalue)
        assert found.p == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(ratios, priors)
def test_swapping_the_sides_turns_the_effect_round(
    values: list[float], prior: Prior | None
) -> None:
    one, other = estimate(values, prior), estimate([-v for v in values], prior)
    assert one.effect == -other.effect
    assert (one.error, one.df, one.p) == (other.error, other.df, other.p)


@given(ratios, priors, st.randoms())
def test_the_order_of_pairs_does_not_matter(
    values: list[float], prior: Prior | None, rng: random.Random
) -> None:
    mixed = list(values)
    rng.shuffle(mixed)
    assert estimate(mixed, prior).effect == pytest.approx(estimate(values, prior).effect, abs=1e-9)


@given(ratios, priors, st.floats(0.01, 0.999))
def test_interval_holds_the_effect(values: list[float], prior: Prior | None, level: float) -> None:
    found = estimate(values, prior)
    low, high = found.interval(level)
    assert low <= found.effect <= high


def test_one_far_pair_moves_the_effect_little() -> None:
    quiet = [0.020, 0.021, 0.019, 0.022, 0.018]
    prior = Prior(sd=0.002, pairs=16)
    moved = estimate([*quiet, -0.15], prior)
    assert moved.effect == pytest.approx(0.02, abs=0.006)
    assert estimate([*quiet, -0.15], None).effect < 0


def test_a_prior_steadies_few_pairs_unless_they_refute_it() -> None:
    lucky = [0.0120, 0.0121, 0.0119]
    prior = Prior(sd=0.009, pairs=16)
    assert estimate(lucky, None).p < 0.001 < estimate(lucky, prior).p
    assert estimate(lucky, prior).df == 8
    wild = estimate([0.1, -0.1, 0.05], Prior(sd=0.001, pairs=16))
    assert not wild.trusted_prior
    assert wild.df == 2


def test_prior_is_the_spread_of_the_history() -> None:
    rng = random.Random(3)
    history = [rng.gauss(0.0, 0.009) for _ in range(400)]
    prior = prior_from(history)
    assert prior is not None
    assert prior.sd == pytest.approx(0.009, rel=0.08)
    polluted = prior_from([*history, 0.3])
    assert polluted is not None
    assert polluted.sd == pytest.approx(prior.sd, rel=0.05)
    assert prior_from(history[:3]) is None
    assert prior.df == 6
    assert Prior(sd=1.0, pairs=4).df == 4


def test_log_ratios() -> None:
    pairs = [Pair(100.0, 110.0), Pair(100.0, 90.0)]
    assert log_ratios(pairs, "higher") == pytest.approx([math.log(1.1), math.log(0.9)])
    assert log_ratios(pairs, "lower") == pytest.approx([-math.log(1.1), -math.log(0.9)])
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="no logarithm"):
            log_ratios([Pair(1.0, bad)], "higher")


def test_slow_outlier() -> None:
    prior = Prior(sd=0.009, pairs=16)
    calm = [Pair(100.0, 102.0), Pair(100.5, 102.3), Pair(99.8, 101.7)]
    assert slow_outlier(calm, "higher", prior) is None
    assert slow_outlier([*calm, Pair(85.0, 102.0)], "higher", prior) == 3
    assert slow_outlier([Pair(100.0, 80.0), *calm], "higher", prior) == 0
    assert slow_outlier([Pair(100.0, 80.0), *calm], "higher", None) == 0
    assert slow_outlier([Pair(100.0, 125.0), *calm], "higher", prior) is None
    assert slow_outlier([Pair(100.0, 125.0), *calm], "lower", prior) == 0
    assert slow_outlier([Pair(100.0, 80.0), *calm, Pair(85.0, 102.0)], "higher", prior) is None


def test_detectable_effect_is_found_four_times_in_five() -> None:
    rng = random.Random(11)
    prior = Prior(sd=0.009, pairs=16)
    typical = detectable(0.009 / math.sqrt(8), 13.0, alpha=0.016, edge=math.log1p(0.01))
    found = 0
    for _ in range(1000):
        values = [rng.gauss(typical, 0.009) for _ in range(8)]
        seen = estimate(values, prior)
        found += seen.p < 0.016 and seen.effect > math.log1p(0.01)
    assert 0.74 < found / 1000 < 0.88
