"""Stage 1: hindsight-skill SFT (paper section 2).

base rollouts -> labels by an external analyzer -> verdicts -> SFT rows -> theta_sft.  Rollouts, labels and weights are
three cached results of their own, so that an interruption never pays twice.  Every file is keyed by ids: a sample can
be traced from its SFT row to its label, verdict and trajectory (`seedlab trace`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Callable, Iterable

import numpy as np

from seedlab.config.schema import Config
from seedlab.episodes.keys import stream_key
from seedlab.episodes.play import Episode
from seedlab.episodes.records import Skill, Step, Trajectory
from seedlab.errors import UserError
from seedlab.policy.load import Policy, load_policy
from seedlab.skills import OwnAnalyzer, analyzer_prompt, completion_text, count_reasons, write_skills
from seedlab.train.base import base_key, build_tiny_base, demonstration_documents, task_settings, tiny_settings
from seedlab.train.cached import build_once, cache_root, content_key
from seedlab.train.evaluate import summarise, episode_frame
from seedlab.train.external import external_analyzer
from seedlab.train.session import Progress, Session, silent
from seedlab.train.fit import fit, forget_work
from seedlab.train.sft import Document, mean_loss

ROLLOUTS_AT_ONCE = 192  # episodes per batch of Stage 1's rollouts; floating point aside it changes nothing
Link = Callable[[str, str], AbstractContextManager]
FILES = ("trajectories.jsonl.gz", "labels.jsonl", "sft_rows.jsonl", "stage1.json")


def no_link(name: str, key: str) -> AbstractContextManager:
    """For callers that keep no account of the links."""
    return nullcontext()


def initial_policy_path(cfg: Config, progress: Progress = silent) -> str:
    """Where pi_base is: the tiny recipe's cached folder, or the folder or hub id of the configuration."""
    return str(build_tiny_base(cfg, progress)) if cfg.model.path == "tiny" else cfg.model.path


def _base_identity(cfg: Config) -> str:
    """What stands for the base weights in a content key: a folder counts with its place, file sizes and times."""
    if cfg.model.path == "tiny":
        return base_key(cfg)
    folder = Path(cfg.model.path)
    if not folder.is_dir():
        return f"{cfg.model.path}@{cfg.model.revision}"
    files = sorted((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in folder.iterdir() if f.is_file())
    return content_key("folder", path=str(folder.resolve()), files=files)


def rollouts_key(cfg: Config) -> str:
    other = {} if cfg.cluster.generator == "local" else {"generator": cfg.cluster.generator}  # whose random numbers are others
    return content_key(
        "stage1-rollouts", base=_base_identity(cfg), env=task_settings(cfg),
        rollout=cfg.rollout.model_dump(), tasks=cfg.stage1.tasks, per_task=cfg.stage1.rollouts_per_task,
        temperature=cfg.stage1.rollout_temperature, seed=cfg.stage1.seed, model=cfg.model.model_dump(), threads=cfg.threads,
        **other,
    )


def labels_key(cfg: Config) -> str:
    external = cfg.external.model_dump(exclude={"concurrency", "retries", "timeout_s", "requests_per_minute"})
    return content_key("stage1-labels", rollouts=rollouts_key(cfg), analyzer=cfg.analyzer.model_dump(), external=external)


def sft_key(cfg: Config) -> str:
    # DeepSpeed trains bf16 weights with float32 masters; this process computes in bf16 over float32 weights.
    bf16_weights = {"bf16_weights": True} if cfg.cluster.sft_zero_stage and cfg.model.dtype == "bfloat16" else {}
    return content_key(
        "stage1-sft", labels=labels_key(cfg), stage1=cfg.stage1.model_dump(exclude={"enabled"}), tiny=tiny_settings(cfg), **bf16_weights
    )


def deepspeed_work(cfg: Config) -> Path:
    """Where a training with DeepSpeed keeps its checkpoints until it is done: a killed one goes on from there."""
    return cache_root() / f"{sft_key(cfg)}.deepspeed"


def run_stage1(cfg: Config, progress: Progress = silent, link: Link = no_link, until: str = "sft") -> Path:
    """The folder with theta_sft (a Hugging Face folder) and Stage 1's files, from the cache or made now.

    Each of the three results is made within `link(name, cache key)`; after `until` (rollouts, labels or sft) its own
    folder is returned.
    """
    with link("rollouts", rollouts_key(cfg)):
        rollouts = build_once(rollouts_key(cfg), lambda folder: collect(cfg, folder, progress))
    if until == "rollouts":
        return rollouts
    with link("labels", labels_key(cfg)):
        labels = build_once(labels_key(cfg), lambda folder: label(cfg, rollouts, folder, progress))
    if until == "labels":
        return labels
    with link("sft", sft_key(cfg)):
        return build_once(sft_key(cfg), lambda folder: fine_tune(cfg, rollouts, labels, folder, progress))


# ---- 1. base rollouts


def collect(cfg: Config, folder: Path, progress: Progress = silent) -> None:
    """K0 rollouts of the unmodified base policy on each of the M tasks of the `stage1` panel."""
    session = Session(cfg, load_policy(initial_policy_path(cfg, progress), cfg.model), progress, sampler=cfg.cluster.generator)
    tasks = session.panels["stage1"].task_ids
    if len(tasks) < cfg.stage1.tasks:
        raise UserError(
            f"panel stage1 has {len(tasks)} tasks, stage1.tasks asks for {cfg.stage1.tasks}; enlarge env.panel_sizes.stage1"
        )
    episodes = [Episode(task, n) for task in tasks[: cfg.stage1.tasks] for n in range(cfg.stage1.rollouts_per_task)]
    trajectories = []
    for start in range(0, len(episodes), ROLLOUTS_AT_ONCE):
        part = session.play(
            episodes[start : start + ROLLOUTS_AT_ONCE], phase="s1-", update=0, seed=cfg.stage1.seed,
            temperature=cfg.stage1.rollout_temperature,
        )
        session.forget(part)
        trajectories += part
        progress("stage 1: rollouts", len(trajectories), len(episodes), f"{sum(t.success for t in trajectories)} successes")
    session.generator.close()
    write_trajectories(folder / "trajectories.jsonl.gz", trajectories)


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=3) as out:
        for trajectory in trajectories:
            out.write(json.dumps(asdict(trajectory), ensure_ascii=False) + "\n")


