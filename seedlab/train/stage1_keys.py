"""Content keys of Stage 1's three cached results: two configurations with the same key share the result."""

from __future__ import annotations

from pathlib import Path

from seedlab.config.schema import Config
from seedlab.train.base import base_key, task_settings, tiny_settings
from seedlab.train.cached import cache_root, content_key


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
        rollout=cfg.rollout.model_dump(exclude={"skill"}), tasks=cfg.stage1.tasks, per_task=cfg.stage1.rollouts_per_task,
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
