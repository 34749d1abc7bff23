"""The short run that tests compare others with."""

import hashlib

import pandas as pd

from seedlab.store.checkpoint import latest_checkpoint

# Preset micro learns nothing by itself: its policy never wins and writes no usable skill.  With these every term of the
# loss has a gradient in every update, so that a run which repeats exactly has something to repeat.
LEARNING = (
    "tiny.documents=80", "analyzer.drop_unusable=false", "objective.invalid_penalty=0.5", "objective.opd_coef=0.3",
    "objective.entropy_coef=0.01", "stage2.learning_rate=0.003",
)  # fmt: skip


def weights_hash(run) -> str:
    return file_hash(latest_checkpoint(run.path)[1] / "model.safetensors")


def file_hash(file) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def without_clocks(metrics: pd.DataFrame) -> pd.DataFrame:
    clocks = [c for c in metrics.columns if c == "time" or c.endswith("_seconds") or c == "cost/peak_memory_mb"]
    return metrics.drop(columns=clocks)
