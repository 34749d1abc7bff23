"""What a run is called, the links that it is made of, and where it may be told to stop.  Neither torch nor pandas here."""

from __future__ import annotations

import json
import os
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


def runs_root() -> Path:
    """Where runs lie: `SEEDLAB_RUNS`, else the nearest folder `runs` at or above the present folder, else `runs` here."""
    if given := os.environ.get("SEEDLAB_RUNS"):
        return Path(given)
    here = Path.cwd()
    return next((folder / "runs" for folder in (here, *here.parents) if (folder / "runs").is_dir()), here / "runs")


def places(name: str | Path, root: str | Path | None = None) -> list[Path]:
    """Where the run called `name` may lie, nearest first: that path, below the folder of runs (`runs_root` without
    `root`), and that path from the folder above it, below which notebooks lie."""
    root = runs_root() if root is None else Path(root)
    return list(dict.fromkeys((Path(name), root / name, root.parent / name)))


def located(name: str | Path) -> Path:
    """The first of `places` that is there, else `name`: of a run that may not have begun yet.  `jobs.find_run` refuses."""
    return next((place for place in places(name) if place.exists()), Path(name))


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
