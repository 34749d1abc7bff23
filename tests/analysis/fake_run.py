"""Run folders made by the real writer, with records that agree with each other; small, without a model."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from scipy.special import expit

from seedlab.config.presets import config_hash, load_config
from seedlab.config.schema import Config
from seedlab.episodes.records import Skill, Step, Trajectory
from seedlab.skills.library import text_hash
from seedlab.store.frames import records, skill_frame, step_frame, trajectory_frame
from seedlab.store.schemas import TABLES
from seedlab.store.writer import RunWriter

TYPES = ("pick_and_place_simple", "pick_heat_then_place_in_recep")
PANELS = {name: [f"household/{TYPES[i % 2]}-{name}-{i}" for i in range(n)] for name, n in (("train", 4), ("dev", 2), ("seen", 4), ("unseen", 4))}
WORDS = "go to take open look first then put mug cabinet shelf 1 2 in on with search heat".split()
GROUP = 4


def config(method: str = "seed", initial: str = "stage1", seed: int = 0, **sections) -> Config:
    return load_config(
        "tiny", {"method": method, "initial": initial, "seed": seed, "stage2": {"updates": 2, "tasks_per_update": 2, "group_size": GROUP, "log_gradient_terms_every": 1}, **sections}
    )


def fake_run(path: Path, cfg: Config | None = None, **options) -> Path:
    """As `write_run`, without waiting for the disk: durability is tested elsewhere."""
    with mock.patch("os.fsync"):
        return write_run(path, cfg, **options)


def write_run(
    path: Path, cfg: Config | None = None, *, success: float = 0.5, accepted: bool = True, skill: str = "", goal: str = "put a mug in cabinet.",
    evaluated: bool = True, stage1: bool = True, change: Callable[[str, int, pd.DataFrame], pd.DataFrame] | None = None,
    finish: bool = True, metric_values: dict[str, float] | None = None,
) -> Path:
    """Write a run; `change(table, update, frame)` may spoil a table before it is written."""
    cfg = cfg or config()
    rng = np.random.default_rng([cfg.seed, int(success * 100), len(cfg.method)])
    change = change or (lambda table, update, frame: frame)
    writer = RunWriter.create(path, cfg)
    writer.start(heartbeat_s=60)
    writer.manifest(_manifest(cfg))
    tokenizer = _tokenizer(path)
    for update in range(cfg.stage2.updates):
        frames = _update_frames(cfg, update, rng, tokenizer, success, accepted, skill, goal)
        stored = cfg.store.tokens == "all" or (cfg.store.tokens != "none" and update % int(cfg.store.tokens) == 0)
        kept = [name for name in frames if name != "tokens" or stored]
        writer.update(update, {name: change(name, update, frames[name]) for name in kept})
        writer.metrics(update, _metrics(cfg, frames) | (metric_values or {}))
    if evaluated:
        episodes = change("episodes", cfg.stage2.updates, _episodes(cfg, rng, success))
        writer.evaluation(cfg.stage2.updates, episodes, {p: _summary(episodes[episodes["panel"] == p], p) for p in cfg.evaluation.panels})
    if stage1 and cfg.initial == "stage1":
        _stage1(path)
    if finish:
        writer.finish("succeeded", exit_code=0)
    else:
        writer.release()
    return path


def panel_hash(name: str) -> str:
    return hashlib.sha256("\n".join(PANELS[name]).encode()).hexdigest()[:16]


def _manifest(cfg) -> dict:
    return {
        "preset": cfg.preset, "method": cfg.method, "seed": cfg.seed, "config_hash": config_hash(cfg),
        "code": {"source_hash": "abc", "commit": "0123456789abcdef", "dirty": False, "diff_hash": "0"},
        "hardware": {"machine": "x86_64", "system": "Linux", "cpu": "Test CPU", "cores": 2, "memory_gb": 4.0, "gpus": []},
        "packages": {"torch": "2.13.0", "transformers": "5.10.4"}, "panels": {n: {"hash": panel_hash(n), "tasks": len(t)} for n, t in PANELS.items()},
        "panel_tasks": PANELS,
    }  # fmt: skip


@functools.cache
def build():
    from seedlab.policy.tiny_tokenizer import build_tokenizer

    return build_tokenizer(WORDS, 256)


def _tokenizer(path: Path):
    folder = path / "checkpoints" / "reference"
    folder.mkdir(parents=True)
    build().save_pretrained(folder)
    return build()


def _update_frames(cfg, update, rng, tokenizer, success, accepted, skill, goal) -> dict[str, pd.DataFrame]:
    tasks = PANELS["train"][:2]
    trajectories, skills, tokens = [], [], []
    for g, task in enumerate(tasks):
        # The second group ties, so that tied groups occur in every update.
        wins = [n < round(success * GROUP) for n in range(GROUP)] if g == 0 else [False] * GROUP
        for n, won in enumerate(wins):
            trajectory = _trajectory(f"u{update:06d}/{task}/n{n}", task, update, n, won, goal, rng, tokenizer)
            if cfg.objective.opd_coef != 0:
                text = skill or f"look first in cabinet {1 + n % 2} then open shelf 1"
                verdict = (True, "ok") if accepted and n != 3 else (False, "too_short")
                trajectory.skill = Skill(f"{trajectory.id}/skill", trajectory.id, text, *verdict, "own", update, 9, raw=text)
                skills.append(trajectory.skill)
            trajectories.append(trajectory)
    returns = np.array([t.returned for t in trajectories]).reshape(len(tasks), GROUP)
    deviation, mean = returns.std(1, keepdims=True), returns.mean(1, keepdims=True)
    tied = np.repeat(deviation[:, 0] == 0, GROUP)
    advantage = np.where(deviation == 0, 0.0, (returns - mean) / (deviation + cfg.objective.advantage_eps)).ravel().astype(np.float32)
    for t, trajectory in enumerate(trajectories):
        tokens += _tokens(cfg, trajectory, float(advantage[t]), t % 2, rng, tokenizer)
    read = [t for t in trajectories if t.skill is not None and t.skill.accepted]
    prompts = [(t.id, t.task_type, "teacher", "own", text_hash(t.skill.text), t.skill.text, 1, 1) for t in read]
    more = {"prompt_skills": pd.DataFrame(prompts, columns=TABLES["prompt_skills"].names)} if prompts else {}
    return more | {
        "trajectories": trajectory_frame(trajectories, tied.tolist(), advantage.tolist()), "steps": step_frame(trajectories),
        "skills": skill_frame(skills), "tokens": pd.DataFrame(tokens),
    }  # fmt: skip


def _trajectory(name, task, update, n, won, goal, rng, tokenizer) -> Trajectory:
    steps = []
    for k in range(2):
        action = " ".join(rng.choice(WORDS[:8], 3))
        ids = tokenizer.encode(action, add_special_tokens=False)
        prompt = tokenizer.encode(f"put mug in cabinet then {action}", add_special_tokens=False)
        logprobs = np.log(rng.uniform(0.2, 0.9, len(ids))).astype(np.float32).tolist()
        steps.append(Step(f"you look at shelf {k}", action, action, prompt, ids, logprobs, [0.5] * len(ids), "stop", True, True, float(won and k == 1), progress=float(k)))
    return Trajectory(
        id=name, task_id=task, task_type=task.split("/")[1].split("-")[0], goal=goal, update=update, n=n, seed=7 + n, steps=steps,
        final_observation="done" if won else "Nothing happens.", returned=float(won), success=won, truncated=not won,
    )


def _tokens(cfg, trajectory, advantage, minibatch, rng, tokenizer) -> list[dict]:
    taught = trajectory.skill is not None and trajectory.skill.accepted
    rows = []
    for k, step in enumerate(trajectory.steps):
        for place, (token, logp) in enumerate(zip(step.response_ids, step.logprobs)):
            student = np.float32(logp + (0.01 if minibatch else 0.0))
            teacher = np.float32(student + rng.normal(0.1, 0.4)) if taught else np.float32("nan")
            delta = np.float32(teacher - student)
            gate = expit(cfg.objective.beta * float(delta)) if taught else float("nan")
            rows.append(
                {
                    "trajectory": trajectory.id, "step": k, "position": place, "token_id": token, "text": tokenizer.decode([token]),
                    "mask_policy": True, "mask_opd": taught, "logp_rollout": logp, "logp_old": logp, "logp_student": student, "logp_teacher": teacher,
                    "logp_ref": logp, "entropy": 0.5, "delta": delta, "gate": gate, "advantage": advantage, "ratio": 1.0, "clipped": False, "kl": 0.0,
                    "net_coefficient": advantage + cfg.objective.opd_coef * (gate if taught else 0.0), "minibatch": minibatch,
                }
            )
    return rows


def _metrics(cfg, frames) -> dict[str, float]:
    from seedlab.train.batch import advantages_of
    from seedlab.train.measures import rollout_metrics

    played, tokens = records(frames["trajectories"], _arrays(frames["steps"]), frames["skills"]), frames["tokens"]
    out = rollout_metrics(played, advantages_of(played, cfg)) | {
        "policy/entropy": tokens["entropy"].mean(), "policy/kl": tokens["kl"].mean(), "policy/loss": 0.1,
        "opd/net_coefficient_mean": tokens["net_coefficient"].mean(), "cost/rollout_seconds": 1.0, "cost/student_seconds": 0.5,
        "cost/update_seconds": 2.0, "cost/rollout_flops": 1e9,
    }  # fmt: skip
    if cfg.objective.opd_coef != 0:
        taught = tokens[tokens["mask_opd"]]
        out |= {"optim/grad_norm_opd": 0.2 if len(taught) else 0.0, "analyzer/accepted": frames["skills"]["accepted"].mean(), **_rejected(frames["skills"]),
                "analyzer/exact": 0.4, "analyzer/location": 0.6, "cost/analyzer_seconds": 0.4, "cost/teacher_seconds": 0.3, "cost/update_seconds": 3.0,
                "analyzer/distinct": frames["skills"].loc[frames["skills"]["accepted"], "text"].nunique() / max(1, frames["skills"]["accepted"].sum()),
                "analyzer/skill_words": frames["skills"].loc[frames["skills"]["accepted"], "text"].str.split().str.len().mean()}  # fmt: skip
        if len(taught):
            out |= {"opd/gate_mean": taught["gate"].mean(), "opd/delta_abs_small": (taught["delta"].abs() < 0.02).mean(), "signal/gate_progress_correlation": 0.1}
    return {name: float(value) for name, value in out.items()}


def _arrays(steps: pd.DataFrame) -> pd.DataFrame:
    """Lists as arrays, as they come back from a parquet file."""
    return steps.assign(**{c: steps[c].map(np.array) for c in ("prompt_ids", "response_ids", "logprobs", "entropies")})


def _episodes(cfg, rng, success) -> pd.DataFrame:
    rows = []
    for panel in cfg.evaluation.panels:
        for i, task in enumerate(PANELS[panel]):
            won = i < round(success * len(PANELS[panel]))
            rows.append({"panel": panel, "task": task, "task_type": task.split("/")[1].split("-")[0], "n": 0, "return": float(won), "success": won,
                         "steps": 3, "truncated": False, "infra_failure": "", "inadmissible": 0})  # fmt: skip
    return pd.DataFrame(rows)


def _summary(part: pd.DataFrame, panel: str) -> dict:
    by_type = {k: {"successes": int(p["success"].sum()), "episodes": len(p)} for k, p in part.groupby("task_type")}
    macro = float(np.mean([c["successes"] / c["episodes"] for c in by_type.values()]))
    return {
        "success_macro": macro, "success_micro": float(part["success"].mean()), "episodes": len(part), "by_type": by_type, "panel_hash": panel_hash(panel),
        "decoding": {"temperature": 0.4, "top_p": 1.0, "n": 1, "seed": 1000, "max_tokens": 12},
    }  # fmt: skip


def _stage1(path: Path) -> None:
    half = {"own_skills": 10, "own_skills_accepted": 0, "held_out_loss": 2.5, "dev_success_micro": 0.2, "dev_success_macro": 0.2, "dev_episodes": 2, "success_with_own_skill": 0.2}
    record = {
        "tasks": 4, "trajectories": 16, "successes": 4, "labels": 16, "accepted": 15, "reasons": {"ok": 15, "too_short": 1}, "train_rows": 13, "held_out_rows": 2,
        "replay_documents": 0, "sft_steps": 3, "before": half, "after": half | {"own_skills_accepted": 9, "held_out_loss": 0.5}, "external_analyzer": "scripted",
    }  # fmt: skip
    (path / "stage1").mkdir()
    (path / "stage1" / "stage1.json").write_text(json.dumps(record))


def _rejected(skills: pd.DataFrame) -> dict[str, float]:
    return {f"analyzer/rejected_{reason}": float(count) for reason, count in skills.loc[~skills["accepted"], "reason"].value_counts().items()}
