"""Advantages of tokens, recomputed from an update's tables apart from the code that made them: the group's, GiGPO's second
one over shared observations, and what a teacher did to them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seedlab.analysis.check_records import ADVANTAGE_TOLERANCE, expected_advantages
from seedlab.analysis.check_results import Broken, Skipped
from seedlab.config.schedule import at_update
from seedlab.config.schema import ObjectiveConfig
from seedlab.store.reader import Run


def expected_step_advantages(trajectories: pd.DataFrame, steps: pd.DataFrame, cfg: ObjectiveConfig) -> np.ndarray:
    """GiGPO's step advantage of each row of `steps`, before its weight; 0 outside shared observations."""
    played = set(trajectories.loc[trajectories["infra_failure"] == "", "id"])
    task = trajectories.set_index("id")["task"]
    penalty = cfg.invalid_penalty * (~steps["parsed"].to_numpy(dtype=bool))
    lowered = steps["reward"].to_numpy(dtype=np.float64) - (0.0 if cfg.group_statistics == "steps" else penalty)
    returns = np.zeros(len(steps))
    for _, rows in steps.reset_index(drop=True).sort_values("step").groupby("trajectory"):
        for place, row in enumerate(rows.index):
            later = lowered[rows.index[place:]]
            returns[row] = (later * cfg.step_discount ** np.arange(len(later))).sum()
    if cfg.group_statistics == "steps":
        returns = returns - penalty
    out = np.zeros(len(steps))
    keys = pd.DataFrame({"task": steps["trajectory"].map(task).to_numpy(), "observation": steps["observation"].to_numpy(), "row": np.arange(len(steps))})
    for _, members in keys[steps["trajectory"].isin(played).to_numpy()].groupby(["task", "observation"]):
        rows = members["row"].to_numpy()
        values = returns[rows]
        if len(rows) < 2 or np.ptp(values) <= 1e-12 * max(1.0, np.abs(values).max()):
            continue
        centred = values - values.mean()
        deviation = np.sqrt((centred**2).sum() / (len(rows) - cfg.advantage_ddof))
        out[rows] = centred if cfg.advantage_scale == "mean" else centred / (deviation + cfg.advantage_eps)
    return out


def expected_token_advantages(
    tokens: pd.DataFrame, trajectories: pd.DataFrame, steps: pd.DataFrame, steps_skilled: pd.DataFrame, cfg: ObjectiveConfig, update: int
) -> np.ndarray:
    """What each row of `tokens` was trained with.  Steps of a penalised format keep their own value with step statistics,
    which the tables do not hold apart: those tokens are NaN."""
    objective = at_update(cfg, update)
    steps = steps.reset_index(drop=True)
    by_trajectory = pd.Series(expected_advantages(trajectories, steps, cfg).advantage, index=trajectories["id"])
    base = steps["trajectory"].map(by_trajectory).to_numpy(dtype=np.float64)
    if cfg.group_statistics == "steps" and cfg.invalid_penalty:
        base = np.where(steps["parsed"], base, np.nan)
    if cfg.advantage == "gigpo":
        base = base + cfg.step_weight * expected_step_advantages(trajectories, steps, cfg)
    per_step = pd.Series(base, index=pd.MultiIndex.from_frame(steps[["trajectory", "step"]]))
    advantage = per_step.reindex(pd.MultiIndex.from_frame(tokens[["trajectory", "step"]])).to_numpy()
    taught = tokens["mask_opd"].to_numpy()
    shift = np.where(taught, (tokens["logp_teacher"].astype(float) - tokens["logp_old"].astype(float)).to_numpy(), 0.0)
    if objective.skill_advantage == "scaled":
        weight = np.clip(np.exp(np.sign(advantage) * shift), objective.scale_low, objective.scale_high)
        advantage = np.where(taught, advantage * (1 - objective.scale_share + objective.scale_share * weight), advantage)
    if objective.skill_advantage == "added":
        told = steps_skilled[steps_skilled["accepted"].astype(bool)]
        own = pd.MultiIndex.from_frame(tokens[["trajectory", "step"]]).isin(pd.MultiIndex.from_frame(told[["trajectory", "step"]]))
        advantage = advantage + np.where(own, objective.step_coef, objective.episode_coef) * shift
    return advantage


def token_advantages(run: Run) -> str:
    """Raises Broken where a stored token was trained with another advantage than its tables give."""
    cfg, count = run.config.objective, 0
    for update in run.updates:
        if "tokens" not in run.tables("updates", update):
            continue
        tokens = run.tokens(update=update)
        tokens = tokens[tokens["mask_policy"]]
        expected = expected_token_advantages(tokens, run.trajectories(update), run.steps(update), run.step_skills(update), cfg, update)
        gap = np.abs(tokens["advantage"].to_numpy(dtype=np.float64) - expected)
        wrong = gap > 10 * ADVANTAGE_TOLERANCE * np.maximum(1.0, np.abs(expected))  # float32 log-probs under an exponential
        if wrong.any():
            row = tokens[wrong].iloc[0]
            raise Broken(
                f"update {update}: {int(wrong.sum())} tokens were trained with another advantage than the tables give; first in {row['trajectory']} "
                f"step {row['step']} position {row['position']}: {row['advantage']:.6f}, expected {expected[wrong][0]:.6f}"
            )
        count += int((~np.isnan(expected)).sum())
    if not count:
        raise Skipped(f"no tokens are stored (store.tokens={run.config.store.tokens})")
    return f"{count} tokens were trained with the advantage that their group, their step and their teacher give"
