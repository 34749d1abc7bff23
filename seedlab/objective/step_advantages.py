"""GiGPO's second advantage: over the steps of a group that share an identical observation (arXiv 2505.10978).

Axis T counts the trajectories of one rollout batch, S the steps of one of them.  Computed in float64.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective.advantages import standardise


@dataclass(frozen=True)
class StepAdvantages:
    """`advantage_T`: per trajectory the step advantages [S] (float64), before `step_weight`; 0 where a step stands alone.

    `shared` is the share of scored steps whose observation another step of their group has too, `tied` the share of the
    groups of such steps in which every return is the same; NaN where there are none.
    """

    advantage_T: list[torch.Tensor]
    shared: float
    tied: float


def discounted_returns(rewards_S: Sequence[float], discount: float) -> torch.Tensor:
    """R_t = r_t + discount * R_{t+1} of every step, float64 [S]."""
    out, total = [], 0.0
    for reward in reversed(list(rewards_S)):
        total = float(reward) + discount * total
        out.append(total)
    return torch.tensor(out[::-1], dtype=torch.float64)


def step_advantages(
    rewards_T: Sequence[Sequence[float]], observations_T: Sequence[Sequence[Hashable]], group_T: Sequence[Hashable], *,
    invalid_T: Sequence[Sequence[bool]], scored_T: Sequence[bool], cfg: ObjectiveConfig,
) -> StepAdvantages:
    """(R_t - mean) / (std + eps) among the steps of one group with the same observation; `advantage_scale=mean` only centres.

    rewards_T, observations_T, invalid_T: one entry per step of each trajectory.  group_T: the trajectory's group;
    observations of different groups are never compared.  A step without another one like it, and steps that tie, get
    exactly 0.  `invalid_penalty` p lowers the reward of an invalid step, so that at discount 1 the first step's return is
    R' = R - p * invalid steps; with `group_statistics=steps` it lowers the invalid step's own return alone.
    Trajectories that are not scored are outside.  Raises ValueError for lists of different lengths.
    """
    lists = (rewards_T, observations_T, invalid_T)
    if len({len(group_T), len(scored_T), *map(len, lists)}) > 1 or any(len({len(x[t]) for x in lists}) > 1 for t in range(len(group_T))):
        raise ValueError("rewards, observations and invalid steps must have one entry per step of each trajectory")
    own_sample = cfg.group_statistics == "steps"
    places: dict[tuple, list[tuple[int, int]]] = {}
    returns_T = []
    for t, (rewards, observations, invalid) in enumerate(zip(rewards_T, observations_T, invalid_T)):
        penalty = [cfg.invalid_penalty * bool(i) for i in invalid]
        lowered = rewards if own_sample else [r - p for r, p in zip(rewards, penalty)]
        returns = discounted_returns(lowered, cfg.step_discount)
        returns_T.append(returns - torch.tensor(penalty, dtype=torch.float64) if own_sample else returns)
        for s, observation in enumerate(observations if scored_T[t] else ()):
            places.setdefault((group_T[t], observation), []).append((t, s))
    advantage_T = [torch.zeros_like(r) for r in returns_T]
    scored = shared = groups = ties = 0
    for found in places.values():
        scored += len(found)
        if len(found) == 1:
            continue
        values = torch.stack([returns_T[t][s] for t, s in found])
        result, tied = standardise(values, cfg)
        for (t, s), value in zip(found, result):
            advantage_T[t][s] = value
        shared, groups, ties = shared + len(found), groups + 1, ties + int(tied)
    return StepAdvantages(advantage_T, shared / scored if scored else float("nan"), ties / groups if groups else float("nan"))
