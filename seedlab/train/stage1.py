"""Stage 1: hindsight-skill SFT (paper section 2).

base rollouts -> labels by an external analyzer -> verdicts -> SFT rows -> theta_sft.  Rollouts, labels and weights are
three cached results of their own (`stage1_rollouts`, `stage1_labels`, `stage1_sft`), so that an interruption never pays
twice.  Every file is keyed by ids: a sample can be traced from its SFT row to its label, verdict and trajectory
(`seedlab trace`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Callable

from seedlab.config.schema import Config
from seedlab.train.cached import build_once
from seedlab.train.session import Progress, silent
from seedlab.train.stage1_keys import labels_key, rollouts_key, sft_key
from seedlab.train.stage1_labels import label
from seedlab.train.stage1_rollouts import collect
from seedlab.train.stage1_sft import fine_tune

Link = Callable[[str, str], AbstractContextManager]


def no_link(name: str, key: str) -> AbstractContextManager:
    """For callers that keep no account of the links."""
    return nullcontext()


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
