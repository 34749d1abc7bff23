"""The forms of the distillation term against closed forms, finite differences and the enumerated softmax."""

from dataclasses import replace

import pytest
import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import losses
from seedlab.objective.compose import TokenBatch, minibatch_denominators, objective
from seedlab.objective.distillation import FORMS, distil, log_ratio, ratio_k3

WITHOUT_GATE = ("log_ratio", "ratio_k3")


def t(*values):
    return torch.tensor(values, dtype=torch.float64)


def logits(seed, size=7):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(3, size, generator=g, dtype=torch.float64)


def slope(form, student, teacher, old):
    leaf = student.clone().requires_grad_(True)
    (exact,) = torch.autograd.grad(distil(form, leaf, teacher, old, 5.0).loss.sum(), leaf)
    return exact


def test_values_by_hand():
    student, teacher, old = t(-1.0, -2.0), t(-1.5, -1.0), t(-1.2, -2.0)
    assert log_ratio(student, teacher).loss.tolist() == [0.5, -1.0]
    assert log_ratio(student, teacher).coefficient.tolist() == [-0.5, 1.0]
    found = ratio_k3(student, teacher, old)
    # d = .5 and -1: k3 = e^-.5 - 1 + .5 and e - 2; rho = e^.2 and 1
    torch.testing.assert_close(found.loss, t(1.2214027582 * 0.1065306597, 0.7182818285), atol=1e-10, rtol=0)
    torch.testing.assert_close(found.coefficient, t(-1.2214027582 * 0.5, 1.0), atol=1e-10, rtol=0)
    assert found.delta.tolist() == [-0.5, 1.0]
    assert found.gate is None and log_ratio(student, teacher).gate is None
    with pytest.raises(ValueError, match="opd_form='kl'; choose one of gate, log_ratio, ratio_k3"):
        distil("kl", student, teacher, old, 5.0)


@pytest.mark.parametrize("form", FORMS)
def test_the_coefficient_is_minus_the_gradient(form):
    g = torch.Generator().manual_seed(4)
    student, teacher, old = (-2 + 8 * torch.randn(3, 400, generator=g, dtype=torch.float64)).unbind()
    found = distil(form, student, teacher, old, 5.0)
    assert ((student - teacher).abs() > 20).any() and ((student - old).abs() > 10).any()  # both limits are met
    torch.testing.assert_close(slope(form, student, teacher, old), -found.coefficient, atol=1e-12, rtol=1e-7)
    assert not found.delta.requires_grad and not found.coefficient.requires_grad
    torch.testing.assert_close(found.delta, teacher - student)


def test_ratio_k3_against_finite_differences_and_its_closed_form():
    g = torch.Generator().manual_seed(5)
    student, teacher, old = (-2 + torch.randn(3, 100, generator=g, dtype=torch.float64)).unbind()
    h = 1e-6
    moved = [ratio_k3(student + s, teacher, old).loss for s in (h, -h)]
    exact = slope("ratio_k3", student, teacher, old)
    torch.testing.assert_close((moved[0] - moved[1]) / (2 * h), exact, atol=1e-7, rtol=0)
    torch.testing.assert_close(exact, torch.exp(student - old) * (student - teacher))


def test_limits():
    found = ratio_k3(t(-40.0, -1.0, -1.0), t(-1.0, -40.0, -1.0), t(-40.0, -1.0, -30.0))
    torch.testing.assert_close(found.loss, t(torch.e**20 - 21, torch.e**-20 + 19, 0.0), rtol=1e-12, atol=0)
    extreme = torch.tensor([-1e4, 0.0], requires_grad=True)
    ratio_k3(extreme, torch.tensor([0.0, -1e4]), torch.tensor([0.0, -1e4])).loss.sum().backward()
    assert torch.isfinite(extreme.grad).all()


