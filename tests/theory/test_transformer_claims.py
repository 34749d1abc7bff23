import pytest
import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.theory import transformer


@pytest.fixture(scope="module")
def world():
    return transformer.make_world(0, 5.0)


def test_the_enumeration_is_complete(world):
    # 1 ending token after each of 1, 6 and 36 open prefixes, and 216 trajectories cut at three tokens.
    assert len(world.every.tokens) == 1 + 6 + 36 + 216
    assert world.probability.sum().item() == pytest.approx(1.0, abs=1e-12)
    assert len(transformer.contexts(world.every)) == 1 + 6 + 36
    torch.testing.assert_close(world.skill_now.sum(1), torch.ones(259).double())
    assert (world.skill_now - world.skill_now[0]).abs().max() > 0.05  # skills depend on the trajectory


def test_sequence_bias_is_the_trainers(world):
    """The bias of a token mean over one row, from lengths, against the trainer's own token mean of single rows."""
    cfg = ObjectiveConfig(opd_coef=1.0, kl_coef=0.0, beta=5.0, aggregation="seq-mean-token-mean")
    rows = transformer.SKILLS * len(world.every.tokens)
    per_row = transformer.trainer_coefficients(world, cfg) * rows  # the mean over rows is taken back
    weight = world.probability[:, None] * world.skill_now
    mean = transformer.gradient(world, (weight.T[..., None] * per_row).sum(0))
    tokens = (world.probability * world.every.lengths).sum()
    exact = transformer.trainer_gradient(world, world.skill_now) / tokens
    bias = ((mean - exact).norm() / exact.norm()).item()
    assert transformer.mean_bias(world, 1) == pytest.approx(bias, rel=1e-6)
    assert transformer.mean_bias(world, 64) < transformer.mean_bias(world, 8) < bias


def test_a_wrong_analyzer_is_noticed(world):
    # Were the skill independent of the trajectory, the right-hand side would differ: the claim has teeth.
    average = (world.probability[:, None] * world.skill_now).sum(0).expand_as(world.skill_now)
    right = transformer.distillation_gradient(world)
    assert (transformer.trainer_gradient(world, average) - right).norm() > 1e-3 * right.norm()
