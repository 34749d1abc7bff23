"""GiGPO's second advantage against a loop over steps that was written from its definition."""

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective.step_advantages import discounted_returns, step_advantages

CFG = ObjectiveConfig(advantage="gigpo")


def found(rewards, observations, groups, cfg=CFG, invalid=None, scored=None):
    return step_advantages(
        rewards, observations, groups, invalid_T=invalid or [[False] * len(r) for r in rewards], scored_T=scored or [True] * len(rewards), cfg=cfg
    )


def brute_force(rewards, observations, groups, cfg, invalid, scored):
    """Every pair of steps compared, every return summed anew."""
    lowered = [[r - (0 if cfg.group_statistics == "steps" else cfg.invalid_penalty * i) for r, i in zip(*pair)] for pair in zip(rewards, invalid)]
    value = {
        (t, s): sum(cfg.step_discount ** (k - s) * row[k] for k in range(s, len(row))) - (cfg.invalid_penalty * invalid[t][s] if cfg.group_statistics == "steps" else 0)
        for t, row in enumerate(lowered) for s in range(len(row)) if scored[t]
    }  # fmt: skip
    out = [[0.0] * len(r) for r in rewards]
    for t, s in value:
        like = [v for (u, k), v in value.items() if groups[u] == groups[t] and observations[u][k] == observations[t][s]]
        if len(like) == 1 or max(like) - min(like) < 1e-12:
            continue
        mean = math.fsum(like) / len(like)
        if cfg.advantage_scale == "mean":
            out[t][s] = value[t, s] - mean
            continue
        deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in like) / (len(like) - cfg.advantage_ddof))
        out[t][s] = (value[t, s] - mean) / (deviation + cfg.advantage_eps)
    return out


def test_discounted_returns_by_hand():
    assert discounted_returns([0.0, 0.0, 1.0], 0.95).tolist() == pytest.approx([0.9025, 0.95, 1.0])
    assert discounted_returns([1.0, 2.0], 0.0).tolist() == [1.0, 2.0]
    assert discounted_returns([], 0.95).tolist() == []


def test_two_attempts_that_part_at_a_shared_observation():
    """Both start in `hall`; one needs two further steps to succeed, the other never does: R = 0.95 and 0."""
    result = found([[0.0, 1.0], [0.0, 0.0]], [["hall", "desk"], ["hall", "shelf"]], [7, 7])
    assert result.advantage_T[0].tolist() == pytest.approx([0.475 / (0.475 + 1e-6), 0.0], abs=1e-12)
    assert result.advantage_T[1].tolist() == pytest.approx([-0.475 / (0.475 + 1e-6), 0.0], abs=1e-12)
    assert (result.shared, result.tied) == (0.5, 0.0)


def test_an_observation_that_comes_back_within_one_attempt_is_compared_with_itself():
    result = found([[0.0, 0.0, 1.0]], [["hall", "desk", "hall"]], [0])
    early, late = 0.95**2, 1.0
    half = (late - early) / 2
    assert result.advantage_T[0].tolist() == pytest.approx([-half / (half + 1e-6), 0.0, half / (half + 1e-6)], abs=1e-9)


def test_other_tasks_and_lost_episodes_are_not_compared():
    alone = found([[1.0], [0.0]], [["hall"], ["hall"]], [0, 1])
    assert [v.tolist() for v in alone.advantage_T] == [[0.0], [0.0]] and (alone.shared, math.isnan(alone.tied)) == (0.0, True)
    lost = found([[1.0], [0.0]], [["hall"], ["hall"]], [0, 0], scored=[True, False])
    assert [v.tolist() for v in lost.advantage_T] == [[0.0], [0.0]]


@pytest.mark.parametrize("scale, ddof", [("std", 0), ("std", 1), ("mean", 0)])
def test_ties_give_exactly_zero(scale, ddof):
    cfg = CFG.model_copy(update={"advantage_scale": scale, "advantage_ddof": ddof})
    result = found([[0.1, 0.7]] * 3, [["a", "b"]] * 3, [0] * 3, cfg)
    assert all(torch.equal(v, torch.zeros(2, dtype=torch.float64)) for v in result.advantage_T) and result.tied == 1.0


def test_the_penalty_reaches_back_to_earlier_steps_or_stays_on_its_own():
    rewards, observations = [[0.0, 1.0], [0.0, 1.0]], [["a", "x"], ["a", "y"]]
    invalid = [[False, True], [False, False]]
    whole = found(rewards, observations, [0, 0], CFG.model_copy(update={"invalid_penalty": 0.5, "advantage_scale": "mean"}), invalid)
    assert whole.advantage_T[0].tolist() == pytest.approx([-0.475 / 2, 0.0])  # .95 (1 - .5) against .95
    own = found(rewards, observations, [0, 0], CFG.model_copy(update={"invalid_penalty": 0.5, "group_statistics": "steps"}), invalid)
    assert own.advantage_T[0].tolist() == [0.0, 0.0]


SETTINGS = [
    CFG, CFG.model_copy(update={"advantage_scale": "mean"}), CFG.model_copy(update={"advantage_ddof": 1, "step_discount": 1.0}),
    CFG.model_copy(update={"invalid_penalty": 0.3}), CFG.model_copy(update={"invalid_penalty": 0.3, "group_statistics": "steps"}),
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.booleans(), st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from("abc"), st.booleans()), max_size=5)),
        min_size=1, max_size=7,
    ),
    st.sampled_from(SETTINGS), st.integers(0, 10**6),
)  # fmt: skip
def test_brute_force_and_order(rows, cfg, seed):
    def parts(rows):
        groups, scored, steps = zip(*rows)
        return [[[s[i] for s in row] for row in steps] for i in range(3)], list(groups), list(scored)

    (rewards, observations, invalid), groups, scored = parts(rows)
    result = found(rewards, observations, groups, cfg, invalid, scored)
    expected = brute_force(rewards, observations, groups, cfg, invalid, scored)
    for got, wanted in zip(result.advantage_T, expected):
        assert got.tolist() == pytest.approx(wanted, abs=1e-5)
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    (rewards, observations, invalid), groups, scored = parts([rows[i] for i in order])
    moved = found(rewards, observations, groups, cfg, invalid, scored)
    for place, i in enumerate(order):
        torch.testing.assert_close(moved.advantage_T[place], result.advantage_T[i], atol=1e-9, rtol=0)
    assert moved.shared == result.shared or math.isnan(moved.shared)


def test_lists_of_different_lengths_are_named():
    with pytest.raises(ValueError, match="one entry per step"):
        found([[1.0, 0.0]], [["a"]], [0])
