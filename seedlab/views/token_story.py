"""What the inspector shows of one trajectory: its turns, tokens, values and skill, ready for a view."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from seedlab.store.errors import RunError
from seedlab.store.reader import Run
from seedlab.views.quantities import VALUES
from seedlab.views.template import visible

COLUMNS = tuple(column for _, column in VALUES)


@dataclass(frozen=True)
class SkillCard:
    """A skill beside its tokens; `accepted` is None for a typed one, which nobody judged."""

    heading: str
    text: str
    accepted: bool | None
    verdict: str
    note: str = ""


@dataclass(frozen=True)
class Story:
    """One trajectory under one run, update or snapshot.

    `tokens` [N] in order of (step, position), with the columns of the run folder; `turns` [S] with `step`,
    `observation`, `action`, `valid`.  `facts` are short words on the trajectory, `note` a sentence on where the values
    come from.
    """

    title: str
    trajectory: pd.Series
    tokens: pd.DataFrame
    turns: pd.DataFrame
    skill: SkillCard | None
    note: str = ""

    @property
    def facts(self) -> list[str]:
        t = self.trajectory
        facts = ["success" if t["success"] else "failure", f"return {t['return']:g}", f"advantage {t['advantage']:+.2f}".replace("-", "−"), f"{len(self.turns)} steps"]
        facts += ["tied group"] if t["tied"] else []
        facts += ["cut at the limit"] if t["truncated"] else []
        return facts

    def values(self) -> np.ndarray:
        """[values, N] float32 in the order of `VALUES`, exactly as they are stored; NaN where a value does not apply."""
        return np.ascontiguousarray(self.tokens[list(COLUMNS)].to_numpy(dtype=np.float32).T)

    def spec(self) -> dict:
        """Everything but the values, as JSON can carry it; text is made visible, never escaped: a view sets it as text."""
        starts = self.tokens.groupby("step", sort=True).size()
        ends = starts.cumsum()
        turns = []
        for row in self.turns.to_dict("records"):
            step = int(row["step"])
            end = int(ends.get(step, 0))
            turns.append(
                {
                    "step": step, "observation": visible(row["observation"]), "valid": bool(row["valid"]),
                    "start": end - int(starts.get(step, 0)), "end": end,
                }
            )
        t, tokens = self.trajectory, self.tokens
        return {
            "title": visible(self.title), "goal": visible(t["goal"]), "id": visible(t["id"]), "facts": self.facts, "note": visible(self.note),
            "success": bool(t["success"]), "final": visible(t["final_observation"]), "turns": turns,
            "texts": [visible(text) for text in tokens["text"]], "ids": tokens["token_id"].tolist(), "position": tokens["position"].tolist(),
            "minibatch": tokens["minibatch"].tolist(), "clipped": tokens["clipped"].astype(int).tolist(),
            "skill": None if self.skill is None else _card(self.skill),
        }  # fmt: skip


def _card(skill: SkillCard) -> dict:
    return {
        "heading": visible(skill.heading), "text": visible(skill.text), "accepted": skill.accepted, "verdict": visible(skill.verdict),
        "note": visible(skill.note),
    }  # fmt: skip


def load_story(run: Run, update: int, trajectory: str) -> Story:
    """Raises RunError where the update has no such trajectory, or stored no tokens."""
    played = run.trajectories(update)
    found = played[played["id"] == trajectory]
    if found.empty:
        raise RunError(f"update {update} of {run.path} has no trajectory {trajectory!r}; .trajectories({update}) lists them")
    tokens = run.tokens(trajectory, update=update).sort_values(["step", "position"], ignore_index=True)
    steps = run.steps(update, trajectory=trajectory).sort_values("step", ignore_index=True)
    note = "Values as they were when the optimizer first saw the token." if len(tokens) else "This trajectory has no tokens in the loss: it was lost to infrastructure."
    return Story(f"{run.name}, update {update}", found.iloc[0], tokens, steps, skill_card(run, update, trajectory), note)


def taught_by(run: Run, update: int, trajectory: str) -> str:
    """What the trajectory's teacher read, where that is not its own skill; an empty text where it is."""
    source = run.config.objective.skill_from
    if source == "own":
        return ""
    read = run.prompt_skills(update)
    read = read[(read["trajectory"] == trajectory) & (read["place"] == "teacher")]
    if read.empty:
        return f"The teacher did not read this skill: objective.skill_from={source}."
    return f"The teacher read another skill ({read['source'].iloc[0]}): {read['text'].iloc[0] or '(the empty text)'}"


def skill_card(run: Run, update: int, trajectory: str) -> SkillCard | None:
    """The trajectory's own skill with its verdict, or why there is none."""
    if run.config.objective.opd_coef == 0:
        return SkillCard("No skill", "", None, "", f"{run.config.method} has no distillation term, so that nobody wrote a skill.")
    written = run.skills(update)
    own = written[written["trajectory"] == trajectory]
    note = taught_by(run, update, trajectory)
    if own.empty:
        return SkillCard("No skill", "", None, "", note or "No skill was written for this trajectory.")
    row = own.iloc[0]
    verdict = "accepted" if row["accepted"] else f"rejected: {row['reason']}"
    by = f"by {row['analyzer']}" + (f", weights of update {row['snapshot']}" if row["snapshot"] >= 0 else "")
    return SkillCard("Its hindsight skill", row["text"] or row["raw"] or "(empty)", bool(row["accepted"]), verdict, f"{by}. {note}".strip())


@dataclass(frozen=True)
class Divergence:
    """Where two trajectories part: at token `a`, `b` (indices into their tokens), or at the observation of `step`."""

    step: int
    kind: str  # token | observation | end
    a: int | None = None
    b: int | None = None
    sentence: str = field(default="")


def first_divergence(one: Story, other: Story) -> Divergence | None:
    """The first turn whose observation differs, or the first token with another id; None where all is the same."""
    for k in range(max(len(one.turns), len(other.turns))):
        if k >= len(one.turns) or k >= len(other.turns):
            longer = "left" if len(one.turns) > len(other.turns) else "right"
            return Divergence(k, "end", *_first(one, other, k), f"The same up to turn {k}, where only the {longer} one goes on.")
        if one.turns["observation"].iloc[k] != other.turns["observation"].iloc[k]:
            return Divergence(k, "observation", *_first(one, other, k), f"The first difference is what the environment said in turn {k + 1}.")
        a, b = (s.tokens[s.tokens["step"] == k] for s in (one, other))
        ids = list(zip(a["token_id"], b["token_id"]))
        at = next((i for i, (x, y) in enumerate(ids) if x != y), len(ids))
        if at < len(a) or at < len(b):
            places = [int(part.index[at]) if at < len(part) else None for part in (a, b)]
            return Divergence(k, "token", *places, f"The first difference is token {at + 1} of turn {k + 1}.")
    return None


def _first(one: Story, other: Story, step: int) -> tuple[int | None, int | None]:
    """Index of the first token of a step in both, where there is one."""
    found = [s.tokens.index[s.tokens["step"] == step] for s in (one, other)]
    return tuple(int(index[0]) if len(index) else None for index in found)
