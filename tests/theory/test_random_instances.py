"""The same statements as property tests, which shrink a failure to a minimal counterexample."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seedlab.theory import closed_form, expectation

number = st.floats(-4, 4, allow_nan=False).map(lambda x: round(x, 3))


@st.composite
def instances(draw):
    """(logits [1, V], teacher log-probs [1, S, V], P(s | v) [1, S, V], beta)."""
    v, s = draw(st.integers(2, 6)), draw(st.integers(1, 3))

    def tensor(*shape):
        count = int(torch.tensor(shape).prod())
        return torch.tensor(draw(st.lists(number, min_size=count, max_size=count)), dtype=torch.float64).reshape(shape)

    logits = tensor(1, v)
    return logits, torch.log_softmax(logits[:, None] + tensor(1, s, v), -1), torch.softmax(tensor(1, s, v), 1), draw(
        st.floats(0.1, 20)
    )


def gates(logits, teacher, beta):
    return torch.sigmoid(beta * (teacher - torch.log_softmax(logits, -1)[:, None]))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(instances())
def test_proposition_1_and_2(instance):
    logits, teacher, skill, beta = instance
    pi = torch.softmax(logits, -1)
    w = closed_form.mean_gate(gates(logits, teacher, beta), skill)
    gradient = expectation.opd_logit_gradient(logits, teacher, skill, beta)
    torch.testing.assert_close(gradient, closed_form.opd_logit_gradient(pi, w), atol=1e-12, rtol=0)
    r, z = closed_form.target(pi, w)
    leaf = logits.clone().requires_grad_(True)
    (by_kl,) = torch.autograd.grad((z * closed_form.kl(r, torch.softmax(leaf, -1))).sum(), leaf)
    torch.testing.assert_close(gradient, by_kl, atol=1e-12, rtol=0)
    torch.testing.assert_close(
        closed_form.natural_norm_squared(gradient, pi), closed_form.gate_variance(pi, w), atol=1e-12, rtol=0
    )
    assert gradient.sum().abs() < 1e-12  # a softmax gradient adds up to nothing


@settings(max_examples=60, deadline=None, derandomize=True)
@given(instances(), st.integers(0, 2**31 - 1))
def test_value_alignment_and_staleness(instance, seed):
    logits, teacher, skill, beta = instance
    generator = torch.Generator().manual_seed(seed)
    pi, gate = torch.softmax(logits, -1), gates(logits, teacher, beta)
    w = closed_form.mean_gate(gate, skill)
    q = torch.randn(pi.shape, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        closed_form.value_gain(pi, w, q), closed_form.value_covariance(pi, w, q), atol=1e-12, rtol=0
    )
    other = torch.softmax(torch.randn(skill.shape, generator=generator, dtype=torch.float64), 1)
    gap = (
        expectation.opd_logit_gradient(logits, teacher, skill, beta)
        - expectation.opd_logit_gradient(logits, teacher, other, beta)
    ).norm()
    joint = closed_form.maximal_coupling(skill, other)
    largest = closed_form.score_norms(pi).max()
    by_gate = largest * (pi * closed_form.coupled_distance(gate, joint)).sum()
    delta = teacher - torch.log_softmax(logits, -1)[:, None]
    by_delta = beta / 4 * largest * (pi * closed_form.coupled_distance(delta, joint)).sum()
    assert gap <= by_gate + 1e-12 <= by_delta + 2e-12


def test_a_skill_that_ignores_the_token_is_a_different_estimator():
    # w conditions on Y = v: replacing P(s | v) by the marginal P(s) changes the gradient (paper section 6).
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    logits = normal(50, 4)
    teacher = torch.log_softmax(logits[:, None] + normal(50, 3, 4), -1)
    skill = torch.softmax(5 * normal(50, 3, 4), 1)
    marginal = (skill * torch.softmax(logits, -1)[:, None]).sum(-1, keepdim=True).expand_as(skill)
    own, independent = (expectation.opd_logit_gradient(logits, teacher, s, 5.0) for s in (skill, marginal))
    distance = (own - independent).norm(dim=-1) / own.norm(dim=-1)
    assert distance.median() > 0.1
    # Where the analyzer does not look at the token, the two agree.
    same = expectation.opd_logit_gradient(logits, teacher, marginal.clone(), 5.0)
    assert torch.equal(same, independent)
