"""Records of an update as frames; the columns are the run folder's interface."""

from __future__ import annotations

from typing import Sequence

import pandas as pd

from seedlab.episodes.records import Skill, Trajectory

TRAJECTORY_COLUMNS = (
    "id", "update", "task", "task_type", "goal", "n", "seed", "return", "success", "steps", "truncated", "infra_failure",
    "skill", "tied", "advantage", "final_observation", "prompt_skill",
)
STEP_COLUMNS = (
    "trajectory", "step", "observation", "response", "action", "parsed", "admissible", "finish", "reward", "kept_from",
    "holding", "progress", "prompt_ids", "response_ids", "logprobs",
)
SKILL_COLUMNS = ("id", "trajectory", "text", "accepted", "reason", "analyzer", "snapshot", "tokens", "raw")
TOKEN_COLUMNS = (
    "trajectory", "step", "position", "token_id", "text", "mask_policy", "mask_opd", "logp_rollout", "logp_old",
    "logp_student", "logp_teacher", "logp_ref", "entropy", "delta", "gate", "advantage", "ratio", "clipped", "kl",
    "net_coefficient", "minibatch",
)


def trajectory_frame(trajectories: Sequence[Trajectory], tied, advantage) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (
                t.id, t.update, t.task_id, t.task_type, t.goal, t.n, t.seed, t.returned, t.success, len(t.steps), t.truncated,
                t.infra_failure or "", t.skill.id if t.skill else "", bool(tied[i]), float(advantage[i]), t.final_observation,
                t.prompt_skill,
            )
            for i, t in enumerate(trajectories)
        ],
        columns=TRAJECTORY_COLUMNS,
    )


def step_frame(trajectories: Sequence[Trajectory]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (
                t.id, k, s.observation, s.response, s.action, s.parsed, s.admissible, s.finish, s.reward, s.kept_from,
                s.holding, float("nan") if s.progress is None else s.progress, s.prompt_ids, s.response_ids, s.logprobs,
            )
            for t in trajectories
            for k, s in enumerate(t.steps)
        ],
        columns=STEP_COLUMNS,
    )


def skill_frame(skills: Sequence[Skill]) -> pd.DataFrame:
    return pd.DataFrame(
        [(s.id, s.trajectory_id, s.text, s.accepted, s.reason, s.analyzer, s.snapshot, s.tokens, s.raw) for s in skills],
        columns=SKILL_COLUMNS,
    )
