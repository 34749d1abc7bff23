"""Numbers of an update against a count by hand (cases A2, A11, E8)."""

import math

import numpy as np
import pandas as pd
import pytest

from seedlab.train.batch import advantages_of
from seedlab.train.measures import correlation, gate_progress, present, rollout_metrics


@pytest.fixture(scope="module")
def played(make_session, micro, rollout):
    session = make_session(micro("env.max_steps=3"))
    trajectories = rollout(session, track_progress=True)
    trajectories[0].success, trajectories[0].returned = True, 1.0
    trajectories[3].infra_failure = "worker died"
    return session, trajectories


def test_rates_are_over_what_was_played(played):
    session, trajectories = played
    got = rollout_metrics(trajectories, advantages_of(trajectories, session.cfg))
    steps = [s for t in trajectories[:3] for s in t.steps]
    assert got["rollout/success"] == pytest.approx(1 / 3)
    assert got["rollout/return"] == pytest.approx(1 / 3)
    assert got["rollout/infra_failures"] == 1
    assert got["rollout/inadmissible_actions"] == np.mean([not s.admissible for s in steps])
    assert got["rollout/cut_responses"] == np.mean([s.finish == "length" for s in steps])
    assert got["rollout/episode_length_success"] == len(trajectories[0].steps)
    assert got["rollout/tie_rate"] == 0.5  # a group with one scored member has nothing to compare: it counts as tied


def test_a_mean_over_nothing_is_absent_and_never_zero(played):
    session, trajectories = played
    lost = [t for t in trajectories if not t.success and not t.infra_failure]
    got = rollout_metrics(lost, advantages_of(lost, session.cfg))
    assert "rollout/episode_length_success" not in got
    assert got["rollout/success"] == 0.0
    failed = [t for t in trajectories if t.infra_failure]
    got = rollout_metrics(failed, advantages_of(failed, session.cfg))
    assert "rollout/success" not in got
    assert got["rollout/infra_failures"] == 1
    assert present({"a": None, "b": math.nan, "c": math.inf, "d": 1}) == {"d": 1.0}


def test_correlations():
    a = np.array([1.0, 2.0, 4.0])
    assert correlation(a, 3 - 2 * a) == pytest.approx(-1.0)
    assert math.isnan(correlation(a, np.ones(3)))
    assert math.isnan(correlation(a[:2], a[:2]))


def test_gate_and_progress_are_paired_by_step(played):
    _, trajectories = played
    trajectory = trajectories[0]
    for step, progress in zip(trajectory.steps, (1.0, -1.0, 0.0)):
        step.progress = progress
    tokens = pd.DataFrame({"trajectory_index": 0, "step": [0, 0, 1, 2, 2], "gate": [0.9, 0.7, 0.2, 0.4, 0.6]})
    assert gate_progress(tokens, trajectories) == pytest.approx(np.corrcoef([0.8, 0.2, 0.5], [1.0, -1.0, 0.0])[0, 1])
    trajectory.steps[1].progress = None
    assert math.isnan(gate_progress(tokens, trajectories))


def test_the_metrics_of_a_run_are_those_of_its_tokens(finished):
    for update, row in finished.metrics.set_index("update").iterrows():
        tokens = finished.tokens(update=update)
        assert row["policy/tokens_trained"] == tokens["mask_policy"].sum() == len(tokens)
        assert row["policy/ratio_mean"] == pytest.approx(tokens["ratio"].mean(), rel=1e-5)
        assert row["policy/ratio_max"] == pytest.approx(tokens["ratio"].max())
        assert row["policy/clip_fraction"] == pytest.approx(tokens["clipped"].mean())
        assert row["policy/kl"] == pytest.approx(tokens["kl"].mean(), rel=1e-5)
        assert row["policy/entropy"] == pytest.approx(tokens["entropy"].mean(), rel=1e-5)
        taught = tokens[tokens["mask_opd"]]
        assert row["opd/gate_mean"] == pytest.approx(taught["gate"].mean(), rel=1e-5)
        assert row["opd/mask_coverage"] == len(taught) / len(tokens)
        steps = finished.steps(update)
        assert row["rollout/entropy"] == pytest.approx(np.mean(np.concatenate(steps["entropies"].to_list())), rel=1e-5)


def test_advantages_of_a_run_are_of_mean_zero_in_each_group(finished):
    trajectories = finished.trajectories(0)
    groups = trajectories.groupby("task")["advantage"]
    assert groups.mean().abs().max() < 1e-6
    assert len(groups) == 2
