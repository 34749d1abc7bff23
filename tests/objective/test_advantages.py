import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective.advantages import combine_rewards, group_advantages
from seedlab.objective.ties import tie_probability

SAMPLE = ObjectiveConfig(advantage_ddof=1)
POPULATION = ObjectiveConfig()


def advantages(returns, groups=None, cfg=POPULATION, **counts):
    groups = [0] * len(returns) if groups is None else groups
    counts = {k: torch.tensor(v) for k, v in counts.items()}
    return group_advantages(torch.tensor(returns, dtype=torch.float64), torch.tensor(groups), cfg=cfg, **counts)


def close(actual, expected, atol=1e-7):
    torch.testing.assert_close(actual.double(), torch.tensor(expected, dtype=torch.float64), atol=atol, rtol=0)


def test_a_group_of_one_has_advantage_zero():  # A1
    result = advantages([1.0, 1.0, 0.0], [0, 1, 1], SAMPLE)
    close(result.advantage_T, [0, 0.70710578, -0.70710578])
    assert result.advantage_T[0] == 0.0 and result.tied_T.tolist() == [True, False, False]


def test_group_of_one_as_in_the_authors_code():
    result = advantages([1.0, 1.0, 0.0], [0, 1, 1], ObjectiveConfig(group_of_one="identity"))
    assert result.advantage_T[0] == 1.0 and not result.tied_T[0]


def test_unscored_members_are_left_out():  # A1
    nan = float("nan")
    result = advantages([1.0, nan, 0.0, 1.0], scored_T=[True, True, True, False], cfg=SAMPLE)
    close(result.advantage_T, [0.70710578, 0, -0.70710578, 0])
    assert result.scored_T.tolist() == [True, False, True, False] and result.unscored == 2
    nothing = advantages([nan, nan])
    assert nothing.advantage_T.tolist() == [0, 0] and nothing.groups == 0 and nothing.tie_rate != nothing.tie_rate


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cfg", [POPULATION, SAMPLE, ObjectiveConfig(advantage="rloo"), ObjectiveConfig(advantage_eps=0.0)])
def test_ties_give_exactly_zero(dtype, cfg):  # A2
    for value, n in itertools.product([0.0, 1.0, 0.7, 0.1, 1 / 3, 1e-9, 123456.7], range(2, 9)):
        result = group_advantages(torch.full((n,), value, dtype=dtype), torch.zeros(n, dtype=torch.long), cfg=cfg)
        assert torch.equal(result.advantage_T, torch.zeros(n)), (value, n)
        assert result.tied_T.all() and result.tie_rate == 1.0


def test_the_tie_rate_counts_groups():  # A2
    result = advantages([1.0, 1.0, 1.0, 1.0, 0.0], [3, 3, 3, 9, 9])
    assert result.tie_rate == 0.5 and result.groups == 2


def test_rows_keep_their_advantage_in_any_order():  # A4
    rows = [(1.0, 0, 0.70710578), (0.0, 0, -0.70710578), (1.0, 1, 0.0), (1.0, 1, 0.0)]
    for order in itertools.permutations(rows):
        returns, groups, expected = zip(*order)
        close(advantages(list(returns), list(groups), SAMPLE).advantage_T, list(expected))


def test_one_success_in_four():  # A6
    close(advantages([1.0, 0, 0, 0], cfg=SAMPLE).advantage_T, [1.499997] + [-0.499999] * 3, 1e-6)
    close(advantages([1.0, 0, 0, 0]).advantage_T, [1.73204681] + [-0.57734894] * 3, 1e-7)
    close(advantages([1.0, 0, 0, 0], cfg=ObjectiveConfig(advantage_scale="mean")).advantage_T, [0.75] + [-0.25] * 3, 0)


def test_successes_in_eight():  # A6
    close(advantages([1.0] + [0.0] * 7, cfg=SAMPLE).advantage_T, [2.474867] + [-0.353552] * 7, 1e-6)
    close(advantages([1.0] * 4 + [0.0] * 4, cfg=SAMPLE).advantage_T, [0.935413] * 4 + [-0.935413] * 4, 1e-6)


def test_the_papers_walk_through():  # paper.md section 6
    assert advantages([1.0, 0.0], cfg=ObjectiveConfig(advantage_eps=0.0)).advantage_T.tolist() == [1.0, -1.0]
    close(advantages([1.0, 0.0]).advantage_T, [0.999998, -0.999998], 1e-7)
    assert advantages([1.0, 1.0]).advantage_T.tolist() == [0.0, 0.0]


def test_rloo_subtracts_the_mean_of_the_others():
    close(advantages([1.0, 0, 0, 0], cfg=ObjectiveConfig(advantage="rloo")).advantage_T, [1.0] + [-1 / 3] * 3)


