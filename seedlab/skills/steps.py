"""Skills of single critical steps, beside the episode's (OPID): what an analyzer's answer tells of them.

Steps are counted from 1 in texts that a model reads or writes, and from 0 everywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from seedlab.config.schema import AnalyzerConfig
from seedlab.episodes.records import Skill, StepSkill, Trajectory
from seedlab.skills.prompts import STEPS_KEY
from seedlab.skills.validate import json_objects, validate

_LINE = re.compile(r"^step (\d+) : (.*)$", re.MULTILINE)


def episode_part(raw: str, contract: str) -> str:
    """The answer without its step skills, as `validate` judges it."""
    return _LINE.sub("", raw).rstrip("\n") if contract == "marker" else raw


def told_steps(raw: str, contract: str) -> list[tuple[object, object]]:
    """(step counted from 1, text) as an answer tells them, whatever they are."""
    if contract == "marker":
        return [(int(step), text) for step, text in _LINE.findall(raw)]
    found = [o[STEPS_KEY] for o in json_objects(raw.rpartition("</think>")[2]) if isinstance(o.get(STEPS_KEY), list)]
    return [(entry.get("step"), entry.get("skill")) for entry in (found[-1] if found else []) if isinstance(entry, dict)]


def step_skills(raw: str, contract: str, trajectory: Trajectory, transcript: str, cfg: AnalyzerConfig, most: int) -> list[StepSkill]:
    """The critical steps of an answer, each judged like a skill; further ones, and steps that the trajectory does not
    have or that are told twice, are rejected with the reasons `too_many`, `no_such_step` and `told_twice`."""
    out: list[StepSkill] = []
    seen: set[int] = set()
    for step, text in told_steps(raw, contract):
        if not isinstance(step, int) or isinstance(step, bool) or not 1 <= step <= len(trajectory.steps) or not isinstance(text, str):
            out.append(StepSkill(-1, text if isinstance(text, str) else "", False, "no_such_step"))
            continue
        text, accepted, reason = validate(text, "marker", cfg, transcript, "stop")
        if step in seen:
            accepted, reason = False, "told_twice"
        elif sum(s.accepted for s in out) >= most:
            accepted, reason = False, "too_many"
        seen.add(step)
        out.append(StepSkill(step - 1, text, accepted, reason))
    return out


def usable_steps(skill: Skill | None) -> dict[int, StepSkill]:
    """{step: its skill} of those that a teacher may read."""
    return {} if skill is None else {s.step: s for s in skill.steps if s.accepted}


def step_counts(skills: Sequence[Skill]) -> tuple[int, int]:
    """(usable, rejected) step skills of a batch."""
    told = [s for skill in skills for s in skill.steps]
    return sum(s.accepted for s in told), sum(not s.accepted for s in told)
