"""Per-token losses: clipped policy loss, KL estimators, importance ratios, gate and OPD term (paper section 3).

All functions map [B, L] tensors to [B, L] tensors and neither mask across nor average over tokens; that is
`seedlab.objective.aggregate`'s work.  Each `logp` is the log-probability, in nats, of a token that was sampled.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

# exp(20) = 4.9e8: beyond it a ratio carries no information, and its square would overflow a float32 gradient norm.
LOG_RATIO_LIMIT = 20.0


class PolicyLoss(NamedTuple):
    """`loss` (gradient); detached `ratio` rho, `clipped` (bool: rho was outside the side that counts, so that no
    gradient flows), `coefficient` = rho * A where gradient flows and 0 where it is clipped."""

    loss: torch.Tensor
    ratio: torch.Tensor
    clipped: torch.Tensor
    coefficient: torch.Tensor


class OpdLoss(NamedTuple):
    """`loss` (gradient); detached `delta` = l_t - l_s and `gate` = sigma(beta * delta)."""

    loss: torch.Tensor
    delta: torch.Tensor
    gate: torch.Tensor


class TruncatedRatio(NamedTuple):
    """`ratio` truncated at the cap; the largest `raw_maximum` and the `modified_fraction` of kept tokens, for logging."""

    ratio: torch.Tensor
    raw_maximum: torch.Tensor
    modified_fraction: torch.Tensor


def policy_loss(logp, logp_old, advantage, clip_low, clip_high, dual_clip=None, sequence=None) -> PolicyLoss:
    """-min(rho A, clip(rho, 1-low, 1+high) A), and at most -c A for A < 0 with the dual clip c > 1.

    rho = exp(logp - logp_old) with the exponent held in +-20, where its gradient ends.  A = 0 gives a loss and a
    gradient of exactly 0.  With a bool mask `sequence` [B, L], rho is one number per row (`sequence_log_ratio`).
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip must be above 1, or None for off; got {dual_clip}")
    log_ratio = logp - logp_old.detach()
    if sequence is not None:
        log_ratio = sequence_log_ratio(log_ratio, sequence)
    ratio = torch.exp(log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    low, high = 1.0 - clip_low, 1.0 + clip_high
    loss = torch.maximum(-ratio * advantage, -ratio.clamp(low, high) * advantage)
    fixed = ratio.detach()
    clipped = ((advantage > 0) & (fixed > high)) | ((advantage < 0) & (fixed < low))
    if dual_clip is not None:
        loss = torch.where(advantage < 0, torch.minimum(loss, -dual_clip * advantage), loss)
        clipped = clipped | ((advantage < 0) & (fixed > dual_clip))
    ended = clipped | (log_ratio.detach().abs() > LOG_RATIO_LIMIT)
    coefficient = torch.where(ended, torch.zeros_like(fixed), fixed * advantage)
    return PolicyLoss(loss, fixed, clipped, coefficient)


def sequence_log_ratio(log_ratio, kept) -> torch.Tensor:
    """GSPO (arXiv 2507.18071, its token form): the mean log-ratio over a row's `kept` tokens as the value of each of them.

    The gradient of each is that of its own log-ratio, so that every token keeps its own advantage; with one advantage per
    row the row's mean loss has the gradient of -A s, s the sequence's ratio.  A row must not be split over micro-batches.
    """
    inside = torch.where(kept, log_ratio, torch.zeros_like(log_ratio))
    mean = inside.detach().sum(-1, keepdim=True) / kept.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(kept, mean + (inside - inside.detach()), torch.zeros_like(inside))


def kl_estimate(logp, logp_ref, kind: str) -> torch.Tensor:
    """Per-token estimate of KL(pi_theta || pi_ref) from a token of pi_theta; `logp_ref` carries no gradient.

    With d = logp_ref - logp: k1 = -d, k2 = d^2 / 2, k3 = exp(d) - 1 - d.  As *values*, k1 and k3 are unbiased.  As
    *losses*, the expected gradient of k1 is 0, of k2 that of KL(pi_theta || pi_ref), of k3 that of
    KL(pi_ref || pi_theta).  k2 and k3 hold d in +-20, so that they and their gradients stay finite.
    """
    d = logp_ref.detach() - logp
    if kind == "k1":
        return -d
    d = d.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    if kind == "k2":
        return 0.5 * d**2
    if kind == "k3":
        return torch.expm1(d) - d
    raise ValueError(f"unknown KL estimator {kind!r}; choose k1, k2 or k3")


def truncated_importance_ratio(logp_trainer, logp_rollout, cap: float, mask=None) -> TruncatedRatio:
    """min(pi_trainer / pi_rollout, cap), detached, with the raw maximum and the share of tokens that were modified.

    For an engine whose sampler and trainer disagree on the probabilities of the same weights.  `mask` (1 = sampled)
    leaves tokens out of both statistics; without any token they are NaN.
    """
    if cap <= 0:
        raise ValueError(f"cap must be above 0, got {cap}")
    raw = torch.exp((logp_trainer - logp_rollout).detach().clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT))
    kept = raw.flatten() if mask is None else raw[mask > 0]
    if kept.numel() == 0:
        nothing = raw.new_tensor(float("nan"))
        return TruncatedRatio(raw.clamp(max=cap), nothing, nothing)
    return TruncatedRatio(raw.clamp(max=cap), kept.max(), (kept > cap).to(raw.dtype).mean())


def gate(delta, beta: float) -> torch.Tensor:
    """g = sigma(beta * delta): 1/2 where the skill leaves the token as it was, above where it makes it likelier."""
    return torch.sigmoid(beta * delta)


def opd_loss(logp_student, logp_teacher, beta: float) -> OpdLoss:
    """g (sg[l_t] - l_s) with g = sigma(beta sg[l_t - l_s]): a gate-weighted log-likelihood of the sampled token.

    Only the student's log-prob carries a gradient, so that d loss / d l_s = -g; a sampled token is never pushed down.
    """
    teacher = logp_teacher.detach()
    delta = teacher - logp_student.detach()
    weight = gate(delta, beta)
    return OpdLoss(weight * (teacher - logp_student), delta, weight)


def opd_where_mask(mask_opd, where: str, *, tied, success) -> torch.Tensor:
    """`mask_opd` kept on the trajectories that `where` names: all, tied (Proposition 2), successes or failures.

    mask_opd is [B] or [B, L]; tied and success are bool [B].
    """
    choices = {"all": None, "tied": tied, "successes": success, "failures": None if success is None else ~success.bool()}
    if where not in choices:
        raise ValueError(f"unknown objective.where={where!r}; choose {', '.join(choices)}")
    if where == "all":
        return mask_opd
    keep = choices[where].bool().to(mask_opd.device)
    return mask_opd * keep.reshape(keep.shape + (1,) * (mask_opd.ndim - keep.ndim)).to(mask_opd.dtype)
