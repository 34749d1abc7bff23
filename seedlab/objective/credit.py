"""What a teacher does to the advantage of a token, beside or instead of a loss of its own (RLSD, OPID).

Both read l_t - l_o: how much likelier the skill makes the sampled token than it was when it was sampled.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from seedlab.objective.losses import LOG_RATIO_LIMIT


class Credit(NamedTuple):
    """Detached [B, L]: the `advantage` that the policy loss uses, `shift` = l_t - l_o, and the `effect`: RLSD's weight w, or
    the summand of OPID."""

    advantage: torch.Tensor
    shift: torch.Tensor
    effect: torch.Tensor


def scaled_advantage(advantage, logp_teacher, logp_old, taught, *, share: float, low: float, high: float) -> Credit:
    """RLSD: A ((1 - share) + share w) with w = clip(exp(sign(A) (l_t - l_o)), low, high); A where not `taught`.

    The factor is above 0, so that the sign of A never changes; A = 0 stays 0.
    """
    shift = _shift(logp_teacher, logp_old, taught)
    weight = torch.exp((torch.sign(advantage) * shift).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)).clamp(low, high)
    factor = torch.where(taught, (1.0 - share) + share * weight, torch.ones_like(weight))
    return Credit((advantage * factor).detach(), shift, weight.detach())


def added_advantage(advantage, logp_teacher, logp_old, taught, coefficient) -> Credit:
    """OPID: A + c (l_t - l_o), signed, neither normalised nor clipped; A where not `taught`.  c is [B, L] or a number."""
    shift = _shift(logp_teacher, logp_old, taught)
    summand = coefficient * shift
    return Credit((advantage + summand).detach(), shift, summand.detach())


def _shift(logp_teacher, logp_old, taught):
    return torch.where(taught, logp_teacher - logp_old, torch.zeros_like(logp_old)).detach()
