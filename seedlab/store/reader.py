"""Reads a run folder as pandas frames."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path

import pandas as pd
import psutil

from seedlab.config.presets import from_json
from seedlab.config.schema import Config
from seedlab.store.errors import RunError
from seedlab.store.files import read_json, read_parquet, tail_rows
from seedlab.store.writer import DONE, stored_config_text

STALE_S = 60.0


def alive(pid: int, started: float) -> bool:
    """Whether that very process lives: a pid that another process took over is not it."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def open_run(path: str | Path) -> "Run":
    """The typed reader of a run folder.  Raises RunError where it is none."""
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"{path} is not a folder")
    if not (path / "config.json").exists():
        raise RunError(f"{path} holds no config.json, so it is not a run folder")
    return Run(path)


class Run:
    """Frames and records of one run; nothing is cached but the configuration."""

    def __init__(self, path: Path):
        self.path = path
        self.name = path.name

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.status['state']})"

    @cached_property
    def config(self) -> Config:
        return from_json(stored_config_text(self.path), str(self.path / "config.json"))

    @property
    def status(self) -> dict:
        """The runner's own status; `lost` where it says running but its process is gone."""
        file = self.path / "status.json"
        if not file.exists():
            return {"state": "queued", "phase": "", "done": 0, "total": 0}
        status = read_json(file)
        if status.get("schema_version") != 1:
            raise RunError(f"{file} has schema version {status.get('schema_version')}; this seedlab reads version 1")
        if status["state"] == "running" and not alive(status["pid"], status["process_started"]):
            status["state"] = "lost"
        status["stale"] = status["state"] == "running" and time.time() - status["heartbeat"] > STALE_S
        return status

    @property
    def manifest(self) -> dict:
        return read_json(self.path / "manifest.json")

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per update, columns `phase/name`."""
        return pd.DataFrame(tail_rows(self.path / "metrics.jsonl")[0])

    @property
    def events(self) -> pd.DataFrame:
        return pd.DataFrame(tail_rows(self.path / "events.jsonl")[0])

    @property
    def updates(self) -> list[int]:
        return self._numbers("updates")

    def _numbers(self, kind: str) -> list[int]:
        root = self.path / kind
        return sorted(int(p.name) for p in root.glob("[0-9]*") if (p / DONE).exists()) if root.is_dir() else []

    def _frame(self, kind: str, update: int, name: str) -> pd.DataFrame:
        folder = self.path / kind / f"{update:06d}"
        if not (folder / DONE).exists():
            known = self._numbers(kind)
            raise RunError(f"{folder} is not there or not complete; complete ones: {known or 'none'}")
        return read_parquet(folder / f"{name}.parquet")

    def trajectories(self, update: int) -> pd.DataFrame:
        return self._frame("updates", update, "trajectories")

    def steps(self, update: int) -> pd.DataFrame:
        return self._frame("updates", update, "steps")

    def skills(self, update: int) -> pd.DataFrame:
        return self._frame("updates", update, "skills")

    def tokens(self, trajectory: str | None = None, *, update: int | None = None) -> pd.DataFrame:
        """One row per sampled token, of one trajectory (by id) or of a whole update."""
        if update is None:
            if trajectory is None:
                raise ValueError("give a trajectory id or an update")
            update = int(trajectory.split("/", 1)[0][1:])
        frame = self._frame("updates", update, "tokens")
        return frame if trajectory is None else frame[frame["trajectory"] == trajectory].reset_index(drop=True)

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row per (update, panel) with macro and micro success."""
        rows = []
        for update in self._numbers("eval"):
            for panel, entry in read_json(self.path / "eval" / f"{update:06d}" / "summary.json").items():
                rows.append({"update": update, "panel": panel, **entry})
        return pd.DataFrame(rows)

    def episodes(self, update: int) -> pd.DataFrame:
        """One row per evaluated episode."""
        return self._frame("eval", update, "episodes")

    @property
    def stage1(self) -> dict | None:
        """Stage 1's record (acceptance, losses, acting before and after), or None where the run has none."""
        file = self.path / "stage1" / "stage1.json"
        return read_json(file) if file.exists() else None
