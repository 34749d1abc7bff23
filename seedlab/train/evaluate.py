"""Evaluation on a panel: every task id exactly once per sample, decoding recorded, no skill in any prompt."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from seedlab.episodes.play import Episode
from seedlab.episodes.records import Trajectory
from seedlab.objective.aggregate import macro_micro
from seedlab.train.session import Session


@dataclass
class Evaluation:
    episodes: pd.DataFrame  # one row per episode
    summary: dict  # per panel, see `summarise`


class SkillLeak(RuntimeError):
    """A skill text was found in an evaluation prompt."""


def evaluate(session: Session, *, update: int, panels: tuple[str, ...] | None = None, skills: tuple[str, ...] = ()) -> Evaluation:
    """Play the panels with `evaluation.temperature`.

    `skills` are texts that must not occur in any prompt (the canaries of the run); one that does raises SkillLeak.
    The order, batch size and machine change nothing beyond floating point: each episode has its own random stream.
    """
    cfg = session.cfg.evaluation
    frames, summary = [], {}
    for name in panels if panels is not None else cfg.panels:
        if name not in session.panels:
            raise ValueError(f"evaluation.panels names {name!r}; known panels: {', '.join(session.panels)}")
        panel = session.panels[name]
        episodes = [Episode(task_id, n) for task_id in panel.task_ids for n in range(cfg.samples_per_task)]
        trajectories = session.play(
            episodes, phase=f"eval-{name}-", update=0, seed=cfg.seed, temperature=cfg.temperature, at_once=cfg.batch
        )
        session.forget(trajectories)
        refuse_leaks(session, trajectories, skills)
        frame = episode_frame(trajectories, name)
        if frame["task"].nunique() != len(panel.task_ids) or len(frame) != len(episodes):
            raise RuntimeError(f"panel {name!r}: {frame['task'].nunique()} of {len(panel.task_ids)} tasks were evaluated")
        frames.append(frame)
        summary[name] = summarise(frame) | {
            "panel_hash": panel.hash, "tasks": len(panel.task_ids), "update": update,
            "decoding": {
                "temperature": cfg.temperature, "top_p": 1.0, "n": cfg.samples_per_task, "seed": cfg.seed,
                "max_tokens": session.cfg.rollout.max_response_tokens,
            },
            "prompts_without_skill": True,
        }
    return Evaluation(pd.concat(frames, ignore_index=True), summary)


def refuse_leaks(session: Session, trajectories: list[Trajectory], skills: tuple[str, ...]) -> None:
    """Decode each episode's longest prompts and look for the skill texts."""
    texts = {s.strip() for s in skills if len(s.split()) >= 3}
    for trajectory in trajectories:
        if trajectory.prompt_skill:
            raise SkillLeak(f"{trajectory.id} was played with a skill in its prompt")
        for step in trajectory.steps if texts else ():
            prompt = session.policy.tokenizer.decode(step.prompt_ids)
            for text in texts:
                if text in prompt:
                    raise SkillLeak(f"{trajectory.id}: the prompt contains the skill {text!r}")


def episode_frame(trajectories: list[Trajectory], panel: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "panel": panel, "task": t.task_id, "task_type": t.task_type, "n": t.n, "return": t.returned, "success": t.success,
            "steps": len(t.steps), "truncated": t.truncated, "infra_failure": t.infra_failure or "",
            "inadmissible": sum(not s.admissible for s in t.steps),
        }
        for t in trajectories
    )


def summarise(frame: pd.DataFrame) -> dict:
    """Macro (mean over task types) and micro (mean over episodes) success, always both; failures of the
    infrastructure are counted and left out of both."""
    played = frame[frame["infra_failure"] == ""]
    by_type = {kind: (int(part["success"].sum()), len(part)) for kind, part in played.groupby("task_type", sort=True)}
    macro, micro = macro_micro(by_type)
    return {
        "success_macro": macro, "success_micro": micro, "episodes": len(played), "infra_failures": len(frame) - len(played),
        "by_type": {kind: {"successes": won, "episodes": n} for kind, (won, n) in by_type.items()},
        "mean_steps": float(played["steps"].mean()), "mean_return": float(played["return"].mean()),
        "inadmissible_rate": float(played["inadmissible"].sum() / max(1, played["steps"].sum())),
    }
