import numpy as np
import pytest
from fake_run import config, fake_run
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from seedlab.analysis import groups, tie_theory
from seedlab.analysis.statistics import wilson_interval
from seedlab.analysis.ties import PRECISION_LIMITS, fit_success_rates, tie_probability_of_beta
from seedlab.objective.ties import tie_probability


@pytest.mark.parametrize("a, b, size", [(1.0, 1.0, 4), (0.6, 1.5, 8), (3.0, 0.4, 2), (25.0, 40.0, 16)])
def test_the_mean_over_rates_is_the_integral(a, b, size):
    expected, _ = integrate.quad(lambda p: stats.beta.pdf(p, a, b) * tie_probability(p, size), 0, 1, limit=200)
    assert tie_probability_of_beta(a, b, size) == pytest.approx(expected, rel=1e-5)


def test_groups_of_one_tie_and_equal_tasks_are_the_limit():
    assert tie_probability_of_beta(0.7, 2.0, 1) == pytest.approx(1.0)
    assert tie_probability_of_beta(3e7, 7e7, 8) == pytest.approx(tie_probability(0.3, 8), rel=1e-5)
    assert tie_probability_of_beta(0.0, 5.0, 8) == tie_probability_of_beta(5.0, 0.0, 8) == 1.0


@given(st.floats(0.01, 50), st.floats(0.01, 50), st.integers(2, 32))
@settings(max_examples=60, deadline=None)
def test_unequal_tasks_never_tie_less_than_equal_ones(a, b, size):
    assert tie_probability_of_beta(a, b, size) >= tie_probability(a / (a + b), size) - 1e-9


@pytest.mark.parametrize("a, b, size", [(0.0, 0.0, 4), (-1.0, 2.0, 4), (1.0, 1.0, 0)])
def test_impossible_distributions_are_refused(a, b, size):
    with pytest.raises(ValueError, match="need a, b >= 0"):
        tie_probability_of_beta(a, b, size)


@pytest.mark.parametrize("a, b", [(0.5, 0.8), (2.0, 3.0), (6.0, 2.0)])
def test_the_fit_finds_the_distribution_again(a, b):
    rng = np.random.default_rng(0)
    successes = rng.binomial(8, rng.beta(a, b, size=20_000))
    fitted = fit_success_rates(successes, np.full(20_000, 8))
    assert fitted == pytest.approx((a, b), rel=0.06)
    tied = np.mean((successes == 0) | (successes == 8))
    assert tie_probability_of_beta(*fitted, 8) == pytest.approx(tied, abs=0.01)


def test_the_fit_at_its_limits():
    always, never = fit_success_rates([4, 4], [4, 4]), fit_success_rates([0, 0], [4, 4])
    assert tie_probability_of_beta(*always, 4) == tie_probability_of_beta(*never, 4) == 1.0
    a, b = fit_success_rates([2] * 500, [4] * 500)  # spread less than any binomial: all tasks equally hard
    assert a + b == pytest.approx(PRECISION_LIMITS[1], rel=0.01) and a == pytest.approx(b, rel=1e-3)
    with pytest.raises(ValueError, match="no group"):
        fit_success_rates([], [])


def test_groups_are_counted_from_the_trajectories(tmp_path):
    run = fake_run(tmp_path / "run", config("seed"), success=0.5)
    frame = groups(run)
    assert len(frame) == 4 and frame["attempts"].tolist() == [4] * 4
    assert frame["successes"].tolist() == [2, 0, 2, 0] and frame["tied"].tolist() == [False, True, False, True]
    theory = tie_theory(run, parts=2)
    assert theory[["first", "last", "groups"]].values.tolist() == [[0, 0, 2], [1, 1, 2]]
    wilson = wilson_interval(1, 2)
    assert theory.loc[0, ["observed", "low", "high"]].tolist() == [wilson.estimate, wilson.low, wilson.high]
    assert theory.loc[0, "success"] == 0.25 and theory.loc[0, "equal"] == pytest.approx(tie_probability(0.25, 4))


def test_attempts_lost_to_infrastructure_are_no_ties(tmp_path):
    def lost(table, update, frame):
        if table == "trajectories":
            frame.loc[frame.index[:3], "infra_failure"] = "the server went away"
        return frame

    frame = groups(fake_run(tmp_path / "run", config("seed"), change=lost))
    assert frame["attempts"].tolist() == [4, 4]  # a single attempt left makes no group
