"""The claims on random instances, in float64: distributions, skills, values and groups drawn in bulk.

Instances come in chunks that share a vocabulary size, a number of skills and beta; near-degenerate ones (a token that
holds almost all mass, skills that change nothing, analyzers that always write the same skill) are among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.theory import closed_form, expectation
from seedlab.theory.claims import ClaimResult, Tally

CHUNK = 100
CONTEXTS = 5  # contexts over which an occupancy is a distribution


@dataclass(frozen=True)
class Instances:
    """B token distributions with S skills: `logits` [B, V], teacher log-probs [B, S, V], the current and an earlier
    analyzer's P(s | v) [B, S, V], values Q and a reference policy's log-probs [B, V]."""

    logits: torch.Tensor
    logp_teacher: torch.Tensor
    skill_now: torch.Tensor
    skill_before: torch.Tensor
    value: torch.Tensor
    logp_ref: torch.Tensor
    beta: float

    @property
    def logp(self) -> torch.Tensor:
        return torch.log_softmax(self.logits, -1)

    @property
    def delta(self) -> torch.Tensor:
        return self.logp_teacher - self.logp[:, None, :]

    @property
    def gate(self) -> torch.Tensor:
        # Written out, not taken from the objective: the claims compare the objective with this.
        return 1.0 / (1.0 + torch.exp(-self.beta * self.delta))


def draw(generator: torch.Generator, count: int, vocabulary: int, skills: int, beta: float) -> Instances:
    """Random instances; the spread of each differs, so that flat and near-degenerate ones both occur."""

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def pick(values):
        index = torch.randint(len(values), (count,), generator=generator)
        return torch.tensor(values, dtype=torch.float64)[index]

    logits = normal(count, vocabulary) * pick([0.0, 0.5, 2.0, 8.0])[:, None]
    shift = normal(count, skills, vocabulary) * pick([0.0, 0.1, 1.0, 3.0])[:, None, None]
    sharp = pick([0.0, 1.0, 5.0, 200.0])[:, None, None]  # 200: one skill per token, for certain
    return Instances(
        logits=logits,
        logp_teacher=torch.log_softmax(logits[:, None, :] + shift, -1),
        skill_now=torch.softmax(sharp * normal(count, skills, vocabulary), 1),
        skill_before=torch.softmax(sharp * normal(count, skills, vocabulary), 1),
        value=normal(count, vocabulary),
        logp_ref=torch.log_softmax(logits + normal(count, vocabulary) * pick([0.0, 0.3, 1.5])[:, None], -1),
        beta=beta,
    )


def chunks(generator: torch.Generator, instances: int, vocabulary: int, beta: float | None):
    """Yields `Instances` until `instances` were drawn; vocabulary sizes 2 .. `vocabulary`, beta 0 .. 20 unless given."""
    left = instances
    while left > 0:
        size = int(torch.randint(2, vocabulary + 1, (), generator=generator))
        skills = int(torch.randint(1, 6, (), generator=generator))
        drawn = 20.0 * torch.rand((), generator=generator).item()
        yield draw(generator, min(left, CHUNK), size, skills, drawn if beta is None else beta)
        left -= CHUNK


def claims(seed: int, instances: int, vocabulary: int, beta: float | None = None) -> list[ClaimResult]:
    """Propositions 1-3, Eq. 8, the softmax identity and the KL estimators on `instances` random instances."""
    tallies = _tallies()
    generator = torch.Generator().manual_seed(seed)
    for x in chunks(generator, instances, vocabulary, beta):
        _proposition_1(x, tallies, generator)
        _value_and_proposition_2(x, tallies)
        _proposition_3(x, tallies)
        _softmax_and_kl(x, tallies)
    return [tally.result() for tally in tallies.values()]


def _tallies() -> dict[str, Tally]:
    rows = [
        ("target-is-a-distribution", "r_k = pi_k w_k / Z_k, sum_v r_k = 1, r_k >= 0", 1e-12),
        ("target-follows-the-gate", "r_k / pi_k increases with w_k", 1e-12),
        ("opd-gradient-closed-form", "E[dL_opd/dz(v)] = pi(v) Z_k - pi(v) w_k(v)", 1e-12),
        ("opd-gradient-is-a-kl-gradient", "grad L_opd = Z_k grad KL(r_k || pi), by central differences", 1e-7),
        ("off-occupancy-total-variation", "|E_d[G] - E_d'[G]| <= 2 TV(d, d') max|G|", 1e-12),
        ("off-occupancy-pinsker", "2 TV(d, d') max|G| <= sqrt(2 KL(d || d')) max|G|", 1e-12),
        ("value-alignment", "E_r[Q] - E_pi[Q] = Cov_pi(Q, w) / Z_k (Eq. 8)", 1e-11),
        ("opd-norm-is-gate-variance", "sum_v a(v)^2 / pi(v) = Var_pi[w_k]", 1e-12),
        ("opd-vanishes-for-constant-gate", "w_k constant => grad L_opd = 0", 1e-14),
        ("staleness-by-gate-gap", "|U_k(A_k) - U_k(A_j)| <= G E|g_kk - g_kj|", 1e-12),
        ("staleness-by-delta-gap", "G E|g_kk - g_kj| <= (beta G / 4) E|D_kk - D_kj|", 1e-12),
        ("staleness-zero-when-synchronised", "A_j = A_k => U_k(A_k) = U_k(A_j) and the bound is 0", 0.0),
        ("softmax-identity", "d[-log p(u)]/dz(v) = p(v) - 1{u = v}", 1e-14),
        ("k1-in-the-loss-has-no-gradient", "E[grad k1] = 0", 1e-12),
        ("k2-in-the-loss-descends-kl-to-reference", "E[grad k2] = grad KL(pi_theta || pi_ref)", 1e-12),
        ("k3-in-the-loss-descends-kl-from-reference", "E[grad k3] = grad KL(pi_ref || pi_theta)", 1e-12),
    ]
    return {name: Tally(name, equation, tolerance) for name, equation, tolerance in rows}


def _proposition_1(x: Instances, tallies: dict[str, Tally], generator: torch.Generator) -> None:
    count, pi = len(x.logits), x.logp.exp()
    w = closed_form.mean_gate(x.gate, x.skill_now)
    r, z = closed_form.target(pi, w)
    negative = (-r).clamp(min=0).max(-1).values
    tallies["target-is-a-distribution"].identity(r.sum(-1) + negative, torch.ones(count, dtype=r.dtype), count)

    ordered = torch.gather(r / pi, -1, w.argsort(-1))
    fall = (ordered[:, :-1] - ordered[:, 1:]).clamp(min=0) / ordered[:, 1:]
    tallies["target-follows-the-gate"].error(fall.max().item(), count)

    trainer = expectation.opd_logit_gradient(x.logits, x.logp_teacher, x.skill_now, x.beta)
    tallies["opd-gradient-closed-form"].identity(trainer, closed_form.opd_logit_gradient(pi, w), count)

    # Central differences of the right-hand side along a random direction, r and Z held at theta_k.
    direction = torch.randn(x.logits.shape, generator=generator, dtype=x.logits.dtype)
    direction = direction / direction.norm(dim=-1, keepdim=True)
    step = 1e-4
    ahead, behind = (z * closed_form.kl(r, torch.softmax(x.logits + s * direction, -1)) for s in (step, -step))
    tallies["opd-gradient-is-a-kl-gradient"].identity((trainer * direction).sum(-1), (ahead - behind) / (2 * step), count)

    # CONTEXTS instances at a time share their logits' coordinates and are CONTEXTS times reached by two occupancies.
    whole = count - count % CONTEXTS
    if whole:
        gradients = trainer[:whole].reshape(-1, CONTEXTS, trainer.shape[-1]).repeat_interleave(CONTEXTS, 0)
        noise = torch.randn(2, whole, CONTEXTS, generator=generator, dtype=trainer.dtype)
        d, other = torch.softmax(noise[0], -1), torch.softmax(noise[0] + noise[1] * noise[1, :, :1].abs(), -1)
        gap = ((d - other)[..., None] * gradients).sum(1).norm(dim=-1)
        largest = gradients.norm(dim=-1).max(-1).values
        by_tv = 2 * closed_form.total_variation(d, other) * largest
        tallies["off-occupancy-total-variation"].bound(gap, by_tv, whole)
        by_kl = (2 * closed_form.kl(d, other).clamp(min=0)).sqrt() * largest
        tallies["off-occupancy-pinsker"].bound(by_tv, by_kl, whole)


def _value_and_proposition_2(x: Instances, tallies: dict[str, Tally]) -> None:
    count, pi = len(x.logits), x.logp.exp()
    w = closed_form.mean_gate(x.gate, x.skill_now)
    gain, covariance = closed_form.value_gain(pi, w, x.value), closed_form.value_covariance(pi, w, x.value)
    scale = (x.value.abs().max(-1).values).clamp(min=1.0)
    tallies["value-alignment"].identity(gain / scale, covariance / scale, count)

    trainer = expectation.opd_logit_gradient(x.logits, x.logp_teacher, x.skill_now, x.beta)
    tallies["opd-norm-is-gate-variance"].identity(
        closed_form.natural_norm_squared(trainer, pi), closed_form.gate_variance(pi, w), count
    )
    # A skill that changes nothing has the gate 1/2 on every token: the one constant that a softmax teacher can reach.
    unchanged = x.logp[:, None, :].expand_as(x.logp_teacher)
    flat = expectation.opd_logit_gradient(x.logits, unchanged, x.skill_now, x.beta)
    tallies["opd-vanishes-for-constant-gate"].error(flat.abs().max().item(), count)


def _proposition_3(x: Instances, tallies: dict[str, Tally]) -> None:
    count, pi = len(x.logits), x.logp.exp()
    now = expectation.opd_logit_gradient(x.logits, x.logp_teacher, x.skill_now, x.beta)
    before = expectation.opd_logit_gradient(x.logits, x.logp_teacher, x.skill_before, x.beta)
    largest = closed_form.score_norms(pi).max(-1).values
    joint = closed_form.maximal_coupling(x.skill_now, x.skill_before)
    gate_gap = (pi * closed_form.coupled_distance(x.gate, joint)).sum(-1)
    delta_gap = (pi * closed_form.coupled_distance(x.delta, joint)).sum(-1)
    tallies["staleness-by-gate-gap"].bound((now - before).norm(dim=-1), largest * gate_gap, count)
    tallies["staleness-by-delta-gap"].bound(largest * gate_gap, x.beta / 4 * largest * delta_gap, count)

    again = expectation.opd_logit_gradient(x.logits, x.logp_teacher, x.skill_now.clone(), x.beta)
    same = closed_form.maximal_coupling(x.skill_now, x.skill_now)
    bound = (pi * closed_form.coupled_distance(x.gate, same)).sum(-1)
    tallies["staleness-zero-when-synchronised"].error(max((now - again).abs().max().item(), bound.max().item()), count)


def _softmax_and_kl(x: Instances, tallies: dict[str, Tally]) -> None:
    count, pi = len(x.logits), x.logp.exp()
    # One sampled token u with advantage 1 at theta_old: the policy term is -log p(u), whose coefficient is -1 on u.
    sampled = torch.zeros_like(pi).scatter(-1, x.value.argmax(-1)[:, None], 1.0)
    coefficients = expectation.token_coefficients("policy", x.logp, ObjectiveConfig(kl_coef=0.0), advantage=sampled)
    leaf = x.logits.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad((coefficients * torch.log_softmax(leaf, -1)).sum(), leaf)
    tallies["softmax-identity"].identity(gradient, pi - sampled, count)

    ref = x.logp_ref.exp()
    found = {kind: expectation.kl_logit_gradient(x.logits, x.logp_ref, kind) for kind in ("k1", "k2", "k3")}
    tallies["k1-in-the-loss-has-no-gradient"].error(found["k1"].abs().max().item(), count)
    tallies["k2-in-the-loss-descends-kl-to-reference"].identity(found["k2"], closed_form.reverse_kl_gradient(pi, ref), count)
    tallies["k3-in-the-loss-descends-kl-from-reference"].identity(found["k3"], closed_form.forward_kl_gradient(pi, ref), count)