def test_invalid_steps_lower_the_optimised_return():
    cfg = ObjectiveConfig(invalid_penalty=0.1)
    result = advantages([1.0, 1.0, 0.0, 0.0], [0, 0, 1, 1], cfg, invalid_steps_T=[0, 2, 3, 3])
    close(result.optimised_T, [1.0, 0.8, -0.3, -0.3])
    close(result.advantage_T, [0.99999, -0.99999, 0, 0], 1e-6)
    assert result.tied_T.tolist() == [False, False, True, True]
    assert (result.tie_rate, result.tie_rate_penalised) == (1.0, 0.5)
    assert torch.equal(result.invalid_advantage_T, result.advantage_T)


def test_step_statistics_weigh_a_trajectory_by_its_steps():
    cfg = ObjectiveConfig(group_statistics="steps", advantage_ddof=1)
    result = advantages([1.0, 0.0], cfg=cfg, steps_T=[2, 6])
    samples = torch.tensor([1.0] * 2 + [0.0] * 6, dtype=torch.float64)
    expected = (samples - samples.mean()) / (samples.std() + 1e-6)
    close(result.advantage_T, [expected[0].item(), expected[-1].item()])


def test_step_statistics_put_the_penalty_on_the_invalid_step():
    cfg = ObjectiveConfig(group_statistics="steps", advantage_ddof=1, invalid_penalty=0.1)
    result = advantages([1.0, 0.0], cfg=cfg, steps_T=[2, 3], invalid_steps_T=[1, 0])
    samples = torch.tensor([1.0, 0.9, 0.0, 0.0, 0.0], dtype=torch.float64)
    expected = (samples - samples.mean()) / (samples.std() + 1e-6)
    close(result.advantage_T, [expected[0].item(), expected[2].item()])
    assert result.invalid_advantage_T[0].item() == pytest.approx(expected[1].item(), abs=1e-6)


def test_step_statistics_under_rloo_leave_the_whole_trajectory_out():
    cfg = ObjectiveConfig(group_statistics="steps", advantage="rloo")
    close(advantages([1.0, 0.0, 0.5], cfg=cfg, steps_T=[1, 1, 3]).advantage_T, [1 - 1.5 / 4, -2.5 / 4, 0.5 - 0.5])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.3, 0.7, 1.0]), st.integers(0, 3)), min_size=1, max_size=20),
    st.sampled_from([POPULATION, SAMPLE, ObjectiveConfig(advantage="rloo"), ObjectiveConfig(advantage_scale="mean")]),
    st.randoms(use_true_random=False),
)
def test_permutation_and_centring(rows, cfg, random):
    returns, groups = map(list, zip(*rows))
    result = advantages(returns, groups, cfg)
    assert torch.isfinite(result.advantage_T).all()
    for group in set(groups):
        assert result.advantage_T[torch.tensor(groups) == group].sum().abs() < 1e-5
    order = list(range(len(rows)))
    random.shuffle(order)
    moved = advantages([returns[i] for i in order], [groups[i] for i in order], cfg)
    torch.testing.assert_close(moved.advantage_T, result.advantage_T[order], atol=1e-6, rtol=0)
    assert moved.tie_rate == result.tie_rate


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="steps_T is needed"):
        advantages([1.0, 0.0], cfg=ObjectiveConfig(group_statistics="steps"))
    with pytest.raises(ValueError, match="invalid_steps_T is needed"):
        advantages([1.0, 0.0], cfg=ObjectiveConfig(invalid_penalty=0.1))
    with pytest.raises(ValueError, match="must be"):
        advantages([1.0, 0.0], [0, 0, 0])
    with pytest.raises(ValueError, match="trajectory 1 is infinite"):
        advantages([1.0, float("inf")])
    with pytest.raises(ValueError, match="more invalid steps than steps"):
        advantages([1.0, 0.0], cfg=ObjectiveConfig(group_statistics="steps"), steps_T=[1, 1], invalid_steps_T=[2, 0])


def test_tie_probability():  # paper.md section 6
    assert tie_probability(0.85, 8) == pytest.approx(0.272, abs=5e-4)
    assert tie_probability(0.95, 8) == pytest.approx(0.663, abs=5e-4)
    assert tie_probability(0.0, 8) == tie_probability(1.0, 3) == 1.0 and tie_probability(0.5, 1) == 1.0
    with pytest.raises(ValueError):
        tie_probability(1.2, 8)


def test_the_combined_reward_is_the_optimised_one():  # E9
    combined = combine_rewards(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.7, 0.3]))
    close(combined, [0.7, 0.3], 1e-7)
    result = group_advantages(combined, torch.tensor([0, 0]), cfg=POPULATION)
    assert torch.equal(result.optimised_T, combined)
