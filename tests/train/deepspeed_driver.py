"""Run by DeepSpeed's own interpreter: ``reference FOLDER STAGE`` in one process, ``train FOLDER STAGE`` on two.

The policy is the micro preset's architecture with random weights, the documents are random; each writes
``FOLDER/losses-….json`` and the trained weights.
"""

import json
import sys
from pathlib import Path

import torch

from seedlab.config.presets import load_config
from seedlab.engines.deepspeed_job import SftJob
from seedlab.engines.deepspeed_launch import train_with_deepspeed
from seedlab.policy.load import load_policy, wrap
from seedlab.policy.tiny import build_model
from seedlab.policy.tiny_tokenizer import build_tokenizer
from seedlab.train.sft import Document, SftSettings, batches_by_count, train_documents

STEPS_BETWEEN_CHECKPOINTS = 3


def make_policy(folder, cfg):
    if not folder.exists():
        tokenizer = build_tokenizer(["look", "go", "take", "mug", "desk", "shelf"], cfg.model.context)
        model = build_model(cfg.tiny, len(tokenizer), cfg.model.context, eos=tokenizer.eos_token_id, pad=tokenizer.pad_token_id)
        wrap(model, tokenizer, cfg.model).save(folder)


def documents():
    g = torch.Generator().manual_seed(0)
    out = []
    for i in range(9):  # odd, and of very different lengths: the last batch leaves a process without a document
        ids = torch.randint(5, 200, (6 + 5 * i,), generator=g).tolist()
        out.append(Document(f"d{i}", ids, [0.0, 0.0, *torch.rand(len(ids) - 2, generator=g).tolist()]))
    return out


def main(command, folder, stage, *rest):
    folder = Path(folder)
    checkpointing = "checkpointing" in rest
    cfg = load_config("micro", [
        f"cluster.sft_zero_stage={stage}", "cluster.gpus=2", f"cluster.sft_checkpoint_every={STEPS_BETWEEN_CHECKPOINTS}",
        f"model.gradient_checkpointing={str(checkpointing).lower()}", "cluster.collective_timeout_s=120",
    ])  # fmt: skip
    make_policy(folder / "policy", cfg)
    settings = SftSettings(1e30 if "diverging" in rest else 5e-3, 0.1, 0.1, 0.01, (0.9, 0.95), 0.5, 64, 48)
    docs, batches = documents(), batches_by_count(9, 4, 6, seed=0)
    if command == "reference":
        torch.set_num_threads(1)
        policy = load_policy(folder / "policy", cfg.model, trainable=True)
        policy.model.train()
        losses = train_documents(policy.model, docs, batches, settings, pad_id=policy.pad_id)
        policy.save(folder / "reference")
    else:
        job = SftJob(folder / "job", str(folder / "policy"), cfg.model, cfg.cluster, 1, settings, docs, batches)
        losses = train_with_deepspeed(job, lambda step, total, loss: print(f"step {step}/{total} {loss:.4f}", flush=True), poll_s=0.05)
    (folder / f"losses-{command}.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    main(*sys.argv[1:])