def read_trajectories(path: Path) -> list[Trajectory]:
    """Raises UserError naming the file where it is missing or damaged."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path} is not a readable trajectory file: {error}; remove its folder and run again") from error
    return [trajectory_of(record) for record in records]


def trajectory_of(record: dict) -> Trajectory:
    """A Trajectory from its JSON form; raises UserError where a field is missing or unknown."""
    try:
        steps = [Step(**{**s, "admissible_commands": tuple(s["admissible_commands"])}) for s in record["steps"]]
        skill = Skill(**record["skill"]) if record.get("skill") else None
        return Trajectory(**{**record, "steps": steps, "skill": skill})
    except (KeyError, TypeError) as error:
        raise UserError(f"trajectory {record.get('id', '?')}: {error}") from error


# ---- 2. labels and verdicts


def label(cfg: Config, rollouts: Path, folder: Path, progress: Progress = silent) -> None:
    """One label per trajectory by the external analyzer, with its verdict and the reason for it."""
    session = Session(cfg, load_policy(initial_policy_path(cfg), cfg.model), progress)
    trajectories = read_trajectories(rollouts / "trajectories.jsonl.gz")
    analyzer, contract, settings = external_analyzer(cfg, session.family)
    done = 0

    def count(_):
        nonlocal done
        done += 1
        progress("stage 1: labels", done, len(trajectories), "")

    batch = write_skills(
        trajectories, analyzer, session.prompts, session.policy.chat, settings, contract=contract, snapshot=-1,
        key=lambda t: stream_key(cfg.stage1.seed, "labels", t.id), on_done=count,
    )
    with open(folder / "labels.jsonl", "w", encoding="utf-8") as out:
        for skill in batch.skills:
            out.write(json.dumps(asdict(skill), ensure_ascii=False) + "\n")
    totals = asdict(analyzer.totals) if cfg.external.kind == "openai" else {}
    (folder / "labels.json").write_text(
        json.dumps({"prompt_tokens": batch.prompt_tokens, "completion_tokens": batch.completion_tokens, "totals": totals}, default=str)
    )


def read_skills(path: Path) -> list[Skill]:
    try:
        return [Skill(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not a readable skill file: {error}") from error


# ---- 3. SFT


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
