import pytest
import torch

from seedlab.objective import losses

BETA = 5.0


def t(*values):
    return torch.tensor(values, dtype=torch.float64)


def slope(function, x):
    """Autograd and central differences of sum(function(x)), both [n]."""
    leaf = x.clone().requires_grad_(True)
    (exact,) = torch.autograd.grad(function(leaf).sum(), leaf)
    h = 1e-6
    return exact, (function(x + h) - function(x - h)) / (2 * h)


def expected_gradient(theta, per_token):
    """Gradient in logits [V] of E_{v ~ sg pi_theta}[per_token(log pi_theta(v))]."""
    logits = theta.clone().requires_grad_(True)
    logp = torch.log_softmax(logits, 0)
    (gradient,) = torch.autograd.grad((logp.detach().exp() * per_token(logp)).sum(), logits)
    return gradient


def test_kl_estimates():  # A12
    p, q = t(-1, -2, -0.5, -1.3), t(-2, -1, -3, -1.3)
    assert losses.kl_estimate(p, q, "k1").tolist() == [1, -1, 2.5, 0]
    assert losses.kl_estimate(p, q, "k2").tolist() == [0.5, 0.5, 3.125, 0]
    torch.testing.assert_close(losses.kl_estimate(p, q, "k3"), t(0.36787944, 0.71828183, 1.582085, 0), atol=1e-8, rtol=0)
    with pytest.raises(ValueError, match="k4"):
        losses.kl_estimate(p, q, "k4")


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_estimates_stay_finite(kind):  # A12
    logp = torch.tensor([-30.0, -1.0, -1e4, -0.0], requires_grad=True)
    value = losses.kl_estimate(logp, torch.tensor([-1.0, -30.0, 0.0, -1e4]), kind)
    value.sum().backward()
    assert torch.isfinite(value).all() and torch.isfinite(logp.grad).all()
    assert torch.isfinite(logp.grad.square().sum())


def test_which_divergence_each_estimator_descends():
    generator = torch.Generator().manual_seed(0)
    theta, reference = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    logq = torch.log_softmax(reference, 0)
    logits = theta.clone().requires_grad_(True)
    logp = torch.log_softmax(logits, 0)
    (reverse,) = torch.autograd.grad((logp.exp() * (logp - logq)).sum(), logits, retain_graph=True)  # KL(theta || ref)
    (forward,) = torch.autograd.grad((logq.exp() * (logq - logp)).sum(), logits)  # KL(ref || theta)
    got = {k: expected_gradient(theta, lambda lp, k=k: losses.kl_estimate(lp, logq, k)) for k in ("k1", "k2", "k3")}
    torch.testing.assert_close(got["k1"], torch.zeros_like(theta), atol=1e-14, rtol=0)
    torch.testing.assert_close(got["k2"], reverse, atol=1e-13, rtol=0)
    torch.testing.assert_close(got["k3"], forward, atol=1e-13, rtol=0)
    assert (reverse - forward).abs().max() > 1e-2  # the two are told apart


def test_kl_values_are_those_of_the_closed_form():
    theta, logq = torch.log_softmax(torch.arange(5.0), 0).double(), torch.log_softmax(-torch.arange(5.0), 0).double()
    exact = (theta.exp() * (theta - logq)).sum()
    for kind in ("k1", "k3"):
        assert (theta.exp() * losses.kl_estimate(theta, logq, kind)).sum() == pytest.approx(exact.item(), abs=1e-12)


def test_truncated_importance_ratio():  # A16
    trainer, rollout = t(0.5, 0.3, 0.09).log(), t(0.25, 0.3, 0.10).log()
    result = losses.truncated_importance_ratio(trainer, rollout, 1.5)
    torch.testing.assert_close(result.ratio, t(1.5, 1, 0.9))
    assert result.raw_maximum.item() == pytest.approx(2.0) and result.modified_fraction.item() == pytest.approx(1 / 3)
    masked = losses.truncated_importance_ratio(trainer, rollout, 1.5, mask=t(0, 1, 1))
    assert masked.raw_maximum.item() == pytest.approx(1.0) and masked.modified_fraction.item() == 0
    assert losses.truncated_importance_ratio(trainer, rollout, 1.5, mask=t(0, 0, 0)).modified_fraction.isnan()


def test_policy_loss_by_hand():
    ratio, advantage = t(1.0, 1.5, 0.5, 1.5, 0.5, 4.0), t(1, 1, 1, -1, -1, -1)
    result = losses.policy_loss(ratio.log(), torch.zeros_like(ratio), advantage, 0.2, 0.2, 3.0)
    torch.testing.assert_close(result.loss, t(-1, -1.2, -0.5, 1.5, 0.8, 3.0))
    assert result.clipped.tolist() == [False, True, False, False, True, True]
    torch.testing.assert_close(result.coefficient, t(1, 0, 0.5, -1.5, 0, 0))
    assert losses.policy_loss(ratio.log(), 0 * ratio, advantage, 0.2, 0.2, None).loss[-1].item() == pytest.approx(4.0)
    with pytest.raises(ValueError, match="dual_clip"):
        losses.policy_loss(ratio, ratio, advantage, 0.2, 0.2, 1.0)


