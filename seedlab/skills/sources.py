"""Which skill stands in each trajectory's teacher context: its own, or one of the controls."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Mapping, Sequence

import numpy as np

from seedlab.episodes.records import Skill, Trajectory
from seedlab.errors import UserError

SOURCES = ("own", "static", "scripted", "external", "shuffled", "empty")


@dataclass(frozen=True)
class SkillLibrary:
    """Skill texts by task type, written once and never refreshed.  `hash` names the texts."""

    texts: Mapping[str, str]
    hash: str
    name: str = "library"

    @classmethod
    def of(cls, texts: Mapping[str, str], name: str = "library") -> "SkillLibrary":
        """Raises UserError where there is no text, or one that is not a non-empty text."""
        if not texts:
            raise UserError(f"the skill library {name} is empty; it must map task types to skill texts")
        for kind, text in texts.items():
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"the skill library {name} has no text for task type {kind!r}")
        payload = json.dumps(sorted(texts.items()), ensure_ascii=False).encode()
        return cls(dict(texts), hashlib.sha256(payload).hexdigest()[:16], name)

    @classmethod
    def load(cls, path: str | Path) -> "SkillLibrary":
        """Read a JSON file {task type: skill text}.  Raises UserError naming the file."""
        try:
            texts = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"cannot read the skill library {path}: {error}") from error
        if not isinstance(texts, dict):
            raise UserError(f"the skill library {path} must be a JSON object that maps task types to skill texts")
        return cls.of(texts, str(path))

    def save(self, path: str | Path) -> None:
        Path(path).write_text(json.dumps(dict(self.texts), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    def retrieve(self, task_type: str) -> str:
        """The text for a task type.  A missing type is an error: a general text in its place would go unnoticed."""
        if task_type not in self.texts:
            raise UserError(
                f"the skill library {self.name} has no skill for task type {task_type!r}; it has: {', '.join(sorted(self.texts))}"
            )
        return self.texts[task_type]


def assign_skills(
    trajectories: Sequence[Trajectory], skills: Sequence[Skill], skill_from: str, rng_key: int, *,
    library: SkillLibrary | None = None, drop_unusable: bool = True,
) -> dict[str, Skill | None]:
    """The skill of each trajectory's teacher context by trajectory id; None leaves the trajectory out of L_opd.

    `own`, `scripted`, `external`: the skill in `skills` that was written from the trajectory, by whichever analyzer wrote them.
    `shuffled`: a usable skill of another trajectory of this update, never its own, a function of `rng_key`; None where
    no other has one.  `static`: the library's, by task type.  `empty`: the empty text, which bypasses validation, so
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
    if skill_from == "empty":
        return found | {t.id: _given(t, "", "empty", 0) for t in played}
    if skill_from == "static":
        if library is None:
            raise UserError("objective.skill_from=static needs a skill library, and none was given")
        return found | {t.id: _given(t, library.retrieve(t.task_type), "static", 0) for t in played}
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
