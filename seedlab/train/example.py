"""``seedlab example``: the small runs that ship with the notebooks, SEED and GRPO from the same theta_sft, three seeds each.

The settings are those of `tiny` with a shorter Stage 1 and fewer, smaller updates: enough to show every part with real
content, far too little for a claim on either method.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from seedlab.config.presets import load_config
from seedlab.config.schema import Config
from seedlab.errors import UserError
from seedlab.store.checkpoint import COMPLETE, latest_checkpoint
from seedlab.store.reader import Run
from seedlab.train.run import train
from seedlab.train.session import Progress, silent

SETTINGS = {
    "env": {"panel_limits": {"stage1": 48, "train": 96, "dev": 48, "seen": 48, "unseen": 48}},
    "analyzer": {"max_words": 28},  # a few labels are longer, so that there are rejected ones to look at
    "stage1": {"tasks": 48, "rollouts_per_task": 4, "batch_size": 8},
    "stage2": {"updates": 6, "tasks_per_update": 4, "group_size": 4, "minibatches": 1, "checkpoint_every": 3, "keep_checkpoints": 1, "log_gradient_terms_every": 2},
    "store": {"tokens": 2},
}
SEEDS = (0, 1, 2)
METHODS = {"seed": "seed", "grpo": "seed/no-opd"}  # the two differ in the distillation term alone


def cells() -> dict[str, Config]:
    """{folder name: configuration}, seeds outermost."""
    return {f"{name}-s{seed}": load_config("tiny", {**SETTINGS, "method": method, "seed": seed}) for seed in SEEDS for name, method in METHODS.items()}


def make_example(out: Path, *, keep_checkpoints: bool = False, progress: Progress = silent) -> list[Run]:
    """Make or finish the example runs below `out`; what is done already is kept.

    Without `keep_checkpoints` only tokenizers stay of the weights, which would be most of the size.
    Raises UserError where a folder holds a run with other settings.
    """
    runs = []
    for name, config in cells().items():
        folder = out / name
        if not _is_done(folder, config):
            train(config, folder, resume=(folder / "config.json").exists(), progress=progress)
        if not keep_checkpoints:
            drop_weights(folder)
        runs.append(Run(folder))
    return runs


def _is_done(folder: Path, config: Config) -> bool:
    if not (folder / "config.json").exists():
        return False
    run = Run(folder)
    if run.config != config:
        raise UserError(f"{folder} holds a run with other settings; choose another --out, or remove it")
    return run.status["state"] == "succeeded"


def drop_weights(run: Path) -> None:
    """Remove the weights of a finished run; the reference's tokenizer stays, because checks read prompts with it."""
    root = run / "checkpoints"
    while found := latest_checkpoint(run):
        (found[1] / COMPLETE).unlink()  # first, so that a removal that is cut off leaves nothing that looks complete
        shutil.rmtree(found[1])
    (root / "latest").unlink(missing_ok=True)
    (root / "reference" / "model.safetensors").unlink(missing_ok=True)
    (run / ".writer.lock").unlink(missing_ok=True)
