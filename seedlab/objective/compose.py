"""The one objective that every engine calls: policy, OPD, KL and entropy terms of a micro-batch (paper section 3).

    loss = rl_coef * policy + opd_coef * opd + kl_coef * kl - entropy_coef * entropy

Usage, per minibatch: count `minibatch_denominators` from all its masks, call `objective` on each micro-batch and
backpropagate each `loss`; the gradients add up to the minibatch's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import aggregate as aggregation
from seedlab.objective import credit, losses
from seedlab.objective.aggregate import Denominators
from seedlab.objective.baseline import centred
from seedlab.objective.distillation import averaged, distil


@dataclass(frozen=True)
class TokenBatch:
    """Sampled tokens of B rows, padded to L.  All tensors are [B, L] and, where masked out, may hold anything.

    logp: live student log-probs (gradient).  logp_old: under theta_old.  logp_ref: under pi_ref, or None.
    logp_teacher: same tokens with the skill in context, or None.  entropy: of the student's distribution (gradient),
    or None.  advantage: of the token's trajectory.  mask_policy: 1 on sampled tokens of scored trajectories.
    mask_opd: 1 where such a token also has a usable skill.  mask_step: 1 where that is a skill of the token's own step, or
    None where no step has one.  baseline: what is subtracted from the gate, or None.  more_teachers: [B, L, S - 1]
    log-probs behind further skills, NaN where there are fewer, or None.  support: the term over the vocabulary
    (gradient) that stands in place of the sampled token's, or None.
    """

    logp: torch.Tensor
    logp_old: torch.Tensor
    logp_ref: torch.Tensor | None
    logp_teacher: torch.Tensor | None
    entropy: torch.Tensor | None
    advantage: torch.Tensor
    mask_policy: torch.Tensor
    mask_opd: torch.Tensor
    mask_step: torch.Tensor | None = None
    baseline: torch.Tensor | None = None
    more_teachers: torch.Tensor | None = None
    support: torch.Tensor | None = None

    def __post_init__(self):
        for name in ("logp_old", "logp_ref", "logp_teacher", "entropy", "advantage", "mask_policy", "mask_opd", "mask_step", "baseline", "support"):
            value = getattr(self, name)
            if value is not None and value.shape != self.logp.shape:
                raise ValueError(f"TokenBatch.{name} is {tuple(value.shape)}, but logp is {tuple(self.logp.shape)}")
        if self.more_teachers is not None and self.more_teachers.shape[:2] != self.logp.shape:
            raise ValueError(f"TokenBatch.more_teachers is {tuple(self.more_teachers.shape)}, but logp is {tuple(self.logp.shape)}")

    def with_opd_mask(self, mask_opd: torch.Tensor) -> "TokenBatch":
        return replace(self, mask_opd=mask_opd)

    def with_policy_mask(self, mask_policy: torch.Tensor) -> "TokenBatch":
        return replace(self, mask_policy=mask_policy)


@dataclass(frozen=True)
class MinibatchDenominators:
    """Counts over a whole minibatch.  `policy` also divides KL and entropy; `opd` counts only tokens with a skill, so
    that a trajectory without one is in neither the OPD sum nor its denominator."""

    policy: Denominators
    opd: Denominators

    def __add__(self, other: "MinibatchDenominators") -> "MinibatchDenominators":
        return MinibatchDenominators(self.policy + other.policy, self.opd + other.opd)


@dataclass(frozen=True)
class ObjectiveOutput:
    """What a micro-batch gives.

    `loss`: additive share of the minibatch loss.  `terms`: the additive shares of `policy`, `opd`, `kl`, `entropy`
    *before* their coefficients, scalars that keep the graph; an absent term is an exact 0 without a graph.
    `coefficients`: what multiplies each term in `loss` (entropy's is negative).

    Detached [B, L] tensors, 0 outside their mask (None where the term is absent): `advantage` as the policy loss uses it,
    after what the teacher did to it (`skill_advantage`), `ratio`, `clipped` (0/1), `delta` (of the student, or, with a
    `skill_advantage` and no OPD term, of the snapshot that sampled), `gate`, `kl`, and `net_coefficient` = rl_coef * rho * A * 1[not clipped] + opd_coef * gate * m_opd, the weight of
    ascent on the token's log-prob before each of the two terms is divided by its own denominator (they divide alike
    where every trajectory has a skill).  KL and entropy are not in it.

    With an `objective.opd_form` that has no gate, `gate` is None and the form's own coefficient stands in its place.

    `sums`: `{name: (sum, count)}` for `WeightedMeans`, in which a count of 0 stays visible: `policy_loss` counts the
    trained tokens, `opd_loss` those with a skill; `opd_coverage` is the latter over the former.
    """

    loss: torch.Tensor
    terms: dict[str, torch.Tensor]
    coefficients: dict[str, float]
    advantage: torch.Tensor
    ratio: torch.Tensor
    clipped: torch.Tensor
    net_coefficient: torch.Tensor
    delta: torch.Tensor | None
    gate: torch.Tensor | None
    kl: torch.Tensor | None
    sums: dict[str, tuple[torch.Tensor, torch.Tensor]]


def minibatch_denominators(mask_policy_BL, mask_opd_BL, cfg: ObjectiveConfig | None = None) -> MinibatchDenominators:
    """Counts for both masks of a whole minibatch; the rule in `cfg` picks among them later, in `aggregate`."""
    del cfg  # every rule's denominator follows from the two counts
    return MinibatchDenominators(
        aggregation.count_denominators(mask_policy_BL), aggregation.count_denominators(mask_opd_BL)
    )


def objective(inputs: TokenBatch, denominators: MinibatchDenominators, cfg: ObjectiveConfig) -> ObjectiveOutput:
    """Loss share, terms and token values of one micro-batch; see the module and `ObjectiveOutput`."""
    kept, kept_opd = inputs.mask_policy > 0, inputs.mask_opd > 0
    logp = _inside(inputs.logp, kept | kept_opd)
    advantage = _inside(inputs.advantage, kept).to(logp.dtype)

    taught = _credit(inputs, advantage, kept, cfg)
    advantage = advantage if taught is None else taught.advantage
    # Masked log-probs are set equal before exp(), so that padding gives ratio 1 and can spread no inf or NaN.
    policy = losses.policy_loss(
        _inside(logp, kept), _inside(inputs.logp_old, kept), advantage, cfg.clip_low, cfg.clip_high, cfg.dual_clip,
        kept if cfg.ratio == "sequence" else None,
    )
    share = _Share(denominators, cfg)
    terms = {"policy": share.policy(policy.loss, kept)}
    sums = {
        "opd_coverage": (kept_opd.sum(), kept.sum()),
        "policy_loss": _sum(policy.loss, kept),
        "ratio": _sum(policy.ratio, kept),
        "clip_fraction": _sum(policy.clipped, kept),
        "advantage": _sum(advantage, kept),
        "approx_kl_old": _sum(losses.kl_estimate(logp.detach(), _inside(inputs.logp_old, kept | kept_opd), "k3"), kept),
    }

    if taught is not None:
        sums |= _credit_sums(taught, kept & kept_opd, cfg)

    zero = logp.new_zeros(())
    opd = None
    if cfg.opd_coef != 0 and inputs.logp_teacher is not None:
        opd = distil(
            cfg.opd_form, _inside(logp, kept_opd), _inside(inputs.logp_teacher, kept_opd), _inside(inputs.logp_old, kept_opd), cfg.beta
        )
        if inputs.support is not None:  # the gate and Delta that are told remain those of the sampled token
            opd = opd._replace(loss=inputs.support, coefficient=logp.detach().exp() * opd.coefficient)
        if inputs.more_teachers is not None:
            opd = averaged(_inside(logp, kept_opd), _inside(inputs.logp_teacher, kept_opd), inputs.more_teachers, cfg.beta)
            sums["skills_read"] = _sum(1.0 + (~inputs.more_teachers.isnan()).sum(-1), kept_opd)
        if inputs.baseline is not None:
            opd = centred(opd, _inside(logp, kept_opd), _inside(inputs.logp_teacher, kept_opd), inputs.baseline)
            sums["baseline"] = _sum(inputs.baseline, kept_opd)
        terms["opd"] = share.opd(opd.loss, kept_opd)
        sums |= {"opd_loss": _sum(opd.loss, kept_opd), "delta": _sum(opd.delta, kept_opd)}
        if opd.gate is not None:
            sums |= {
                "gate": _sum(opd.gate, kept_opd),
                "gate_squared": _sum(opd.gate**2, kept_opd),
                "gate_above_half": _sum(opd.gate > 0.5, kept_opd),
            }
    else:
        terms["opd"] = zero

    kl = None
    if cfg.kl_coef != 0 and inputs.logp_ref is not None:
        kl = losses.kl_estimate(_inside(logp, kept), _inside(inputs.logp_ref, kept), cfg.kl_estimator)
        terms["kl"] = share.policy(kl, kept)
        sums["kl"] = _sum(kl, kept)
    else:
        terms["kl"] = zero

    if inputs.entropy is not None:
        terms["entropy"] = share.policy(inputs.entropy, kept)
        sums["entropy"] = _sum(inputs.entropy, kept)
    elif cfg.entropy_coef != 0:
        raise ValueError("objective.entropy_coef is not 0, but TokenBatch.entropy is None")
    else:
        terms["entropy"] = zero

    coefficients = {
        "policy": cfg.rl_coef, "opd": cfg.opd_coef, "kl": cfg.kl_coef, "entropy": -cfg.entropy_coef,
    }
    # A term with coefficient 0 stays out of the sum: 0 times an overflow would be NaN.
    loss = sum((c * terms[name] for name, c in coefficients.items() if c != 0), zero)
    net = cfg.rl_coef * policy.coefficient
    if opd is not None:
        net = net + cfg.opd_coef * _inside(opd.coefficient, kept_opd)
    sums["net_coefficient"] = _sum(net, kept | kept_opd)
    return ObjectiveOutput(
        loss=loss,
        terms=terms,
        coefficients=coefficients,
        ratio=_inside(policy.ratio, kept),
        clipped=_inside(policy.clipped.to(logp.dtype), kept),
        net_coefficient=net.detach(),
        advantage=advantage,
        delta=_inside(opd.delta, kept_opd) if opd is not None else None if taught is None else _inside(taught.shift, kept_opd),
        gate=None if opd is None or opd.gate is None else _inside(opd.gate, kept_opd),
        kl=None if kl is None else _inside(kl.detach(), kept),
        sums=sums,
    )


def _credit(inputs: TokenBatch, advantage, kept, cfg: ObjectiveConfig) -> credit.Credit | None:
    """What the teacher does to the advantage; None without `skill_advantage`."""
    if cfg.skill_advantage == "none" or inputs.logp_teacher is None:
        return None
    taught = kept & (inputs.mask_opd > 0)
    teacher, old = inputs.logp_teacher, inputs.logp_old
    if cfg.skill_advantage == "added":
        coefficient: torch.Tensor | float = cfg.episode_coef
        if inputs.mask_step is not None:
            coefficient = cfg.episode_coef + (cfg.step_coef - cfg.episode_coef) * (inputs.mask_step > 0).to(old.dtype)
        return credit.added_advantage(advantage, teacher, old, taught, coefficient)
    return credit.scaled_advantage(advantage, teacher, old, taught, share=cfg.scale_share, low=cfg.scale_low, high=cfg.scale_high)


def _credit_sums(taught: credit.Credit, kept, cfg: ObjectiveConfig) -> dict:
    """Means of what the teacher did, over the tokens that have one."""
    if cfg.skill_advantage == "added":
        return {"credit_shift": _sum(taught.shift, kept), "credit_added": _sum(taught.effect.abs(), kept)}
    at_bound = (taught.effect <= cfg.scale_low) | (taught.effect >= cfg.scale_high)
    return {"credit_shift": _sum(taught.shift, kept), "credit_weight": _sum(taught.effect, kept), "credit_at_bound": _sum(at_bound, kept)}


@dataclass(frozen=True)
class _Share:
    """The aggregation rule of `cfg`, bound to a minibatch's denominators."""

    denominators: MinibatchDenominators
    cfg: ObjectiveConfig

    def policy(self, values, kept):
        return aggregation.aggregate(
            values, kept, self.denominators.policy, self.cfg.aggregation, self.cfg.fixed_denominator
        )

    def opd(self, values, kept):
        return aggregation.aggregate(values, kept, self.denominators.opd, self.cfg.aggregation, self.cfg.fixed_denominator)


def _inside(values: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    return torch.where(kept, values, torch.zeros_like(values))


def _sum(values: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    inside = values.detach().double()
    return torch.where(kept, inside, torch.zeros_like(inside)).sum(), kept.sum()
