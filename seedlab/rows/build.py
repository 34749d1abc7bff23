"""Trajectories to token rows: exactly the ids that were sampled, with their teacher twins.

One code path for both layouts.  Consecutive steps share a row where the next prompt starts with the ids already seen
(prompt + response); where it does not (a fresh message per step, a template that drops past reasoning, dropped
turns) a new row starts.  A row is therefore a trajectory in the `conversation` layout and a step sample in the `step`
layout.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Sequence

from seedlab.episodes.records import Skill, Trajectory
from seedlab.policy.score import ScoreRow


@dataclass
class TokenRow:
    """One sequence of the loss.

    `ids` [L] with the sampled tokens at `positions` [n]; `step` and `place` [n] say which step, and which token of its
    response, each one is; `logp_rollout` and `entropy_rollout` [n] are the sampler's.  `teacher` holds the same
    sampled tokens behind the context with the skill, or None: the row's OPD mask is then 0, for `no_teacher`.
    """

    trajectory: int  # index into the batch of trajectories
    ids: list[int]
    positions: list[int]
    step: list[int]
    place: list[int]
    logp_rollout: list[float]
    entropy_rollout: list[float]
    first_step: int
    prompt_length: int
    teacher: ScoreRow | None = None
    no_teacher: str = "no skill"
    skill: Skill | None = None  # what the teacher reads
    step_teachers: list["StepTeacher"] = field(default_factory=list)
    contrast: ScoreRow | None = None  # the same tokens behind a skill that owes them nothing
    more_teachers: list[ScoreRow] = field(default_factory=list)  # the same tokens behind further skills
    extra: dict = field(default_factory=dict)

    @property
    def student(self) -> ScoreRow:
        return ScoreRow(self.ids, self.positions)

    def teacher_parts(self) -> list[tuple[ScoreRow, list[int]]]:
        """What is to be scored for the teacher, and which of the row's sampled tokens [n] each part scores: the tokens of
        steps with a skill of their own in a sequence each, the others in `teacher`; every token once."""
        apart = {p for part in self.step_teachers for p in part.places}
        rest = [p for p in range(len(self.positions)) if p not in apart]
        whole = [(ScoreRow(self.teacher.ids, [self.teacher.positions[p] for p in rest]), rest)] if rest else []
        return whole + [(part.row, part.places) for part in self.step_teachers]


@dataclass(frozen=True)
class StepTeacher:
    """The tokens of one critical step behind the context with that step's skill: `places` among the row's sampled ones."""

    row: ScoreRow
    places: list[int]


def build_rows(trajectories: Sequence[Trajectory], layout: str) -> list[TokenRow]:
    """Rows of all trajectories, in order; infrastructure failures and empty trajectories give none."""
    rows: list[TokenRow] = []
    for index, trajectory in enumerate(trajectories):
        if trajectory.infra_failure:
            continue
        current: TokenRow | None = None
        for number, step in enumerate(trajectory.steps):
            joined = (
                layout == "conversation"
                and current is not None
                and len(step.prompt_ids) >= len(current.ids)
                and step.prompt_ids[: len(current.ids)] == current.ids
            )
            if joined:
                current.ids = list(step.prompt_ids)
            else:
                current = TokenRow(index, list(step.prompt_ids), [], [], [], [], [], number, len(step.prompt_ids))
                rows.append(current)
            start = len(current.ids)
            current.ids = current.ids + list(step.response_ids)
            current.positions += range(start, start + len(step.response_ids))
            current.step += [number] * len(step.response_ids)
            current.place += range(len(step.response_ids))
            current.logp_rollout += step.logprobs
            current.entropy_rollout += step.entropies
    return rows


def attach_teacher(row: TokenRow, skill_prompt: Callable[[int], list[int]], limit: int) -> bool:
    """Give the row its teacher twin: the first prompt rendered again with the skill, everything after it id for id.

    `skill_prompt(step)` renders the prompt of that step with the skill inserted (H of the paper).  A twin longer than
    `limit` is not shortened: the row keeps no teacher, its OPD mask is 0 and the policy row is untouched.  Returns
    whether a teacher was attached.
    """
    row.teacher = twin_of(row, skill_prompt, limit)
    if row.teacher is None:
        row.no_teacher = "teacher context too long"
    return row.teacher is not None


def twin_of(row: TokenRow, skill_prompt: Callable[[int], list[int]], limit: int) -> ScoreRow | None:
    """The row's sampled tokens behind another first prompt; None where that is longer than `limit`."""
    prompt = skill_prompt(row.first_step)
    ids = list(prompt) + row.ids[row.prompt_length :]
    shift = len(prompt) - row.prompt_length
    return ScoreRow(ids, [p + shift for p in row.positions]) if len(ids) <= limit else None


def attach_step_teacher(row: TokenRow, step: int, skill_prompt: Callable[[int], list[int]], limit: int) -> bool:
    """Give the tokens of `step` a teacher of their own: the row up to their end, its first prompt rendered with the step's
    skill.  Returns whether it fits into `limit`; where it does not, the step keeps the row's teacher."""
    places = [p for p, of in enumerate(row.step) if of == step]
    prompt = skill_prompt(row.first_step)
    shift = len(prompt) - row.prompt_length
    if not places or row.positions[places[-1]] + 1 + shift > limit:
        return False
    ids = list(prompt) + row.ids[row.prompt_length : row.positions[places[-1]] + 1]
    row.step_teachers.append(StepTeacher(ScoreRow(ids, [row.positions[p] + shift for p in places]), places))
    return True


def split_minibatches(count: int, order: Sequence[int], *, minibatches: int | None, minibatch_rows: int | None) -> list[list[int]]:
    """Partition row indices, in the given order, into minibatches by number or by rows; none is empty."""
    if count == 0:
        return []
    if minibatch_rows is not None:
        return [list(order[i : i + minibatch_rows]) for i in range(0, count, minibatch_rows)]
    parts = min(minibatches, count)
    bounds = [count * k // parts for k in range(parts + 1)]
    return [list(order[a:b]) for a, b in zip(bounds, bounds[1:])]
