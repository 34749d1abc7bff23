"""What a run is called, the links that it is made of, and where it may be told to stop.  Neither torch nor pandas here."""

from __future__ import annotations

import json
from pathlib import Path

from seedlab.config.presets import from_json
from seedlab.config.schema import Config
from seedlab.store.errors import RunError
from seedlab.store.files import read_json, read_versioned

LINKS = ("base", "rollouts", "labels", "sft", "stage2", "evaluation")
LIBRARY = "skills/library.jsonl"  # of a run folder: its static skills
UNTIL = {"base": "base", "rollouts": "rollouts", "labels": "labels", "stage1": "sft", "stage2": "stage2"}


def complete(status: dict) -> bool:
    """Whether a status tells of a run that succeeded with every link of it: not one that was to stop after Stage 1."""
    return status["state"] == "succeeded" and all(link["state"] in ("done", "cached") for link in status.get("links", []))


def default_out(cfg: Config, root: str | Path = "runs") -> Path:
    """runs/<preset>-<method>-s<seed>, with slashes as dashes."""
    return Path(root) / f"{cfg.preset}-{cfg.method}-s{cfg.seed}".replace("/", "-").replace("*", "star")


def configuration_of(run: Path) -> Config:
    """The configuration that a run folder holds; of a job that was ended before its run began, the one it was
    submitted with.  Raises RunError where there is none."""
    stored, job = run / "config.json", run / "job.json"
    if not run.is_dir():
        raise RunError(f"{run} is not a folder; `seedlab jobs` lists runs")
    if not stored.exists() and job.exists():
        config = read_versioned(job).get("config")
        if config is None:
            raise RunError(f"{run} is a job, but not one of a run: submit its command again")
        return from_json(json.dumps(config), str(job))
    return from_json(json.dumps(read_json(stored)), str(stored))
