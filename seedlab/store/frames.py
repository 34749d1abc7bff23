"""Records of an update as frames, and back; the columns are declared in `schemas`."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from seedlab.episodes.records import Skill, Step, Trajectory
from seedlab.store.schemas import TABLES

TRAJECTORY_COLUMNS = tuple(TABLES["trajectories"].names)
STEP_COLUMNS = tuple(TABLES["steps"].names)
SKILL_COLUMNS = tuple(TABLES["skills"].names)
TOKEN_COLUMNS = tuple(TABLES["tokens"].names)


def trajectory_frame(trajectories: Sequence[Trajectory], tied: Sequence[bool], advantage: Sequence[float]) -> pd.DataFrame:
    """One row per trajectory; `tied` and `advantage` [T] stand in the same order."""
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
    )  # fmt: skip


def step_frame(trajectories: Sequence[Trajectory]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (
                t.id, k, s.observation, s.response, s.action, s.parsed and s.admissible, s.parsed, s.admissible, s.finish,
                s.reward, s.kept_from, s.holding, math.nan if s.progress is None else s.progress,
                list(s.admissible_commands), s.prompt_ids, s.response_ids, s.logprobs, s.entropies,
            )
            for t in trajectories
            for k, s in enumerate(t.steps)
        ],
        columns=STEP_COLUMNS,
    )  # fmt: skip


def skill_frame(skills: Sequence[Skill]) -> pd.DataFrame:
    return pd.DataFrame(
        [(s.id, s.trajectory_id, s.text, s.accepted, s.reason, s.analyzer, s.snapshot, s.tokens, s.raw) for s in skills],
        columns=SKILL_COLUMNS,
    )


def step_skill_frame(skills: Sequence[Skill]) -> pd.DataFrame:
    return pd.DataFrame(
        [(s.trajectory_id, k.step, k.text, k.accepted, k.reason) for s in skills for k in s.steps], columns=tuple(TABLES["step_skills"].names)
    )


def records(trajectories: pd.DataFrame, steps: pd.DataFrame, skills: pd.DataFrame) -> list[Trajectory]:
    """The frames of an update as the records they were made from, in order (log-probs as float32)."""
    by_id = {row.id: _skill(row) for row in skills.itertuples()}
    of_trajectory: dict[str, list[Step]] = {name: [] for name in trajectories["id"]}
    for row in steps.sort_values(["trajectory", "step"], kind="stable").itertuples():
        of_trajectory[row.trajectory].append(_step(row))
    return [
        Trajectory(
            id=row["id"], task_id=row["task"], task_type=row["task_type"], goal=row["goal"], update=row["update"],
            n=row["n"], seed=row["seed"], steps=of_trajectory[row["id"]], final_observation=row["final_observation"],
            returned=row["return"], success=row["success"], truncated=row["truncated"],
            infra_failure=row["infra_failure"] or None, skill=by_id.get(row["skill"]), prompt_skill=row["prompt_skill"],
        )
        for row in trajectories.to_dict("records")
    ]  # fmt: skip


def _skill(row) -> Skill:
    return Skill(
        id=row.id, trajectory_id=row.trajectory, text=row.text, accepted=row.accepted, reason=row.reason,
        analyzer=row.analyzer, snapshot=row.snapshot, tokens=row.tokens, raw=row.raw,
    )  # fmt: skip


def _step(row) -> Step:
    return Step(
        observation=row.observation, response=row.response, action=row.action, prompt_ids=row.prompt_ids.tolist(),
        response_ids=row.response_ids.tolist(), logprobs=row.logprobs.tolist(), entropies=row.entropies.tolist(),
        finish=row.finish, parsed=row.parsed, admissible=row.admissible, reward=row.reward, kept_from=row.kept_from,
        holding=row.holding, admissible_commands=tuple(row.admissible_commands),
        progress=None if math.isnan(row.progress) else row.progress,
    )  # fmt: skip
