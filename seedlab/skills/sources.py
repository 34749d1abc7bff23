"""Which skill stands in each trajectory's teacher context: its own, or one of the controls."""

from __future__ import annotations

from dataclasses import replace
from typing import Sequence

import numpy as np

from seedlab.episodes.records import Skill, Trajectory
from seedlab.errors import UserError
from seedlab.skills.library import SkillLibrary
from seedlab.skills.neighbours import NEIGHBOURS, neighbour_skills

SOURCES = ("own", "static", "scripted", "external", "shuffled", "mate", "sibling", "empty")


def assign_skills(
    trajectories: Sequence[Trajectory], skills: Sequence[Skill], skill_from: str, rng_key: int, *,
    library: SkillLibrary | None = None, drop_unusable: bool = True, average: int = 1,
) -> dict[str, Skill | None]:
    """The skill of each trajectory's teacher context by trajectory id; None leaves the trajectory out of L_opd.

    `own`, `scripted`, `external`: the skill in `skills` that was written from the trajectory, by whichever analyzer wrote them.
    `shuffled`: a usable skill of another trajectory of this update, never its own, a function of `rng_key`; None where
    no other has one.  `mate`, `sibling`: a usable skill of another attempt at the same task, or at another task of the
    same type, `average` of them (`neighbour_skills`).  `static`: the library's, by task type.  `empty`: the empty text, which bypasses validation, so
    that H(h, "") = h.  With `drop_unusable` off, unusable own skills stay in, as the paper's algorithm reads.
    Infrastructure failures have None.
    """
    played = [t for t in trajectories if not t.infra_failure]
    found: dict[str, Skill | None] = {t.id: None for t in trajectories}
    if len(found) != len(trajectories):
        raise ValueError("two trajectories of the update have the same id")
    written = {s.trajectory_id: s for s in skills}
    if skill_from in ("own", "scripted", "external"):
        chosen = {t.id: written.get(t.id) for t in played}
        return found | {i: s for i, s in chosen.items() if s is not None and (s.accepted or not drop_unusable)}
    if skill_from == "shuffled":
        return found | _derangement([written[t.id] for t in played if t.id in written and written[t.id].accepted], rng_key)
    if skill_from in NEIGHBOURS:
        return found | neighbour_skills(played, {i: s for i, s in written.items() if s.accepted}, skill_from, rng_key, average)
    if skill_from == "empty":
        return found | {t.id: _given(t, "", "empty", 0) for t in played}
    if skill_from == "static":
        if library is None:
            raise UserError("objective.skill_from=static needs a skill library (skills.library), and none was given")
        return found | {t.id: _given(t, library.text_for(t.task_type), "static", 0) for t in played}
    raise ValueError(f"unknown skill source {skill_from!r}; use one of {', '.join(SOURCES)}")


def _given(trajectory: Trajectory, text: str, source: str, tokens: int) -> Skill:
    return Skill(
        id=f"{trajectory.id}/{source}", trajectory_id=trajectory.id, text=text, accepted=True, reason="ok", analyzer=source,
        snapshot=-1, tokens=tokens, raw=text,
    )


def _derangement(usable: Sequence[Skill], rng_key: int) -> dict[str, Skill]:
    """Each takes the skill of the next one on a random cycle, so none keeps its own; none for a single one."""
    if len(usable) < 2:
        return {}
    cycle = [usable[int(i)] for i in np.random.default_rng(rng_key).permutation(len(usable))]
    return {
        taker.trajectory_id: replace(
            giver, id=f"{taker.trajectory_id}/shuffled", trajectory_id=taker.trajectory_id,
            analyzer=f"shuffled:{giver.trajectory_id}",
        )
        for taker, giver in zip(cycle, cycle[1:] + cycle[:1])
    }
