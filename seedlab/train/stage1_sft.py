"""Stage 1's third result: SFT rows from the accepted labels, theta_sft trained on them, and the record of both."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from seedlab.config.schema import Config
from seedlab.episodes.records import Skill, Trajectory
from seedlab.errors import UserError
from seedlab.policy.load import Policy, load_policy
from seedlab.skills import analyzer_prompt, completion_text, count_reasons
from seedlab.train.base import demonstration_documents, initial_policy_path
from seedlab.train.fit import fit, forget_work
from seedlab.train.session import Progress, Session, silent
from seedlab.train.sft import Document
from seedlab.train.stage1_keys import deepspeed_work
from seedlab.train.stage1_labels import read_skills
from seedlab.train.stage1_measures import measure
from seedlab.train.stage1_rollouts import read_trajectories


def skill_documents(session: Session, trajectories: list[Trajectory], skills: list[Skill]) -> tuple[list[Document], list[str]]:
    """One document per accepted label, loss on the skill's tokens alone (plus `transcript_weight` on the transcript's
    own action tokens, which is 0 in the paper), and the ids of those that do not fit `model.context` (B13)."""
    cfg, chat = session.cfg, session.policy.chat
    by_id = {t.id: t for t in trajectories}
    documents, dropped = [], []
    for skill in skills:
        if not skill.accepted:
            continue
        trajectory = by_id[skill.trajectory_id]
        prompt = analyzer_prompt(trajectory, session.prompts, chat, cfg.analyzer)
        # The analyzer is trained on the very prompt, and the very form of answer, that Stage 2 will ask for.
        target = chat.encode(completion_text(skill.text, cfg.analyzer.contract)) + [chat.end_of_turn]
        if len(prompt.ids) + len(target) > cfg.model.context:
            dropped.append(skill.trajectory_id)
            continue
        weights = [0.0] * len(prompt.ids) + [1.0] * len(target)
        if cfg.stage1.transcript_weight > 0:
            for place in _sampled_places(trajectory, prompt.ids):
                weights[place] = cfg.stage1.transcript_weight
        documents.append(Document(skill.trajectory_id, prompt.ids + target, weights))
    return documents, dropped


def _sampled_places(trajectory: Trajectory, ids: list[int]) -> list[int]:
    """Positions of the sampled tokens in a prompt that continues the episode's own ids; none where it does not."""
    places = []
    for step in trajectory.steps:
        start, end = len(step.prompt_ids), len(step.prompt_ids) + len(step.response_ids)
        if ids[:start] == step.prompt_ids and ids[start:end] == step.response_ids:
            places += range(start, end)
    return places


def held_out(trajectory_id: str, share: float) -> bool:
    """By task, so that no task is on both sides."""
    task = trajectory_id.rsplit("/n", 1)[0]
    return int(hashlib.sha256(task.encode()).hexdigest()[:8], 16) / 16**8 < share


def fine_tune(cfg: Config, rollouts: Path, labels: Path, folder: Path, progress: Progress = silent) -> None:
    """theta_sft from the accepted labels; held-out loss, own skills and acting ability before and after."""
    session = Session(
        cfg, load_policy(initial_policy_path(cfg), cfg.model, trainable=True), progress, sampler=cfg.cluster.generator
    )
    policy = session.policy
    trajectories = read_trajectories(rollouts / "trajectories.jsonl.gz")
    skills = read_skills(labels / "labels.jsonl")
    documents, dropped = skill_documents(session, trajectories, skills)
    if not documents:
        raise UserError(
            f"Stage 1 has nothing to learn from: of {len(skills)} labels {sum(s.accepted for s in skills)} were accepted, and "
            f"{len(dropped)} of these do not fit model.context={cfg.model.context}; verdicts: {count_reasons(skills)}"
        )
    kept_out = [d for d in documents if held_out(d.id, cfg.stage1.held_out)]
    training = [d for d in documents if not held_out(d.id, cfg.stage1.held_out)]
    if not training:
        raise UserError(
            f"all {len(documents)} labels of Stage 1 are held out, none is left to train on; lower "
            f"stage1.held_out={cfg.stage1.held_out} or raise stage1.tasks={cfg.stage1.tasks}"
        )
    replay = _replay(cfg, policy, len(trajectories), progress)
    probe = [t for t in trajectories if any(t.id == d.id for d in kept_out)][:96]

    before = measure(session, probe, kept_out, "before")
    session.generator.close()  # its memory belongs to the training now
    losses = fit(cfg, policy, training + replay, progress, source=initial_policy_path(cfg), work=deepspeed_work(cfg))
    policy.save(folder)
    session.weights_changed(folder)
    after = measure(session, probe, kept_out, "after")
    session.generator.close()
    forget_work(deepspeed_work(cfg))
    _write_record(cfg, policy, folder, rollouts, labels, trajectories, skills, training, kept_out, dropped, replay, losses, before, after)


def _replay(cfg: Config, policy: Policy, trajectories: int, progress: Progress) -> list[Document]:
    count = round(cfg.stage1.replay_ratio * trajectories)
    if not count:
        return []
    # Plain replay stays as noisy as the base policy's last documents: Stage 1 must not teach better acting by the way.
    return demonstration_documents(
        cfg, policy, progress, count=count, skill_fraction=cfg.stage1.replay_skill_fraction,
        noise=(cfg.tiny.expert_noise[1], cfg.tiny.expert_noise[1]), seed=cfg.stage1.seed + 1,
    )


def _write_record(
    cfg, policy, folder, rollouts, labels, trajectories, skills, training, kept_out, dropped, replay, losses, before, after
) -> None:
    verdicts = {s.trajectory_id: s for s in skills}
    with open(folder / "sft_rows.jsonl", "w", encoding="utf-8") as out:
        for split, documents in (("train", training), ("held_out", kept_out)):
            for document in documents:
                row = {
                    "trajectory": document.id, "split": split, "tokens": len(document.ids),
                    "target_tokens": sum(w == 1.0 for w in document.weights), "skill": verdicts[document.id].text,
                }
                out.write(json.dumps(row, ensure_ascii=False) + "\n")
    wins = sum(t.success for t in trajectories)
    record = {
        "base": {"path": cfg.model.path, "revision": cfg.model.revision, "commit": policy.commit},
        "tasks": len({t.task_id for t in trajectories}), "trajectories": len(trajectories), "successes": wins,
        "labels": len(skills), "accepted": sum(s.accepted for s in skills), "reasons": {k: v for k, v in count_reasons(skills).items() if v},
        "dropped_too_long": dropped, "train_rows": len(training), "held_out_rows": len(kept_out), "replay_documents": len(replay),
        "sft_steps": len(losses), "losses": [round(loss, 5) for loss in losses], "first_loss": losses[0], "last_loss": float(np.mean(losses[-10:])),
        "before": before, "after": after, "rollouts_cache": rollouts.name, "labels_cache": labels.name,
        "external_analyzer": cfg.external.kind if cfg.external.kind == "scripted" else cfg.external.model,
    }
    (folder / "stage1.json").write_text(json.dumps(record, indent=1))
