"""Stage 1's optimizer steps, in this process or on several with DeepSpeed; what is learnt is the same."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Sequence

import torch

from seedlab.config.schema import Config
from seedlab.policy.load import Policy, load_policy
from seedlab.train.room import room
from seedlab.train.session import Progress
from seedlab.train.sft import STAGE1, Document, SftSettings, Stepper, batches_by_count, train_documents


def sft_settings(cfg: Config) -> SftSettings:
    stage1 = cfg.stage1
    return SftSettings(
        stage1.learning_rate, stage1.min_learning_rate_ratio, stage1.warmup_ratio, stage1.weight_decay, stage1.betas,
        stage1.grad_clip, cfg.stage2.micro_batch_tokens, cfg.cluster.sft_pack_tokens,
    )


def fit(cfg: Config, policy: Policy, pool: Sequence[Document], progress: Progress, *, source: str, work: Path) -> list[float]:
    """Train `policy` on `pool` for `stage1.epochs`; returns the loss of each step.

    `source` is where the policy's weights came from, and `work` a folder for DeepSpeed's checkpoints: both are used by
    cluster.sft_zero_stage > 0 only.  Raises Diverged and OutOfMemory, with the keys to change.
    """
    settings = sft_settings(cfg)
    batches = batches_by_count(len(pool), cfg.stage1.batch_size, cfg.stage1.epochs, cfg.stage1.seed)

    def on_step(step: int, total: int, loss: float) -> None:
        progress("stage 1: SFT", step, total, f"loss {loss:.3f}")

    if not cfg.cluster.sft_zero_stage:
        policy.model.train()
        stepper = Stepper(policy.model, settings, pad_id=policy.pad_id, compute=policy.compute)
        with room(cfg, "sft", STAGE1["called"]):
            losses = train_documents(
                policy.model, pool, batches, settings, pad_id=policy.pad_id, stepper=stepper, on_step=on_step, **STAGE1
            )
        policy.model.eval()
        return losses
    from seedlab.engines.deepspeed_job import SftJob
    from seedlab.engines.deepspeed_launch import train_with_deepspeed

    policy.model.to("cpu")  # the GPUs belong to the training's processes now
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    job = SftJob(work, source, cfg.model, cfg.cluster, cfg.threads, settings, list(pool), batches)
    with room(cfg, "sft", STAGE1["called"]):
        losses = train_with_deepspeed(job, on_step)
    trained = load_policy(work / "result", cfg.model.model_copy(update={"device": "cpu"}), trainable=True)
    policy.model.load_state_dict(trained.model.state_dict())
    policy.model.to(cfg.model.device).eval()
    return losses


def forget_work(work: Path) -> None:
    """Remove DeepSpeed's checkpoints, once the trained weights are saved elsewhere."""
    if work.exists():
        shutil.rmtree(work)
