"""Group-relative advantages (paper section 3), GRPO and RLOO, with the readings that the authors' code differs in.

GiGPO's episode advantage is GRPO's; its second one, over steps, is `seedlab.objective.step_advantages`.

Axis T counts the trajectories of one rollout batch.  Everything is computed in float64 and returned in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing import TYPE_CHECKING

import torch

from seedlab.config.schema import ObjectiveConfig

if TYPE_CHECKING:
    from seedlab.objective.step_advantages import StepAdvantages


@dataclass(frozen=True)
class AdvantageResult:
    """Advantages of T trajectories in G groups, and how often groups tie.

    `advantage_T` (float32) is broadcast over a trajectory's sampled tokens, 0 where `scored_T` is False.
    `invalid_advantage_T` stands for it on the tokens of an invalid step.  The two differ only with
    `group_statistics=steps` and a penalty, where the penalty sits on the invalid step's own sample.
    `optimised_T` (float64) is R' = R - p * invalid steps, the value that is to be logged as the optimised return.
    `tied_T`: `advantage_T` is 0 throughout the trajectory's group, because every R' (with step statistics: every sample)
    is the same.  `tie_rate` and `tie_rate_penalised` are the shares of groups with equal R (the theory's) and with
    equal R' among groups that have a scored member; NaN where there is none.  `steps` is GiGPO's second advantage.
    """

    advantage_T: torch.Tensor
    invalid_advantage_T: torch.Tensor
    optimised_T: torch.Tensor
    scored_T: torch.Tensor
    tied_T: torch.Tensor
    tie_rate: float
    tie_rate_penalised: float
    groups: int
    unscored: int
    steps: "StepAdvantages | None" = None

    def of_step(self, trajectory: int, step: int, *, valid: bool, step_weight: float) -> float:
        """Advantage of the sampled tokens of one step; `valid` is False where the response lacked the required form."""
        episode = (self.advantage_T if valid else self.invalid_advantage_T)[trajectory]
        return float(episode) if self.steps is None else float(episode) + step_weight * float(self.steps.advantage_T[trajectory][step])


def group_advantages(
    returns_T: torch.Tensor,
    group_T: torch.Tensor,
    *,
    invalid_steps_T: torch.Tensor | None = None,
    steps_T: torch.Tensor | None = None,
    scored_T: torch.Tensor | None = None,
    cfg: ObjectiveConfig,
) -> AdvantageResult:
    """A = (R' - mean) / (std + eps) within each group; exactly 0 in a tied group, whatever the rounding of the std.

    returns_T: R(tau) of each trajectory; NaN means unscored.  group_T: integer id of the trajectory's group, in any
    order.  invalid_steps_T, steps_T: numbers of invalid and of all steps; needed for `invalid_penalty` and for
    `group_statistics=steps`, where each trajectory counts once per step.  scored_T: False leaves a trajectory out
    (an infrastructure failure); its advantage is 0 and the caller masks its tokens.

    `advantage=grpo` divides by the std or, with `advantage_scale=mean`, only subtracts the mean.  `advantage=rloo`
    subtracts the mean of the *other* members and, as RLOO is defined, never divides.  `group_of_one=zero` gives a
    group with a single sample 0, `identity` gives it R' (mean 0, std 1).

    Raises ValueError for shapes that differ, for counts that are missing, and for an infinite return.
    """
    returns_T = torch.as_tensor(returns_T).detach().double().cpu()
    group_T = torch.as_tensor(group_T).detach().cpu()
    scored_T = _scored(returns_T, group_T, scored_T)
    by_steps = cfg.group_statistics == "steps"
    invalid_T = _counts("invalid_steps_T", invalid_steps_T, returns_T, needed=cfg.invalid_penalty > 0)
    steps_T = _counts("steps_T", steps_T, returns_T, needed=by_steps)
    if by_steps and bool((invalid_T > steps_T).any()):
        raise ValueError("a trajectory has more invalid steps than steps; check invalid_steps_T and steps_T")
    optimised_T = returns_T - cfg.invalid_penalty * invalid_T

    advantage_T, invalid_advantage_T = torch.zeros_like(returns_T), torch.zeros_like(returns_T)
    tied_T = torch.zeros_like(scored_T)
    groups, ties, ties_penalised = 0, 0, 0
    for group in torch.unique(group_T[scored_T]).tolist():
        member = torch.nonzero((group_T == group) & scored_T)[:, 0]
        value, weight = _samples(returns_T[member], optimised_T[member], invalid_T[member], steps_T[member], cfg)
        result, tied = _standardise(value, weight, cfg)
        advantage_T[member], invalid_advantage_T[member] = result[0], result[1]
        tied_T[member] = tied
        groups += 1
        ties += int(_all_equal(returns_T[member]))
        ties_penalised += int(_all_equal(optimised_T[member]))

    return AdvantageResult(
        advantage_T=advantage_T.float(),
        invalid_advantage_T=invalid_advantage_T.float(),
        optimised_T=optimised_T,
        scored_T=scored_T,
        tied_T=tied_T,
        tie_rate=ties / groups if groups else float("nan"),
        tie_rate_penalised=ties_penalised / groups if groups else float("nan"),
        groups=groups,
        unscored=int((~scored_T).sum()),
    )


def _scored(returns_T, group_T, scored_T):
    if returns_T.ndim != 1 or group_T.shape != returns_T.shape:
        raise ValueError(f"returns_T and group_T must be [T], got {tuple(returns_T.shape)} and {tuple(group_T.shape)}")
    given = torch.ones_like(returns_T, dtype=torch.bool) if scored_T is None else torch.as_tensor(scored_T).bool().cpu()
    if given.shape != returns_T.shape:
        raise ValueError(f"scored_T must be [T] = {tuple(returns_T.shape)}, got {tuple(given.shape)}")
    scored = given & ~torch.isnan(returns_T)
    if bool(torch.isinf(returns_T[scored]).any()):
        raise ValueError(f"return of trajectory {int(torch.nonzero(torch.isinf(returns_T))[0])} is infinite")
    return scored


def _counts(name, counts_T, returns_T, *, needed):
    if counts_T is None:
        if needed:
            raise ValueError(f"{name} is needed by objective.invalid_penalty or objective.group_statistics=steps")
        return torch.zeros_like(returns_T)
    counts_T = torch.as_tensor(counts_T).detach().double().cpu()
    if counts_T.shape != returns_T.shape:
        raise ValueError(f"{name} must be [T] = {tuple(returns_T.shape)}, got {tuple(counts_T.shape)}")
    return counts_T


def _samples(returns, optimised, invalid, steps, cfg):
    """Values and weights [2, M] of a group's samples: row 0 for valid steps (or whole trajectories), row 1 invalid ones."""
    if cfg.group_statistics == "trajectories":
        return torch.stack([optimised, optimised]), torch.stack([torch.ones_like(returns), torch.zeros_like(returns)])
    return torch.stack([returns, returns - cfg.invalid_penalty]), torch.stack([steps - invalid, invalid])


def _standardise(value, weight, cfg):
    """Advantages [2, M] and whether the group is tied."""
    present = weight > 0
    count = float(weight.sum())
    if count == 0:
        return torch.zeros_like(value), True
    if count == 1:
        identity = cfg.group_of_one == "identity"
        return (value.clone() if identity else torch.zeros_like(value)), not identity
    # Ties are decided by the values, not by the std: a std of rounding noise would give up to 0.1 in float32.
    if _all_equal(value[present]):
        return torch.zeros_like(value), True
    total = torch.where(present, weight * value, 0.0).sum()
    if cfg.advantage == "rloo":
        return _leave_one_out(value, weight, total, count), False
    centred = value - total / count
    if cfg.advantage_scale == "mean":
        return centred, False
    variance = torch.where(present, weight * centred**2, 0.0).sum() / (count - cfg.advantage_ddof)
    return centred / (variance.sqrt() + cfg.advantage_eps), False


def standardise(values: torch.Tensor, cfg: ObjectiveConfig) -> tuple[torch.Tensor, bool]:
    """(advantages [M], whether they tie) of M >= 2 samples that count once each: (x - mean) / (std + eps)."""
    weight = torch.stack([torch.ones_like(values), torch.zeros_like(values)])
    result, tied = _standardise(torch.stack([values, values]), weight, cfg)
    return result[0], tied


def _leave_one_out(value, weight, total, count):
    own_count = weight.sum(0)
    own_total = (weight * value).sum(0)
    others = count - own_count
    baseline = torch.where(others > 0, (total - own_total) / others.clamp(min=1), 0.0)
    # Without other members (step statistics, one trajectory) there is no baseline and no advantage.
    return torch.where(others > 0, value - baseline, 0.0)


def _all_equal(values: torch.Tensor) -> bool:
    return bool(values.max() == values.min())


def combine_rewards(rewards_TK: torch.Tensor, weights_K: torch.Tensor) -> torch.Tensor:
    """R = sum_k w_k r_k [T], the one number that is optimised and therefore the one to log."""
    return torch.as_tensor(rewards_TK).double() @ torch.as_tensor(weights_K).double()
