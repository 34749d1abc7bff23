"""The short run that tests compare others with."""

import hashlib

import pandas as pd

from seedlab.store.checkpoint import latest_checkpoint


def weights_hash(run) -> str:
    return file_hash(latest_checkpoint(run.path)[1] / "model.safetensors")


def file_hash(file) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def without_clocks(metrics: pd.DataFrame) -> pd.DataFrame:
    clocks = [c for c in metrics.columns if c == "time" or c.endswith("_seconds") or c == "cost/peak_memory_mb"]
    return metrics.drop(columns=clocks)
