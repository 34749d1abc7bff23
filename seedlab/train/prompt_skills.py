"""Which skill each prompt really contained, read back from its ids; so that a skill that never arrived is noticed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pandas as pd

from seedlab.episodes.records import Trajectory
from seedlab.rows.build import TokenRow
from seedlab.skills.library import text_hash
from seedlab.skills.steps import usable_steps
from seedlab.store.schemas import TABLES

COLUMNS = tuple(TABLES["prompt_skills"].names)


def plain(text: str) -> str:
    """One line, composed characters: what a text and its decoded ids have in common."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def prompt_skill_frame(tokenizer, trajectories: Sequence[Trajectory], rows: Sequence[TokenRow] = ()) -> pd.DataFrame:
    """A line per trajectory and place: `prompt` where it was played with a skill, `teacher` where its teacher read one.

    `prompts` counts its prompts (of teachers: its rows), `found` those whose ids hold the text; the empty skill is found
    where the teacher's ids are the student's.  A critical step with a skill of its own has a line `teacher of step K`, counted
    from 0.  Of several skills whose gates are averaged it is the first.
    """
    lines = []
    for trajectory in trajectories:
        if trajectory.prompt_skill:
            wanted = plain(trajectory.prompt_skill)
            found = sum(wanted in plain(tokenizer.decode(step.prompt_ids)) for step in trajectory.steps)
            lines.append(_line(trajectory, "prompt", "library", trajectory.prompt_skill, len(trajectory.steps), found))
    taught: dict[int, list[TokenRow]] = {}
    for row in rows:
        if row.teacher is not None:
            taught.setdefault(row.trajectory, []).append(row)
    for index, of_one in taught.items():
        skill = of_one[0].skill
        found = sum(_read(tokenizer, row, row.teacher.ids[: row.prompt_length + len(row.teacher.ids) - len(row.ids)], skill.text) for row in of_one)
        lines.append(_line(trajectories[index], "teacher", skill.analyzer, skill.text, len(of_one), found))
        for row in of_one:
            for part in row.step_teachers:
                step, shift = row.step[part.places[0]], part.row.positions[0] - row.positions[part.places[0]]
                text = usable_steps(skill)[step].text
                found = _read(tokenizer, row, part.row.ids[: row.prompt_length + shift], text)
                lines.append(_line(trajectories[index], f"teacher of step {step}", skill.analyzer, text, 1, found))
    return pd.DataFrame(lines, columns=COLUMNS)


def _line(trajectory: Trajectory, place: str, source: str, text: str, prompts: int, found: int) -> tuple:
    return trajectory.id, trajectory.task_type, place, source, text_hash(text), text, prompts, found


def _read(tokenizer, row: TokenRow, teacher: list[int], text: str) -> bool:
    """Whether a teacher's first prompt, ids `teacher`, holds `text` once more than the student's."""
    student = row.ids[: row.prompt_length]
    if not text:
        return teacher == student
    wanted = plain(text)
    return plain(tokenizer.decode(teacher)).count(wanted) > plain(tokenizer.decode(student)).count(wanted)
