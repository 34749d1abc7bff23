"""From a rollout batch and its skills to what one update learns from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Callable, Sequence

import torch

from seedlab.config.schema import Config
from seedlab.episodes.play import history_of
from seedlab.episodes.records import Skill, Trajectory
from seedlab.objective.advantages import AdvantageResult, group_advantages
from seedlab.objective.losses import opd_where_mask
from seedlab.objective.step_advantages import step_advantages
from seedlab.rows.build import TokenRow, attach_step_teacher, attach_teacher, build_rows, twin_of
from seedlab.skills.neighbours import written_from
from seedlab.skills.steps import usable_steps
from seedlab.train.session import Session
from seedlab.train.tokens import PreparedBatch


def advantages_of(trajectories: Sequence[Trajectory], cfg: Config) -> AdvantageResult:
    """Group-relative advantages; a group is a task.  Infrastructure failures are unscored, never a zero return."""
    groups: dict[str, int] = {}
    scored = [t.infra_failure is None for t in trajectories]
    found = group_advantages(
        torch.tensor([float("nan") if t.infra_failure else t.returned for t in trajectories], dtype=torch.float64),
        torch.tensor([groups.setdefault(t.task_id, len(groups)) for t in trajectories]),
        invalid_steps_T=torch.tensor([sum(not s.parsed for s in t.steps) for t in trajectories]),
        steps_T=torch.tensor([len(t.steps) for t in trajectories]),
        scored_T=torch.tensor(scored),
        cfg=cfg.objective,
    )
    if cfg.objective.advantage != "gigpo":
        return found
    steps = step_advantages(
        [[s.reward for s in t.steps] for t in trajectories], [[s.observation for s in t.steps] for t in trajectories],
        [t.task_id for t in trajectories], invalid_T=[[not s.parsed for s in t.steps] for t in trajectories], scored_T=scored,
        cfg=cfg.objective,
    )
    return replace(found, steps=steps)


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
    place = {t.id: number for number, t in enumerate(trajectories)}
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
            advantage=[_token_advantage(row, trajectories[row.trajectory], advantages, cfg) for row in rows],
            policy_mask_B=advantages.scored_T[index].float(),
            opd_mask_B=torch.tensor(opd_mask) * advantages.scored_T[index].float(),
            tied_B=advantages.tied_T[index],
            written_from=[_sources(row.skill, place) for row in rows],
        ),
        left_out,
    )


def give_teacher(session: Session, row: TokenRow, trajectory: Trajectory, skill: Skill | None) -> str:
    """Attach the row's teacher; returns why it has none, or an empty text.  Of the session it uses `cfg`, `prompts` and `chat`.

    A critical step reads its own skill; one that does not fit there is marked as rejected, and the step reads the episode's.
    """
    if skill is None:
        return "no usable skill"
    limit = session.cfg.model.context

    def with_text(text: str) -> Callable[[int], list[int]]:
        def render(step: int) -> list[int]:
            history = history_of(trajectory, step)
            return session.chat.render(session.prompts.messages(history, skill=text, kept_from=trajectory.steps[step].kept_from))

        return render

    if not attach_teacher(row, with_text(skill.text), limit):
        return row.no_teacher
    for step, own in usable_steps(skill).items():
        if step in row.step and not attach_step_teacher(row, step, with_text(own.text), limit):
            own.accepted, own.reason = False, "teacher context too long"
    row.skill = skill
    row.more_teachers = [twin for other in skill.others if (twin := twin_of(row, with_text(other.text), limit)) is not None]
    row.contrast = None if skill.contrast is None else twin_of(row, with_text(skill.contrast.text), limit)
    return ""


def _sources(skill: Skill | None, place: dict[str, int]) -> frozenset[int]:
    """Numbers of the trajectories that a teacher's skills were written from."""
    names = [written_from(s) for s in [skill, *skill.others]] if skill is not None else []
    return frozenset(place[name] for name in names if name in place)


def _token_advantage(row: TokenRow, trajectory: Trajectory, advantages: AdvantageResult, cfg: Config) -> torch.Tensor:
    by_step = {
        step: advantages.of_step(row.trajectory, step, valid=trajectory.steps[step].parsed, step_weight=cfg.objective.step_weight)
        for step in set(row.step)
    }
    return torch.tensor([by_step[step] for step in row.step])
