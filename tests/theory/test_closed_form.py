"""The toy instances and golden numbers of the paper's notes, to the digits given."""

import pytest
import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import losses
from seedlab.objective.advantages import group_advantages
from seedlab.theory import closed_form, expectation

PI = torch.tensor([0.10, 0.35, 0.40, 0.15], dtype=torch.float64)
W = torch.tensor([0.20, 0.35, 0.85, 0.70], dtype=torch.float64)
Q = torch.tensor([0.10, 0.30, 0.90, 0.60], dtype=torch.float64)


def rounded(values, digits=4):
    return [round(v, digits) for v in torch.as_tensor(values).tolist()]


def test_reweighted_target():
    r, z = closed_form.target(PI, W)
    assert z.item() == pytest.approx(0.5875, abs=1e-12)
    assert rounded(r) == [0.0340, 0.2085, 0.5787, 0.1787]
    assert (r / PI).argsort(descending=True).tolist() == W.argsort(descending=True).tolist() == [2, 3, 1, 0]
    assert closed_form.kl(r, PI).item() == pytest.approx(0.100, abs=5e-4)


def test_value_alignment():
    assert closed_form.value_gain(PI, W, Q).item() == pytest.approx(0.1290, abs=5e-5)
    assert closed_form.value_covariance(PI, W, Q).item() == pytest.approx(closed_form.value_gain(PI, W, Q).item(), abs=1e-15)


def test_gate_variance_and_the_gradient_norm():
    variance = closed_form.gate_variance(PI, W)
    assert round(variance.item(), 4) == 0.0642
    gradient = closed_form.opd_logit_gradient(PI, W)
    assert closed_form.natural_norm_squared(gradient, PI).item() == pytest.approx(variance.item(), abs=1e-15)


def test_the_trainers_gradient_on_the_toy_instance():
    # Deltas that give the gates W exactly; a term by term check needs no normalised teacher.
    teacher = PI.log() + torch.logit(W) / 5.0
    certain = torch.ones(1, 1, 4, dtype=torch.float64)
    got = expectation.opd_logit_gradient(PI.log()[None], teacher[None, None], certain, 5.0)[0]
    torch.testing.assert_close(got, closed_form.opd_logit_gradient(PI, W), atol=1e-15, rtol=0)
    torch.testing.assert_close(got, PI * (0.5875 - W), atol=1e-15, rtol=0)


def test_staleness_of_one_token():
    now, stale = losses.gate(torch.tensor([0.80, 0.30], dtype=torch.float64), 5.0)
    assert (round(now.item(), 4), round(stale.item(), 4), round((now - stale).item(), 4)) == (0.9820, 0.8176, 0.1644)
    assert (now - stale).item() <= 5.0 / 4 * 0.5 == 0.625


def test_staleness_that_builds_up():
    k = torch.arange(0, 11, 2, dtype=torch.float64)
    gaps = losses.gate(0.3 + 0.05 * k, 5.0) - losses.gate(torch.tensor(0.3, dtype=torch.float64), 5.0)
    assert rounded(gaps) == [0, 0.0632, 0.1066, 0.1350, 0.1531, 0.1644]


def test_walk_through_with_rewards():
    cfg = ObjectiveConfig(advantage_eps=0.0)
    for returns, expected in (([1.0, 0.0], [1.0, -1.0]), ([1.0, 1.0], [0.0, 0.0])):
        assert group_advantages(torch.tensor(returns), torch.tensor([0, 0]), cfg=cfg).advantage_T.tolist() == expected


def test_maximal_coupling():
    p = torch.tensor([[0.5, 1.0], [0.3, 0.0], [0.2, 0.0]], dtype=torch.float64)
    q = torch.tensor([[0.2, 0.0], [0.3, 0.5], [0.5, 0.5]], dtype=torch.float64)
    joint = closed_form.maximal_coupling(p, q)  # [S, S', V]
    torch.testing.assert_close(joint.sum(1), p)
    torch.testing.assert_close(joint.sum(0), q)
    torch.testing.assert_close(torch.diagonal(joint).sum(-1), torch.tensor([0.7, 0.0], dtype=torch.float64))
    same = closed_form.maximal_coupling(p, p)
    assert closed_form.coupled_distance(torch.rand(3, 2).double(), same).abs().max() == 0


def test_off_occupancy_distances():
    p, q = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.9, 0.1]).double()
    assert closed_form.total_variation(p, q).item() == pytest.approx(0.4)
    assert closed_form.kl(torch.tensor([1.0, 0.0]).double(), p).item() == pytest.approx(0.6931, abs=1e-4)
