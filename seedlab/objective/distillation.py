"""The forms of the distillation term (objective.opd_form): what a teacher's log-prob of a sampled token asks for.

As in `losses`, functions map [B, L] tensors to [B, L] tensors and neither mask nor average.  l_s: live student (gradient),
l_t: teacher, l_o: theta_old; neither of the last two ever carries a gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from seedlab.objective import losses
from seedlab.objective.losses import LOG_RATIO_LIMIT

FORMS = ("gate", "log_ratio", "ratio_k3")
RATIO_EXPONENT_LIMIT = 10.0  # Skill-SD's own


class Distillation(NamedTuple):
    """`loss` (gradient); detached `delta` = l_t - l_s, `coefficient` = -d loss / d l_s, which is the weight of ascent on
    the token's log-prob, and `gate`, None for the forms that have none."""

    loss: torch.Tensor
    delta: torch.Tensor
    coefficient: torch.Tensor
    gate: torch.Tensor | None


def distil(form: str, logp, logp_teacher, logp_old, beta: float) -> Distillation:
    """The per-token term of objective.opd_form=`form`."""
    if form == "gate":
        gated = losses.opd_loss(logp, logp_teacher, beta)
        return Distillation(gated.loss, gated.delta, gated.gate, gated.gate)
    if form == "log_ratio":
        return log_ratio(logp, logp_teacher)
    if form == "ratio_k3":
        return ratio_k3(logp, logp_teacher, logp_old)
    raise ValueError(f"unknown objective.opd_form={form!r}; choose one of {', '.join(FORMS)}")


def averaged(logp, logp_teacher, more_BLS, beta: float) -> Distillation:
    """The mean of the gated terms of several skills: g = mean_s sigma(beta Delta_s), a lower-variance estimate of w_k.

    `logp_teacher` [B, L] is behind the first skill, `more_BLS` behind the others, NaN where a token has fewer.  `delta` is
    the mean of the Delta_s.
    """
    teacher = torch.cat([logp_teacher[..., None], more_BLS], -1).detach()
    present = ~teacher.isnan()
    teacher = torch.where(present, teacher, logp.detach()[..., None])
    count = present.sum(-1)
    delta = teacher - logp.detach()[..., None]
    gate = torch.where(present, losses.gate(delta, beta), torch.zeros_like(delta))
    loss = (gate * (teacher - logp[..., None])).sum(-1) / count
    weight = gate.sum(-1) / count
    return Distillation(loss, delta.sum(-1) / count, weight, weight)


def log_ratio(logp, logp_teacher) -> Distillation:
    """-sg[l_t - l_s] l_s up to a constant: the detached log-ratio is the token's advantage.

    On tokens of the student, the expected gradient is that of KL(student || teacher), and so is the expected value,
    l_s - l_t.  Unlike the gate, it pushes down a token that the teacher finds less likely.
    """
    fixed = logp.detach()
    delta = logp_teacher.detach() - fixed
    return Distillation(-delta * (1.0 + logp - fixed), delta, delta, None)


def ratio_k3(logp, logp_teacher, logp_old) -> Distillation:
    """rho k3 of Skill-SD: k3 = exp(-d) - 1 + d with d = l_s - l_t held in +-20, rho = exp(l_s - l_o) with its exponent in +-10.

    rho is live: the expectation over theta_old of this loss is KL(student || teacher), and its gradient that of the
    divergence, in every minibatch.  Where nothing is held, d loss / d l_s = rho d.
    """
    apart = logp - logp_teacher.detach()
    exponent = logp - logp_old.detach()
    d = apart.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    ratio = torch.exp(exponent.clamp(-RATIO_EXPONENT_LIMIT, RATIO_EXPONENT_LIMIT))
    k3 = torch.expm1(-d) + d
    ratio_moves, k3_moves = exponent.abs() <= RATIO_EXPONENT_LIMIT, apart.abs() <= LOG_RATIO_LIMIT
    # k3 + dk3/dd = d, written out: the two are huge and cancel for a very negative d
    slope = torch.where(ratio_moves, torch.where(k3_moves, d, k3), torch.where(k3_moves, -torch.expm1(-d), torch.zeros_like(d)))
    return Distillation(ratio * k3, -apart.detach(), -(ratio * slope).detach(), None)
