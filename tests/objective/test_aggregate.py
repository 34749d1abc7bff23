import pytest
import torch

from seedlab.objective.aggregate import RULES, Denominators, aggregate, count_denominators, macro_micro
from seedlab.objective.metrics import WeightedMeans, pass_at_k

LOSSES = torch.tensor([[1.0] * 8, [3.0, 3.0] + [9.0] * 6])
MASK = torch.tensor([[1.0] * 8, [1.0, 1.0] + [0.0] * 6])
EXPECTED = {"token-mean": 1.4, "seq-mean-token-sum": 7.0, "seq-mean-token-mean": 2.0, "fixed": 0.875}


def whole(losses, mask, rule):
    return aggregate(losses, mask, count_denominators(mask), rule, fixed=16.0)


@pytest.mark.parametrize("rule", RULES)
def test_rules(rule):  # A9
    assert whole(LOSSES, MASK, rule).item() == pytest.approx(EXPECTED[rule])


@pytest.mark.parametrize("rule", RULES)
def test_a_fully_masked_row_changes_nothing(rule):  # A10
    losses = torch.cat([LOSSES, torch.full((1, 8), 7.0)])
    mask = torch.cat([MASK, torch.zeros(1, 8)])
    assert whole(losses, mask, rule).item() == pytest.approx(EXPECTED[rule])


@pytest.mark.parametrize("rule", RULES)
def test_shares_add_up_whatever_the_split_and_padding(rule):  # A7
    denominators = count_denominators(MASK)
    first = aggregate(LOSSES[:1], MASK[:1], denominators, rule, fixed=16.0)
    second = aggregate(LOSSES[1:, :3], MASK[1:, :3], denominators, rule, fixed=16.0)  # padded less
    assert (first + second).item() == pytest.approx(EXPECTED[rule])


def test_micro_batch_means_would_be_wrong():  # A7: neither 2.0 nor 0.7
    means = [whole(LOSSES[i : i + 1], MASK[i : i + 1], "token-mean").item() for i in (0, 1)]
    assert sum(means) / 2 == pytest.approx(2.0) != EXPECTED["token-mean"]


@pytest.mark.parametrize("rule", RULES)
def test_gradients_of_shares_add_up(rule):
    generator = torch.Generator().manual_seed(0)
    mask = (torch.rand(6, 5, generator=generator) < 0.6).float()
    mask[3] = 0

    def gradient(parts):
        values = torch.linspace(-1, 2, 30, dtype=torch.float64).reshape(6, 5).requires_grad_(True)
        for rows in parts:
            aggregate(values[rows] ** 2, mask[rows], count_denominators(mask), rule, fixed=30.0).backward()
        return values.grad

    at_once = gradient([[0, 1, 2, 3, 4, 5]])
    for parts in ([[0], [1], [2], [3], [4], [5]], [[5, 0], [3], [1, 2, 4]], [[3, 1, 0], [2, 5, 4]]):
        torch.testing.assert_close(gradient(parts), at_once, atol=1e-15, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_masked_in(rule):  # A11
    values = torch.full((2, 4), float("nan"), requires_grad=True)
    mask = torch.zeros(2, 4)
    share = aggregate(values, mask, count_denominators(mask), rule, fixed=8.0)
    share.backward()
    assert share.item() == 0 and torch.equal(values.grad, torch.zeros(2, 4))
    assert count_denominators(mask) == Denominators(0, 0)


def test_denominators_add_up_over_workers():
    assert count_denominators(MASK[:1]) + count_denominators(MASK[1:]) == count_denominators(MASK) == Denominators(10, 2)


def test_unknown_rule_and_missing_denominator():
    with pytest.raises(ValueError, match="batch-mean"):
        whole(LOSSES, MASK, "batch-mean")
    with pytest.raises(ValueError, match="fixed_denominator"):
        aggregate(LOSSES, MASK, count_denominators(MASK), "fixed")


def test_observation_tokens_do_not_enter_a_mean():  # B8
    values = torch.tensor([[0.1, 0.1, 3.0, 3.0, 0.1, 0.1]])
    mask = torch.tensor([[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]])
    assert whole(values, mask, "token-mean").item() == pytest.approx(0.1)


def test_macro_and_micro():  # E11
    counts = {"a": (24, 24), "b": (9, 18), "c": (31, 31), "d": (10, 23), "e": (21, 21), "f": (8, 17)}
    macro, micro = macro_micro(counts)
    assert round(macro, 4) == 0.7342 and round(micro, 4) == 0.7687
    with pytest.raises(ValueError, match="heat"):
        macro_micro({"heat": (0, 0)})
    with pytest.raises(ValueError, match="any task type"):
        macro_micro({})


def test_metrics_are_weighted_and_skip_empty_micro_batches():  # E8
    means = WeightedMeans()
    for total, count in ((8.0, 8), (0.0, 0), (6.0, 2)):
        means.add("loss", total, count)
    means.add("gate", float("nan"), 0)
    assert means.means() == {"loss": 1.4} and means.counts() == {"loss": 10, "gate": 0}
    other = WeightedMeans()
    other.add_all({"loss": (torch.tensor(6.0), torch.tensor(10)), "gate": (1.0, 2)})
    means.merge(other)
    assert means.means() == {"loss": 1.0, "gate": 0.5} and sorted(means) == ["gate", "loss"]
    with pytest.raises(ValueError, match="negative"):
        means.add("loss", 1.0, -1)


def test_pass_at_k():  # E10
    assert [round(pass_at_k(*x), 4) for x in ((4, 1, 2), (4, 2, 2), (8, 3, 4))] == [0.5, 0.8333, 0.9286]
    assert pass_at_k(4, 0, 2) == 0 and pass_at_k(4, 4, 1) == 1 and pass_at_k(4, 3, 2) == 1
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(2, 1, 3)
