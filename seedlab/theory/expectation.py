"""The trainer's own gradients, in exact expectation over what could have been sampled.

`seedlab.objective.compose.objective` is called on every outcome, each as a token; autograd through it gives the
coefficient of each token's log-prob, and the expectation weighs these with the outcome's probability.  A wrong sign, a
gate that is not detached or a wrong denominator in the trainer therefore shows up here.
"""

from __future__ import annotations

import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import compose


def token_coefficients(
    term: str, logp_BL: torch.Tensor, cfg: ObjectiveConfig, *, logp_old=None, logp_teacher=None, logp_ref=None, advantage=None
) -> torch.Tensor:
    """d term / d logp [B, L] of the trainer's objective, for a fixed denominator of 1 and nothing masked out."""
    leaf = logp_BL.detach().clone().requires_grad_(True)
    ones = torch.ones_like(leaf)
    batch = compose.TokenBatch(
        logp=leaf,
        logp_old=leaf.detach() if logp_old is None else logp_old,
        logp_ref=logp_ref,
        logp_teacher=logp_teacher,
        entropy=None,
        advantage=torch.zeros_like(leaf) if advantage is None else advantage,
        mask_policy=ones,
        mask_opd=ones,
    )
    # model_copy does not validate: k1, which a run refuses, has to be examined here.
    fixed = cfg.model_copy(update={"aggregation": "fixed", "fixed_denominator": 1.0})
    output = compose.objective(batch, compose.minibatch_denominators(ones, ones, fixed), fixed)
    (coefficients,) = torch.autograd.grad(output.terms[term], leaf)
    return coefficients


def expected_logit_gradient(logits_BV: torch.Tensor, coefficients_BV: torch.Tensor) -> torch.Tensor:
    """E_{v ~ pi}[coefficient(v) d log pi(v) / dz], [B, V], by autograd; a token's coefficient may itself be a mean."""
    leaf = logits_BV.detach().clone().requires_grad_(True)
    logp_BV = torch.log_softmax(leaf, -1)
    (gradient,) = torch.autograd.grad((logp_BV.detach().exp() * coefficients_BV.detach() * logp_BV).sum(), leaf)
    return gradient


def opd_coefficients(logp_BV: torch.Tensor, logp_teacher_BSV: torch.Tensor, beta: float) -> torch.Tensor:
    """The trainer's d L_opd / d logp for each (skill, token), [B, S, V]; -gate where the trainer is right."""
    b, s, v = logp_teacher_BSV.shape
    cfg = ObjectiveConfig(beta=beta, opd_coef=1.0, kl_coef=0.0)
    student = logp_BV[:, None, :].expand(b, s, v).reshape(b * s, v)
    flat = token_coefficients("opd", student, cfg, logp_teacher=logp_teacher_BSV.reshape(b * s, v))
    return flat.reshape(b, s, v)


def opd_logit_gradient(logits_BV, logp_teacher_BSV, skill_given_token_BSV, beta: float) -> torch.Tensor:
    """E over tokens v ~ pi and skills s ~ P(s | v) of the trainer's OPD gradient in logits, [B, V]."""
    coefficients = opd_coefficients(torch.log_softmax(logits_BV, -1), logp_teacher_BSV, beta)
    return expected_logit_gradient(logits_BV, (coefficients * skill_given_token_BSV).sum(1))


def kl_logit_gradient(logits_BV, logp_ref_BV, kind: str) -> torch.Tensor:
    """E over v ~ pi of the trainer's KL-term gradient in logits, [B, V]."""
    cfg = ObjectiveConfig(opd_coef=0.0, kl_coef=1.0).model_copy(update={"kl_estimator": kind})
    coefficients = token_coefficients("kl", torch.log_softmax(logits_BV, -1), cfg, logp_ref=logp_ref_BV)
    return expected_logit_gradient(logits_BV, coefficients)