@pytest.mark.parametrize("form", WITHOUT_GATE)
def test_the_expected_gradient_is_that_of_kl_to_the_teacher(form):
    """Enumerated over the vocabulary: tokens of theta_old, which for `log_ratio` has to be the student itself."""
    z, teacher, old = logits(1).unbind()
    logq = torch.log_softmax(teacher, 0)
    logo = torch.log_softmax(z if form == "log_ratio" else old, 0)
    leaf = z.clone().requires_grad_(True)
    logp = torch.log_softmax(leaf, 0)
    divergence = (logp.exp() * (logp - logq)).sum()
    (expected,) = torch.autograd.grad(divergence, leaf, retain_graph=True)
    value = (logo.exp() * distil(form, logp, logq, logo, 5.0).loss).sum()
    (got,) = torch.autograd.grad(value, leaf)
    torch.testing.assert_close(got, expected, atol=1e-13, rtol=0)
    assert value.item() == pytest.approx(divergence.item(), abs=1e-13)
    # a frozen ratio would descend the other divergence: the oracle tells them apart
    if form == "ratio_k3":
        logp = torch.log_softmax(leaf, 0)
        k3 = losses.kl_estimate(logp, logq, "k3")
        (frozen,) = torch.autograd.grad((logo.exp() * torch.exp(logp - logo).detach() * k3).sum(), leaf)
        assert (frozen - expected).abs().max() > 1e-2


@pytest.mark.parametrize("form", WITHOUT_GATE)
def test_a_teacher_that_agrees_gives_nothing(form):
    logp = torch.randn(50)
    assert not slope(form, logp, logp.clone(), logp - 0.3).any()
    assert not distil(form, logp, logp.clone(), logp - 0.3, 5.0).loss.any()


def batch(dtype=torch.float64):
    g = torch.Generator().manual_seed(2)

    def noise():
        return torch.randn(6, 5, generator=g, dtype=dtype)

    logp = -1.5 + 0.3 * noise()
    mask = (torch.rand(6, 5, generator=g) < 0.7).to(dtype)
    return TokenBatch(logp, logp + 0.2 * noise(), logp + 0.4 * noise(), logp + 0.4 * noise(), None, noise(), mask, mask * (torch.arange(6) % 3 != 1)[:, None])


@pytest.mark.parametrize("form", FORMS)
def test_in_the_objective_splits_and_masks_change_nothing(form):
    cfg = ObjectiveConfig(opd_form=form, opd_coef=0.3, kl_coef=0.0, rl_coef=0.0)
    b = batch()
    denominators = minibatch_denominators(b.mask_policy, b.mask_opd, cfg)

    def gradient(parts, b):
        leaf = b.logp.clone().requires_grad_(True)
        for rows in parts:
            piece = TokenBatch(*(None if v is None else v[rows] for v in vars(replace(b, logp=leaf)).values()))
            objective(piece, denominators, cfg).loss.backward()
        return leaf.grad

    whole = gradient([[0, 1, 2, 3, 4, 5]], b)
    torch.testing.assert_close(gradient([[4], [0, 2], [1, 3, 5]], b), whole, atol=1e-15, rtol=0)
    hidden = torch.where(b.mask_opd == 0, torch.full_like(b.logp, float("nan")), b.logp_teacher)
    assert torch.equal(gradient([[0, 1, 2, 3, 4, 5]], replace(b, logp_teacher=hidden)), whole)
    out = objective(b, denominators, cfg)
    torch.testing.assert_close(out.net_coefficient, -whole * denominators.opd.tokens)
    assert (out.gate is None) == (form != "gate")
    assert ("gate" in out.sums) == (form == "gate")


@pytest.mark.parametrize("form", FORMS)
def test_lambda_0_is_grpo_to_the_bit(form):
    b = batch(torch.float32)
    grads = []
    for cfg, teacher in ((ObjectiveConfig(opd_form=form, opd_coef=0.0), b.logp_teacher), (ObjectiveConfig(opd_coef=0.0), None)):
        leaf = b.logp.clone().requires_grad_(True)
        objective(replace(b, logp=leaf, logp_teacher=teacher), minibatch_denominators(b.mask_policy, b.mask_opd), cfg).loss.backward()
        grads.append(leaf.grad)
    assert torch.equal(*grads)


def test_beta_0_has_no_use_for_the_teacher():
    b, cfg = batch(), ObjectiveConfig(beta=0.0, opd_coef=0.01)
    denominators = minibatch_denominators(b.mask_policy, b.mask_opd)
    for teacher in (b.logp_teacher, b.logp_teacher - 3.0):
        out = objective(replace(b, logp_teacher=teacher), denominators, cfg)
        assert set(out.gate[b.mask_opd > 0].tolist()) == {0.5}
