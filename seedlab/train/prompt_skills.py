"""Which skill each prompt really contained, read back from its ids; so that a skill that never arrived is noticed."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pandas as pd

from seedlab.episodes.records import Trajectory
from seedlab.rows.build import TokenRow
from seedlab.skills.library import text_hash
from seedlab.store.schemas import TABLES

COLUMNS = tuple(TABLES["prompt_skills"].names)


def plain(text: str) -> str:
    """One line, composed characters: what a text and its decoded ids have in common."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def prompt_skill_frame(tokenizer, trajectories: Sequence[Trajectory], rows: Sequence[TokenRow] = ()) -> pd.DataFrame:
    """A line per trajectory and place: `prompt` where it was played with a skill, `teacher` where a teacher read one.

    `prompts` counts its prompts (of teachers: its rows), `found` those whose ids hold the text; the empty skill is found
    where the teacher's ids are the student's.  Of several skills that a row's teachers read (step skills, averaged ones) it
    is the first.
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
        found = sum(_read(tokenizer, row, skill.text) for row in of_one)
        lines.append(_line(trajectories[index], "teacher", skill.analyzer, skill.text, len(of_one), found))
    return pd.DataFrame(lines, columns=COLUMNS)


def _line(trajectory: Trajectory, place: str, source: str, text: str, prompts: int, found: int) -> tuple:
    return trajectory.id, trajectory.task_type, place, source, text_hash(text), text, prompts, found


def _read(tokenizer, row: TokenRow, text: str) -> bool:
    """Whether the teacher's first prompt holds `text` once more than the student's."""
    student = row.ids[: row.prompt_length]
    teacher = row.teacher.ids[: row.prompt_length + len(row.teacher.ids) - len(row.ids)]
    if not text:
        return teacher == student
    wanted = plain(text)
    return plain(tokenizer.decode(teacher)).count(wanted) > plain(tokenizer.decode(student)).count(wanted)
