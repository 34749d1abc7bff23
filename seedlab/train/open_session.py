"""A session on weights that someone names: a run, a checkpoint, a Hugging Face folder or a hub id."""

from __future__ import annotations

from pathlib import Path

import torch

from seedlab.config.schema import Config
from seedlab.errors import UserError
from seedlab.policy.load import load_policy
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.train.base import initial_policy_path
from seedlab.train.session import Progress, Session


def open_session(cfg: Config, model: str | None, progress: Progress, *, sampler: str = "local") -> tuple[Session, str]:
    """The session and where its weights are; `model` None is the configuration's base policy.

    Raises UserError for a run without a complete checkpoint, and for what `load_policy` refuses.
    """
    torch.set_num_threads(cfg.threads)
    path = model or initial_policy_path(cfg, progress)
    if (Path(path) / "checkpoints").is_dir():
        found = latest_checkpoint(Path(path))
        if found is None:
            raise UserError(f"{path} has no complete checkpoint yet")
        path = str(found[1])
    return Session(cfg, load_policy(path, cfg.model), progress, sampler=sampler), path
