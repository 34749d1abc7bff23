"""The right-hand sides of paper section 6, written out.  Nothing here calls `seedlab.objective`: the claims compare the two.

Axes: V tokens of the vocabulary, S skills; leading axes are free.  All probabilities are exact, in float64.
"""

from __future__ import annotations

import torch


def mean_gate(gate_SV: torch.Tensor, skill_given_token_SV: torch.Tensor) -> torch.Tensor:
    """w(v) = E[g | Y = v] = sum_s P(s | v) g(v, s), [.., V]: the skill was written from a trajectory that contains v."""
    return (gate_SV * skill_given_token_SV).sum(-2)


def target(pi_V: torch.Tensor, w_V: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(r, Z) with Z = sum_v pi w and r = pi w / Z: the distribution that the OPD term distils towards."""
    z = (pi_V * w_V).sum(-1)
    return pi_V * w_V / z[..., None], z


def opd_logit_gradient(pi_V: torch.Tensor, w_V: torch.Tensor) -> torch.Tensor:
    """Proposition 1 in logits, at theta_k: dL/dz(v) = pi(v) Z - pi(v) w(v)."""
    z = (pi_V * w_V).sum(-1, keepdim=True)
    return pi_V * (z - w_V)


def kl(p_V: torch.Tensor, q_V: torch.Tensor) -> torch.Tensor:
    """KL(p || q) in nats, with 0 log 0 = 0."""
    return (torch.xlogy(p_V, p_V) - torch.xlogy(p_V, q_V)).sum(-1)


def total_variation(p_V: torch.Tensor, q_V: torch.Tensor) -> torch.Tensor:
    return 0.5 * (p_V - q_V).abs().sum(-1)


def value_gain(pi_V, w_V, q_V) -> torch.Tensor:
    """E_r[Q] - E_pi[Q], the left-hand side of Eq. 8."""
    r_V, _ = target(pi_V, w_V)
    return ((r_V - pi_V) * q_V).sum(-1)


def value_covariance(pi_V, w_V, q_V) -> torch.Tensor:
    """Cov_pi(Q, w) / Z, the right-hand side of Eq. 8."""
    mean_w = (pi_V * w_V).sum(-1)
    mean_q = (pi_V * q_V).sum(-1)
    return (pi_V * (q_V - mean_q[..., None]) * (w_V - mean_w[..., None])).sum(-1) / mean_w


def gate_variance(pi_V, w_V) -> torch.Tensor:
    """Var_{v ~ pi}[w(v)], the right-hand side of Proposition 2."""
    mean = (pi_V * w_V).sum(-1, keepdim=True)
    return (pi_V * (w_V - mean) ** 2).sum(-1)


def natural_norm_squared(a_V, pi_V) -> torch.Tensor:
    """sum_v a(v)^2 / pi(v), the norm of Proposition 2."""
    return (a_V**2 / pi_V).sum(-1)


def reverse_kl_gradient(pi_V, q_V) -> torch.Tensor:
    """Gradient in the logits of pi of KL(pi || q)."""
    log_ratio = pi_V.log() - q_V.log()
    return pi_V * (log_ratio - (pi_V * log_ratio).sum(-1, keepdim=True))


def forward_kl_gradient(pi_V, q_V) -> torch.Tensor:
    """Gradient in the logits of pi of KL(q || pi)."""
    return pi_V - q_V


def score_norms(pi_V) -> torch.Tensor:
    """|| d log pi(v) / dz || = || e_v - pi ||, [.., V]."""
    square = (pi_V**2).sum(-1, keepdim=True)
    return (1 - 2 * pi_V + square).clamp(min=0).sqrt()


def maximal_coupling(p_SV: torch.Tensor, q_SV: torch.Tensor) -> torch.Tensor:
    """Joint [.., S, S, V] of two skill distributions that agree as often as possible; diagonal where they are equal.

    Proposition 3 holds for any coupling of the two analyzers' skills; this one makes its right-hand side 0 where the
    analyzers are the same.
    """
    common = torch.minimum(p_SV, q_SV)
    rest_p, rest_q = p_SV - common, q_SV - common
    mass = rest_p.sum(-2)
    joint = rest_p[..., :, None, :] * rest_q[..., None, :, :]
    joint = torch.where(mass[..., None, None, :] > 0, joint / mass.clamp(min=1e-300)[..., None, None, :], 0.0)
    return joint + torch.diag_embed(common.movedim(-2, -1)).movedim(-3, -1)


def coupled_distance(values_SV: torch.Tensor, joint_SSV: torch.Tensor) -> torch.Tensor:
    """E|x(s) - x(s')| per token under a coupling, [.., V]; for the gates and the deltas of Proposition 3."""
    gaps = (values_SV[..., :, None, :] - values_SV[..., None, :, :]).abs()
    return (joint_SSV * gaps).sum((-3, -2))
