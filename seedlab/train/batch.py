"""From a rollout batch and its skills to what one update learns from."""

from __future__ import annotations

from collections import Counter
from typing import Sequence

import torch

from seedlab.config.schema import Config
from seedlab.episodes.play import history_of
from seedlab.episodes.records import Skill, Trajectory
from seedlab.objective.advantages import AdvantageResult, group_advantages
from seedlab.objective.losses import opd_where_mask
from seedlab.rows.build import TokenRow, attach_teacher, build_rows
from seedlab.train.session import Session
from seedlab.train.tokens import PreparedBatch


def advantages_of(trajectories: Sequence[Trajectory], cfg: Config) -> AdvantageResult:
    """Group-relative advantages; a group is a task.  Infrastructure failures are unscored, never a zero return."""
    groups: dict[str, int] = {}
    return group_advantages(
        torch.tensor([float("nan") if t.infra_failure else t.returned for t in trajectories], dtype=torch.float64),
        torch.tensor([groups.setdefault(t.task_id, len(groups)) for t in trajectories]),
        invalid_steps_T=torch.tensor([sum(not s.parsed for s in t.steps) for t in trajectories]),
        steps_T=torch.tensor([len(t.steps) for t in trajectories]),
        scored_T=torch.tensor([t.infra_failure is None for t in trajectories]),
        cfg=cfg.objective,
    )


def prepare_batch(
    session: Session, trajectories: Sequence[Trajectory], advantages: AdvantageResult, skills: dict[str, Skill | None] | None
) -> tuple[PreparedBatch, Counter]:
    """Rows with advantages, masks and teacher twins, and how many rows have no OPD term, by reason.

    `skills` maps a trajectory's id to the skill its teacher sees; None for methods without a teacher.
    """
    cfg = session.cfg
    rows = build_rows(trajectories, cfg.env.layout)
    allowed_T = opd_where_mask(
        torch.ones(len(trajectories)), cfg.objective.where, tied=advantages.tied_T,
        success=torch.tensor([t.success for t in trajectories], dtype=torch.bool),
    )
    left_out: Counter = Counter()
    opd_mask = []
    for row in rows:
        trajectory = trajectories[row.trajectory]
        reason = ""
        if skills is None:
            reason = "no teacher in this method"
        elif not allowed_T[row.trajectory]:
            reason = f"objective.where={cfg.objective.where}"
        else:
            reason = give_teacher(session, row, trajectory, skills.get(trajectory.id))
        opd_mask.append(0.0 if reason else 1.0)
        if reason and skills is not None:
            left_out[reason] += 1
    index = torch.tensor([r.trajectory for r in rows], dtype=torch.long)
    return (
        PreparedBatch(
            rows=rows,
            advantage=[_token_advantage(row, trajectories[row.trajectory], advantages) for row in rows],
            policy_mask_B=advantages.scored_T[index].float(),
            opd_mask_B=torch.tensor(opd_mask) * advantages.scored_T[index].float(),
            tied_B=advantages.tied_T[index],
        ),
        left_out,
    )


def give_teacher(session: Session, row: TokenRow, trajectory: Trajectory, skill: Skill | None) -> str:
    """Attach the row's teacher; returns why it has none, or an empty text.  Of the session it uses `cfg`, `prompts` and `chat`."""
    if skill is None:
        return "no usable skill"
    limit = session.cfg.model.context

    def with_skill(step: int) -> list[int]:
        history = history_of(trajectory, step)
        messages = session.prompts.messages(history, skill=skill.text, kept_from=trajectory.steps[step].kept_from)
        return session.chat.render(messages)

    if not attach_teacher(row, with_skill, limit):
        return row.no_teacher
    row.skill = skill
    return ""


def _token_advantage(row: TokenRow, trajectory: Trajectory, advantages: AdvantageResult) -> torch.Tensor:
    usual = float(advantages.advantage_T[row.trajectory])
    invalid = float(advantages.invalid_advantage_T[row.trajectory])
    return torch.tensor([usual if trajectory.steps[step].parsed else invalid for step in row.step])
