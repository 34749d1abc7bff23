"""Rows of finished runs: small, committed, enough to compare arms and to skip a cell that is done."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

from seedlab.config.presets import config_hash
from seedlab.store.files import append_line, tail_rows
from seedlab.store.reader import Run

CURVES = ("rollout/success", "rollout/tie_rate", "policy/entropy", "policy/kl", "opd/gate_mean", "analyzer/exact", "analyzer/location")


def result_row(run: Run) -> dict:
    """What a finished run leaves in results/*.jsonl."""
    cfg, manifest, metrics = run.config, run.manifest, run.metrics
    evaluations = {
        row["panel"]: {k: row[k] for k in ("success_macro", "success_micro", "episodes", "by_type", "panel_hash", "decoding")}
        for row in run.evaluations.to_dict("records")
    }
    return {
        "schema_version": 1, "config_hash": config_hash(cfg), "cell_hash": config_hash(cfg, exclude_seed=True),
        "preset": cfg.preset, "method": cfg.method, "initial": cfg.initial, "seed": cfg.seed, "code": manifest["code"],
        "hardware": manifest["hardware"], "panels": manifest["panels"], "updates": cfg.stage2.updates,
        "config": json.loads(cfg.model_dump_json()),
        "curves": {name: [_number(v) for v in metrics[name]] for name in CURVES if name in metrics},
        "seconds": _number(metrics["cost/update_seconds"].sum()) if len(metrics) else 0.0, "evaluations": evaluations,
    }


def _number(value) -> float | None:
    return None if value != value else round(float(value), 6)


def append_result(path: Path, row: dict) -> bool:
    """Append unless a row with the same configuration hash and source is there; returns whether it was appended."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        same = [r for r in tail_rows(path)[0] if r["config_hash"] == row["config_hash"] and r["code"] == row["code"]]
        if not same:
            append_line(path, row)
        return not same
