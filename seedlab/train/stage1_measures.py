"""What Stage 1's SFT changed: held-out loss, the policy's own skills and its acting, measured before and after."""

from __future__ import annotations

import numpy as np

from seedlab.episodes.keys import stream_key
from seedlab.episodes.play import Episode
from seedlab.episodes.records import Skill, Trajectory
from seedlab.skills import OwnAnalyzer, count_reasons, write_skills
from seedlab.train.evaluate import episode_frame, summarise
from seedlab.train.session import Session
from seedlab.train.sft import Document, mean_loss
from seedlab.train.stage1_rollouts import ROLLOUTS_AT_ONCE


def measure(session: Session, probe: list[Trajectory], kept_out: list[Document], name: str) -> dict:
    """Held-out loss, the policy's own skills on held-out trajectories, and acting on `dev` with and without them."""
    cfg, policy = session.cfg, session.policy
    out: dict = {}
    if kept_out:
        with policy.compute():
            out["held_out_loss"] = mean_loss(
                policy.model, kept_out, micro_batch_tokens=cfg.stage2.micro_batch_tokens, pad_id=policy.pad_id
            )
    if probe:
        session.progress(f"stage 1: own skills {name}", 0, 1, "")
        analyzer = OwnAnalyzer(session.generator, policy.chat, cfg.analyzer)
        batch = write_skills(
            probe, analyzer, session.prompts, policy.chat, cfg.analyzer, snapshot=0,
            key=lambda t: stream_key(cfg.stage1.seed, "probe", t.id), at_once=ROLLOUTS_AT_ONCE,
        )
        out["own_skills"] = len(batch.skills)
        out["own_skills_accepted"] = sum(s.accepted for s in batch.skills)
        out["own_skill_reasons"] = {k: v for k, v in count_reasons(batch.skills).items() if v}
        out |= agreement(session, probe, batch.skills)
        for source, texts in (("own", batch.skills), ("scripted", None)):
            out[f"success_with_{source}_skill"] = _success_with(session, probe, texts)
        session.forget(probe)
    dev = session.panels["dev"].task_ids
    played = session.play(
        [Episode(task, 0) for task in dev], phase="s1-dev-", update=0, seed=cfg.stage1.seed, temperature=1.0,
        at_once=cfg.evaluation.batch,
    )
    session.forget(played)
    summary = summarise(episode_frame(played, "dev"))
    return out | {"dev_success_micro": summary["success_micro"], "dev_success_macro": summary["success_macro"], "dev_episodes": summary["episodes"]}


def agreement(session: Session, trajectories: list[Trajectory], skills: list[Skill]) -> dict:
    """Share of the policy's skills that say what the scripted analyzer says of the same trajectory, where there is one."""
    if not session.family.has_scripted_analyzer:
        return {}
    by_id = {t.id: t for t in trajectories}
    counts = {"exact": 0, "location": 0, "workflow": 0}
    for skill in skills:
        judged = session.family.skill_agreement(skill.text, scripted_skill(session, by_id[skill.trajectory_id]))
        for name in counts:
            counts[name] += bool(skill.accepted and getattr(judged, name))
    return {f"own_skills_{name}": value / max(1, len(skills)) for name, value in counts.items()}


def scripted_skill(session: Session, trajectory: Trajectory) -> str:
    observations = [s.observation for s in trajectory.steps] + [trajectory.final_observation]
    return session.family.hindsight_skill(
        trajectory.goal, observations, [s.action for s in trajectory.steps], trajectory.success
    )


def _success_with(session: Session, probe: list[Trajectory], skills: list[Skill] | None) -> float | None:
    """Success when the same tasks are played again with the skill in the prompt (replay utility)."""
    if skills is None and not session.family.has_scripted_analyzer:
        return None
    texts = {s.trajectory_id: s.text if s.accepted else "" for s in skills} if skills is not None else {
        t.id: scripted_skill(session, t) for t in probe
    }
    played = session.play(
        [Episode(t.task_id, 1000 + t.n, texts.get(t.id, "")) for t in probe], phase="s1-skill-", update=0,
        seed=session.cfg.stage1.seed, temperature=1.0, at_once=ROLLOUTS_AT_ONCE,
    )
    session.forget(played)
    return float(np.mean([t.success for t in played]))
