"""The term over the vocabulary: exact enumeration over a small one, on the functions that training calls."""

from dataclasses import replace

import pytest
import torch
from test_compose import batch, gradient, run

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective.losses import opd_loss
from seedlab.objective.support import expected_gate, support_loss

V, BETA = 7, 5.0


def instance(seed=0):
    """(logits [V], log pi_t [S, V] for S = V skills): skill number v is the one written after v was sampled."""
    g = torch.Generator().manual_seed(seed)
    return torch.randn(V, generator=g, dtype=torch.float64), torch.log_softmax(torch.randn(V, V, generator=g, dtype=torch.float64), -1)


def gradient_of(loss, logits):
    return torch.autograd.grad(loss, logits)[0]


def sampled_expectation(logits, teacher, skill_of):
    """sum_v pi(v) times the gradient of the sampled term of token v with the skill `skill_of(v)`."""
    total = torch.zeros(V, dtype=torch.float64)
    for v in range(V):
        leaf = logits.clone().requires_grad_(True)
        logp = torch.log_softmax(leaf, -1)
        total += logp[v].detach().exp() * gradient_of(opd_loss(logp[v], teacher[skill_of(v), v], BETA).loss, leaf)
    return total


def full_expectation(logits, teacher, skill_of, k=None):
    total = torch.zeros(V, dtype=torch.float64)
    for v in range(V):
        leaf = logits.clone().requires_grad_(True)
        logp = torch.log_softmax(leaf, -1)
        total += logp[v].detach().exp() * gradient_of(support_loss(logp[None], teacher[skill_of(v)][None], BETA, k).sum(), leaf)
    return total


@pytest.mark.parametrize("seed", range(5))
def test_equal_in_expectation_for_a_skill_that_ignores_the_token(seed):
    logits, teacher = instance(seed)
    for skill in range(3):
        sampled = sampled_expectation(logits, teacher, lambda v: skill)
        assert sampled.abs().max() > 1e-2
        torch.testing.assert_close(full_expectation(logits, teacher, lambda v: skill), sampled, atol=1e-14, rtol=0)


@pytest.mark.parametrize("seed", range(5))
def test_another_target_for_a_skill_written_from_the_token(seed):
    logits, teacher = instance(seed)
    own, full = sampled_expectation(logits, teacher, lambda v: v), full_expectation(logits, teacher, lambda v: v)
    assert (full - own).norm() > 0.1 * own.norm()


def test_one_draw_of_the_full_form_has_no_sampling_noise():
    """With one skill for all tokens the full term's gradient is the expectation itself; the sampled one's varies."""
    logits, teacher = instance()
    leaf = logits.clone().requires_grad_(True)
    one = gradient_of(support_loss(torch.log_softmax(leaf, -1)[None], teacher[:1], BETA).sum(), leaf)
    torch.testing.assert_close(one, sampled_expectation(logits, teacher, lambda v: 0), atol=1e-14, rtol=0)


def test_by_hand_and_with_the_value_of_the_sampled_terms_mean():
    p, t = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64), torch.tensor([0.25, 0.5, 0.25], dtype=torch.float64)
    delta = (t / p).log()
    expected = (p * torch.sigmoid(BETA * delta) * delta).sum()
    assert support_loss(p.log()[None], t.log()[None], BETA).item() == pytest.approx(expected.item(), abs=1e-15)


def test_the_head_and_the_rest():
    logits, teacher = instance(3)
    skill = lambda v: 2  # noqa: E731
    full = full_expectation(logits, teacher, skill)
    for k in (V, V + 5):
        assert torch.equal(full_expectation(logits, teacher, skill, k), full)
    errors = [(full_expectation(logits, teacher, skill, k) - full).norm().item() for k in (1, 3, 5, V - 1)]
    assert errors[0] > 1e-3 and errors[-1] < 1e-12  # with V - 1 tokens apart the rest is the last one
    leaf = logits.clone().requires_grad_(True)
    logp = torch.log_softmax(leaf, -1)
    got = gradient_of(support_loss(logp[None], teacher[2][None], BETA, 2).sum(), leaf)
    top = logp.detach().topk(2).indices
    rest = [v for v in range(V) if v not in top]
    p, t = torch.softmax(logits, -1), teacher[2].exp()
    weight = {tuple([v]): p[v] * torch.sigmoid(BETA * (t[v] / p[v]).log()) for v in top.tolist()}
    weight[tuple(rest)] = p[rest].sum() * torch.sigmoid(BETA * (t[rest].sum() / p[rest].sum()).log())
    expected = torch.zeros(V, dtype=torch.float64)
    for part, w in weight.items():
        inside = torch.zeros(V, dtype=torch.float64)
        inside[list(part)] = p[list(part)] / p[list(part)].sum()
        expected -= w * (inside - p)
    torch.testing.assert_close(got, expected, atol=1e-14, rtol=0)


def test_tokens_of_probability_zero_are_harmless():
    logp = torch.log(torch.tensor([[0.5, 0.5, 0.0]], dtype=torch.float64)).requires_grad_(True)
    teacher = torch.log(torch.tensor([[0.0, 0.5, 0.5]], dtype=torch.float64))
    for k in (None, 1):
        loss = support_loss(logp, teacher, BETA, k)
        assert torch.isfinite(loss).all() and torch.isfinite(torch.autograd.grad(loss.sum(), logp)[0]).all()


def test_the_objective_takes_it_in_place_of_the_sampled_term():
    b, cfg = batch(), ObjectiveConfig(opd_coef=0.3, kl_coef=0.0)
    given = (-b.logp.detach() * 2).requires_grad_(True)
    fresh, out = run(replace(b, support=given), cfg)
    (got,) = torch.autograd.grad(out.terms["opd"], given)
    torch.testing.assert_close(got, b.mask_opd / b.mask_opd.sum(), atol=1e-15, rtol=0)
    assert torch.equal(out.gate, run(b, cfg)[1].gate)
    assert not torch.equal(gradient(replace(b, support=given), cfg)[0], gradient(b, cfg)[0])


def test_the_expected_gate_of_an_independent_skill_is_an_unbiased_baseline():
    """b = Z under another skill: sum_v pi (g - b) grad log pi = sum_v pi g grad log pi.  Under the sampled token's own it is not."""
    logits, teacher = instance(1)
    logp = torch.log_softmax(logits, -1)
    pi, score = logp.exp(), torch.eye(V, dtype=torch.float64) - logp.exp()
    z = expected_gate(logp.expand(V, V), teacher, BETA)
    brute = torch.stack([sum(pi[v] * torch.sigmoid(BETA * (teacher[s, v] - logp[v])) for v in range(V)) for s in range(V)])
    torch.testing.assert_close(z, brute, atol=1e-15, rtol=0)
    own = torch.sigmoid(BETA * (teacher.diagonal() - logp))  # g(v) with the skill written from v
    plain = (pi * own) @ score
    torch.testing.assert_close((pi * (own - z[4])) @ score, plain, atol=1e-15, rtol=0)
    assert ((pi * (own - z)) @ score - plain).abs().max() > 1e-3
