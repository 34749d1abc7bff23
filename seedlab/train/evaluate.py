"""Evaluation on a panel: every task id exactly once per sample, decoding recorded; a skill in no prompt, or
where evaluation.skill asks for it in every one, is proved and not assumed."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from seedlab.envs import refuse_unknown_panels
from seedlab.episodes.play import history_of
from seedlab.episodes.records import Trajectory
from seedlab.errors import UserError
from seedlab.objective.aggregate import macro_micro
from seedlab.skills import SkillLibrary
from seedlab.train.library import skill_of_task
from seedlab.train.prompt_skills import plain, prompt_skill_frame
from seedlab.train.session import Session
from seedlab.train.tasks import group_episodes


@dataclass
class Evaluation:
    episodes: pd.DataFrame  # one row per episode
    summary: dict  # per panel, see `summarise`
    prompt_skills: pd.DataFrame | None = None  # per episode, where evaluation.skill puts one into its prompts


class SkillLeak(RuntimeError):
    """A skill text was found in an evaluation prompt."""


class SkillMissing(RuntimeError):
    """An evaluation prompt lacks the skill that evaluation.skill=library puts into it."""


def evaluate(
    session: Session, *, update: int, panels: tuple[str, ...] | None = None, skills: tuple[str, ...] = (), library: SkillLibrary | None = None
) -> Evaluation:
    """Play the panels with `evaluation.temperature`.

    `skills` are texts that must not occur in any prompt (the canaries of the run); one that does raises SkillLeak.  With
    evaluation.skill=library the `library`'s text for each task stands in its prompts, or SkillMissing is raised.  The
    order, batch size and machine change nothing beyond floating point: each episode has its own random stream.
    """
    cfg = session.cfg.evaluation
    told = cfg.skill == "library"
    if told and library is None:
        raise UserError("evaluation.skill=library needs a skill library, and none was given; set skills.library")
    skill_of = skill_of_task(library if told else None, session.family)
    frames, prompts, summary = [], [], {}
    panels = cfg.panels if panels is None else panels
    refuse_unknown_panels(panels, session.panels)
    for name in panels:
        panel = session.panels[name]
        episodes = group_episodes(list(panel.task_ids), cfg.samples_per_task, skill_of)
        trajectories = session.play(
            episodes, phase=f"eval-{name}-", update=0, seed=cfg.seed, temperature=cfg.temperature, at_once=cfg.batch
        )
        session.forget(trajectories)
        if told:
            prompts.append(require_skills(session, trajectories))
        refuse_leaks(session, trajectories, skills, told=told)
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
            "prompts_without_skill": not told,
        }
        if told:
            summary[name]["skill"] = {"library": library.hash, "source": session.cfg.skills.library, "retrieve": library.retrieve}
    return Evaluation(pd.concat(frames, ignore_index=True), summary, pd.concat(prompts, ignore_index=True) if told else None)


def require_skills(session: Session, trajectories: list[Trajectory]) -> pd.DataFrame:
    """The skill in each episode's prompts, read back from their ids.  Raises SkillMissing where one lacks it."""
    for trajectory in trajectories:
        if not trajectory.prompt_skill:
            raise SkillMissing(f"{trajectory.id} was played without a skill, although evaluation.skill=library")
    frame = prompt_skill_frame(session.tokenizer, trajectories)
    lacking = frame[frame["found"] != frame["prompts"]]
    if len(lacking):
        row = lacking.iloc[0]
        raise SkillMissing(f"{row['trajectory']}: {row['found']} of {row['prompts']} prompts contain the skill {row['text']!r}")
    return frame


def refuse_leaks(session: Session, trajectories: list[Trajectory], skills: tuple[str, ...], *, told: bool = False) -> None:
    """Raise SkillLeak where an episode had a skill that it should not have (`told`: it should, and its own is no leak), or
    a prompt holds one of `skills` (of three words or more).

    What the episode's own turns say is no leak: a policy may have written words that an observation also has.
    """
    texts = {plain(s) for s in skills if len(s.split()) >= 3}
    for trajectory in trajectories:
        if trajectory.prompt_skill and not told:
            raise SkillLeak(f"{trajectory.id} was played with a skill in its prompt")
        for number, step in enumerate(trajectory.steps) if texts else ():
            prompt = plain(session.tokenizer.decode(step.prompt_ids))
            found = {text for text in texts if text in prompt}
            if not found:
                continue
            turns = session.prompts.messages(history_of(trajectory, number), skill=trajectory.prompt_skill, kept_from=step.kept_from)
            own = plain(session.tokenizer.decode(session.chat.render(turns)))
            for text in sorted(found):
                if prompt.count(text) > own.count(text):
                    raise SkillLeak(f"{trajectory.id}: the prompt of step {number} contains the skill {text!r}")


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
    infrastructure are counted and left out of both.  Raises UserError where every episode failed that way."""
    played = frame[frame["infra_failure"] == ""]
    if played.empty:
        first = frame.iloc[0]
        raise UserError(
            f"panel {first['panel']!r}: none of its {len(frame)} episodes could be played, so it has no success rate; "
            f"the first failed with: {first['infra_failure']} (task {first['task']}). Mend the environment, then evaluate or resume again"
        )
    by_type = {kind: (int(part["success"].sum()), len(part)) for kind, part in played.groupby("task_type", sort=True)}
    macro, micro = macro_micro(by_type)
    return {
        "success_macro": macro, "success_micro": micro, "episodes": len(played), "infra_failures": len(frame) - len(played),
        "by_type": {kind: {"successes": won, "episodes": n} for kind, (won, n) in by_type.items()},
        "mean_steps": float(played["steps"].mean()), "mean_return": float(played["return"].mean()),
        "inadmissible_rate": float(played["inadmissible"].sum() / max(1, played["steps"].sum())),
    }