def test_asymmetric_clip():
    result = losses.policy_loss(t(1.25, 0.75).log(), t(0, 0), t(1, -1), 0.2, 0.3, None)
    torch.testing.assert_close(result.loss, t(-1.25, 0.8))


def test_policy_gradient_is_minus_the_coefficient():
    generator = torch.Generator().manual_seed(1)
    logp = torch.randn(200, generator=generator, dtype=torch.float64)
    advantage = torch.randn(200, generator=generator, dtype=torch.float64)

    def loss(x):
        return losses.policy_loss(x, torch.zeros_like(x), advantage, 0.2, 0.2, 3.0).loss

    exact, numeric = slope(loss, logp)
    torch.testing.assert_close(exact, numeric, atol=1e-7, rtol=0)
    torch.testing.assert_close(exact, -losses.policy_loss(logp, 0 * logp, advantage, 0.2, 0.2, 3.0).coefficient)


def test_zero_advantage_gives_zero_and_extreme_ratios_stay_finite():
    logp = torch.tensor([-1.0, 200.0, -200.0], requires_grad=True)
    result = losses.policy_loss(logp, torch.zeros(3), torch.zeros(3), 0.2, 0.2, 3.0)
    result.loss.sum().backward()
    assert result.loss.abs().max() == 0 and logp.grad.abs().max() == 0
    extreme = losses.policy_loss(torch.tensor([200.0]), torch.zeros(1), torch.tensor([-1.0]), 0.2, 0.2, None)
    assert torch.isfinite(extreme.loss).all() and extreme.coefficient.item() == 0


GATES = {1: [0.5250, 0.5744, 0.6225, 0.6900], 5: [0.6225, 0.8176, 0.9241, 0.9820],
         10: [0.7311, 0.9526, 0.9933, 0.9997], 20: [0.8808, 0.9975, 1.0000, 1.0000]}


@pytest.mark.parametrize("beta", GATES)
def test_gate_table(beta):  # paper.md section 6
    assert [round(g, 4) for g in losses.gate(t(0.10, 0.30, 0.50, 0.80), beta).tolist()] == GATES[beta]


def test_gate_of_the_walk_through():  # paper.md section 6
    assert [round(g, 4) for g in losses.gate(t(0.02, -0.5, -1.5), 5).tolist()] == [0.5250, 0.0759, 0.0006]
    assert losses.gate(t(0, 3.0), 0.0).tolist() == [0.5, 0.5]


def test_gate_sensitivity():  # paper.md section 6
    moves = {b: (losses.gate(t(0.15), b) - losses.gate(t(0.10), b)).item() for b in (1, 10)}
    assert round(moves[1], 4) == 0.0125 and round(moves[10], 4) == 0.0865


def test_opd_gradient_is_minus_the_gate():
    student, teacher = t(-1.2, -0.3, -2.0), t(-0.4, -0.8, -2.0)
    live, shadow = student.clone().requires_grad_(True), teacher.clone().requires_grad_(True)
    result = losses.opd_loss(live, shadow, BETA)
    result.loss.sum().backward()
    expected = torch.sigmoid(BETA * (teacher - student))
    torch.testing.assert_close(live.grad, -expected)
    assert shadow.grad is None and not result.gate.requires_grad and not result.delta.requires_grad
    torch.testing.assert_close(result.loss.detach(), expected * (teacher - student))
    # Finite differences with the stopped parts held: the loss as a function of the live l_s alone.
    h = 1e-6
    held = [(expected * (teacher - (student + s))).sum().item() for s in (h, -h)]
    assert (held[0] - held[1]) / (2 * h) == pytest.approx(live.grad.sum().item(), abs=1e-8)


@pytest.mark.parametrize("mutant", ["live gate", "live delta", "flipped"])
def test_the_gradient_test_catches_a_broken_opd(mutant):
    student, teacher = t(-1.2).requires_grad_(True), t(-0.4)
    delta = teacher - student
    gate = losses.gate(delta.detach(), BETA)
    loss = {"live gate": losses.gate(delta, BETA) * delta, "flipped": -gate * delta,
            "live delta": losses.gate(delta, BETA) * delta.detach()}[mutant]
    loss.sum().backward()
    assert (student.grad + gate).abs().item() > 1e-2


def test_a_token_that_the_skill_left_alone():  # C4
    logp = torch.randn(50)
    result = losses.opd_loss(logp, logp.clone(), BETA)
    assert torch.equal(result.delta, torch.zeros(50)) and torch.equal(result.gate, torch.full((50,), 0.5))


def test_where():
    mask, tied, success = torch.ones(3, 2), torch.tensor([True, False, False]), torch.tensor([True, True, False])
    rows = {w: losses.opd_where_mask(mask, w, tied=tied, success=success)[:, 0].tolist() for w in
            ("all", "tied", "successes", "failures")}
    assert rows == {"all": [1, 1, 1], "tied": [1, 0, 0], "successes": [1, 1, 0], "failures": [0, 0, 1]}
    assert losses.opd_where_mask(torch.tensor([1.0, 0.0, 1.0]), "successes", tied=tied, success=success).tolist() == [1, 0, 0]
    with pytest.raises(ValueError, match="sometimes"):
        losses.opd_where_mask(mask, "sometimes", tied=tied, success=success)
