import math

import numpy as np
import pytest
from scipy import stats

from seedlab.analysis.statistics import (
    interquartile_mean, mean_interval, mean_score, paired_difference, probability_of_improvement, stratified_bootstrap, wilson_interval,
)


def test_t_interval_of_three_seeds_by_hand():
    got = mean_interval([0.4, 0.5, 0.6])
    half = 4.302652729911275 * 0.1 / math.sqrt(3)  # t_{0.975} with 2 degrees of freedom
    assert (got.estimate, got.n) == (pytest.approx(0.5), 3)
    assert (got.low, got.high) == (pytest.approx(0.5 - half), pytest.approx(0.5 + half))


def test_t_interval_agrees_with_scipy():
    x = np.random.default_rng(0).normal(size=9)
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.9)
    got = mean_interval(x, 0.9)
    assert (got.low, got.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_one_seed_has_no_interval_and_excludes_nothing():
    got = mean_interval([0.7])
    assert got.estimate == 0.7 and not got.known and not got.excludes(0)


def test_no_value_has_no_estimate_and_nan_is_refused():
    assert math.isnan(mean_interval([]).estimate)
    with pytest.raises(ValueError, match="NaN"):
        mean_interval([0.1, float("nan")])


def test_pairs_are_made_by_seed_not_by_order():
    a, b = {2: 0.9, 0: 0.5, 7: 1.0}, {0: 0.4, 2: 0.8, 5: 0.0}
    got = paired_difference(a, b)
    assert (got.estimate, got.n) == (pytest.approx(0.1), 2)
    assert got.high - got.low == pytest.approx(0.0, abs=1e-9)


def test_pairing_removes_what_seeds_share():
    a, b = {0: 0.2, 1: 0.5, 2: 0.8}, {0: 0.1, 1: 0.4, 2: 0.7}
    assert paired_difference(a, b).excludes(0) and not mean_interval(a.values()).excludes(0.4)


def test_wilson_agrees_with_scipy_and_stays_inside():
    for won, n in ((0, 10), (3, 10), (10, 10), (48, 96)):
        expected = stats.binomtest(won, n).proportion_ci(method="wilson")
        got = wilson_interval(won, n)
        assert (got.low, got.high) == (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12))
    assert math.isnan(wilson_interval(0, 0).estimate)
    with pytest.raises(ValueError, match="5 of 4"):
        wilson_interval(5, 4)


def test_interquartile_mean_drops_a_quarter_at_each_end():
    assert interquartile_mean([[0, 1, 2, 100]]) == 1.5
    batch = np.random.default_rng(4).normal(size=(5, 3, 6))
    assert interquartile_mean(batch) == pytest.approx([stats.trim_mean(x.ravel(), 0.25) for x in batch])


def test_bootstrap_repeats_keeps_strata_apart_and_covers_the_estimate():
    scores = np.random.default_rng(1).uniform(size=(5, 4))
    first, second = (stratified_bootstrap(scores, mean_score, seed=3, resamples=500) for _ in range(2))
    assert first == second and first.low < first.estimate < first.high
    # Runs that agree within each stratum leave nothing to resample, however far the strata are apart.
    flat = stratified_bootstrap(np.tile([0.0, 0.5, 1.0], (4, 1)), mean_score, seed=0, resamples=50)
    assert (flat.low, flat.estimate, flat.high) == (0.5, 0.5, 0.5)


def test_bootstrap_of_the_mean_agrees_with_its_known_spread():
    scores = np.random.default_rng(2).normal(size=(40, 1))
    got = stratified_bootstrap(scores, mean_score, seed=0, resamples=4000)
    spread = scores.std() / math.sqrt(40)
    assert (got.high - got.low) / (2 * 1.96 * spread) == pytest.approx(1.0, abs=0.08)


def test_bootstrap_of_one_run_has_no_interval_and_refuses_a_flat_list():
    assert not stratified_bootstrap([[0.1, 0.2]], seed=0).known
    with pytest.raises(ValueError, match="runs, strata"):
        stratified_bootstrap([0.1, 0.2], seed=0)


def test_probability_of_improvement_is_the_mann_whitney_share():
    a, b = np.array([[0.3], [0.5], [0.9]]), np.array([[0.5], [0.4]])
    expected = stats.mannwhitneyu(a[:, 0], b[:, 0]).statistic / 6
    assert probability_of_improvement(a, b) == pytest.approx(expected)
    assert probability_of_improvement(a, b) + probability_of_improvement(b, a) == pytest.approx(1.0)
    assert probability_of_improvement(a, a) == 0.5
