"""Reads a run folder as pandas frames."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

import pandas as pd

from seedlab.config.presets import from_json
from seedlab.config.schema import Config
from seedlab.episodes.records import Trajectory
from seedlab.errors import ConfigError
from seedlab.store.checkpoint import complete_checkpoints, verify_checkpoint
from seedlab.store.errors import RunError
from seedlab.store.files import INFINITIES, NUMBER, half_line, read_json, read_versioned, tail_rows
from seedlab.store.frames import records
from seedlab.store.schemas import TABLES
from seedlab.store.shapes import (
    DONE_FIELDS, MANIFEST_MORE, RESTORE, STAGE1_FIELDS, STAGE1_MORE, check_event_row, check_fields, check_metrics_row, check_summary,
)  # fmt: skip
from seedlab.store.stage1_files import LABELS, RECORD, SFT_ROWS, TRAJECTORIES, read_rows
from seedlab.store.status import read_status
from seedlab.store.schemas import TABLES
from seedlab.store.tables import read_table
from seedlab.store.writer import DONE, stored_config_text

_TRAJECTORY_ID = re.compile(r"[^/\d]*(\d+)/")


def open_run(path: str | Path) -> "Run":
    """The typed reader of a run folder.  Raises RunError where it is none."""
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"{path} is not a folder; `seedlab jobs` lists runs")
    if not (path / "config.json").exists():
        if (path / "job.json").exists():
            state = read_status(path)["state"] if (path / "status.json").exists() else "unknown"
            raise RunError(f"{path} is a job that is {state}; its run has not begun, so that there is nothing to read. `seedlab logs {path}` shows what it said")
        raise RunError(f"{path} holds no config.json, so it is not a run folder")
    return Run(path)


class Run:
    """Frames and records of one run; nothing is cached but the configuration.

    Every property raises RunError naming the file that is missing, damaged or of an unknown version.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        self.name = self.path.name

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def config(self) -> Config:
        try:
            return from_json(stored_config_text(self.path), str(self.path / "config.json"))
        except ConfigError as error:
            raise RunError(str(error)) from error

    @property
    def status(self) -> dict:
        """The runner's own status (`state`, `phase`, `done`, `total`, `exit_code`, `error`, …); `lost` where it says
        queued or running but its process is gone."""
        return read_status(self.path)

    @property
    def manifest(self) -> dict:
        file = self.path / "manifest.json"
        return check_fields(read_versioned(file), {}, file, optional=MANIFEST_MORE)

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per update: `update`, `time` (s since 1970) and columns `phase/name`, NaN where a row lacks one."""
        rows = self._lines("metrics", check_metrics_row)
        numbers = [row["update"] for row in rows]
        late = next((b for a, b in zip(numbers, numbers[1:]) if a >= b), None)
        if late is not None:
            raise RunError(f"{self.path / 'metrics.jsonl'} is damaged: update {late} stands out of order or twice; remove the line that is too much")
        frame = pd.DataFrame([{k: INFINITIES.get(v, v) if isinstance(v, str) else v for k, v in row.items()} for row in rows])
        if frame.empty:
            return pd.DataFrame({"update": pd.Series(dtype="int64"), "time": pd.Series(dtype="float64")})
        kinds = {name: "float64" for name in frame.columns if "/" in name}
        return frame.drop(columns="schema_version").astype(kinds | {"update": "int64"})

    @property
    def events(self) -> pd.DataFrame:
        """One row per event: `time`, `kind` and its fields."""
        rows = self._lines("events", check_event_row)
        return pd.DataFrame(rows, columns=None if rows else ["schema_version", "time", "kind"]).drop(columns="schema_version")

    def _lines(self, name: str, check) -> list[dict]:
        """Rows of a file of lines.  A writer at work, or one that was killed, may leave half a line; a run that succeeded cannot."""
        file = self.path / f"{name}.jsonl"
        rows, _ = tail_rows(file, check=check)
        cut = half_line(file)
        if cut and (self.path / "status.json").exists() and self.status["state"] == "succeeded":
            raise RunError(f"{file} is damaged: its last line is cut after {cut} bytes, although the run had ended; {RESTORE}")
        return rows

    @property
    def updates(self) -> list[int]:
        """Updates whose records are complete."""
        return self._numbers("updates")

    def _numbers(self, kind: str) -> list[int]:
        root = self.path / kind
        if not root.is_dir():
            return []
        found = sorted(int(p.name) for p in root.iterdir() if NUMBER.fullmatch(p.name))
        for number in found:
            # A folder gets its name when it is complete, so that one without the marker was damaged afterwards.
            self._folder(kind, number)
        return found

    def tables(self, kind: str, update: int) -> dict[str, int]:
        """{table: rows} of a complete folder below `updates` or `eval`, as its marker says."""
        folder = self._folder(kind, update)
        content = check_fields(read_versioned(folder / DONE), DONE_FIELDS, folder / DONE)
        if content["update"] != update:
            raise RunError(f"{folder / DONE} is damaged: it is of update {content['update']}; {RESTORE}")
        return content["rows"]

    def _frame(self, kind: str, update: int, name: str, **selection) -> pd.DataFrame:
        folder, rows = self._folder(kind, update), self.tables(kind, update)
        if name not in rows:
            why = f"store.tokens={self.config.store.tokens}" if name == "tokens" else "the run does not store it"
            raise RunError(f"{folder} holds no {name}.parquet: {why}")
        frame = read_table(folder / f"{name}.parquet", **selection)
        if not selection and len(frame) != rows[name]:
            raise RunError(f"{folder / name}.parquet has {len(frame)} rows, but {DONE} says {rows[name]}: it is damaged; {RESTORE}")
        return frame

    def _folder(self, kind: str, update: int) -> Path:
        folder = self.path / kind / f"{update:06d}"
        if not (folder / DONE).exists():
            if folder.exists():
                raise RunError(f"{folder} has no {DONE}, so that it is incomplete; restore it from a copy, or remove the folder to go without it")
            known = self._numbers(kind)
            raise RunError(f"{folder} is not there (complete ones: {', '.join(map(str, known)) or 'none'})")
        return folder

    def trajectories(self, update: int) -> pd.DataFrame:
        return self._frame("updates", update, "trajectories")

    def steps(self, update: int, *, trajectory: str | None = None) -> pd.DataFrame:
        """One row per environment step, of the whole update or of one trajectory alone."""
        selection = {} if trajectory is None else {"filters": [("trajectory", "=", trajectory)]}
        return self._frame("updates", update, "steps", **selection)

    def skills(self, update: int) -> pd.DataFrame:
        return self._frame("updates", update, "skills")

    def step_skills(self, update: int) -> pd.DataFrame:
        """Skills of single critical steps; empty where the run asks for none (objective.critical_steps)."""
        return self._optional(update, "step_skills")

    def more_skills(self, update: int) -> pd.DataFrame:
        """Further skills that a teacher read apart, under the trajectory that was taught (objective.average_skills)."""
        return self._optional(update, "more_skills")

    def _optional(self, update: int, name: str) -> pd.DataFrame:
        if name not in self.tables("updates", update):
            return pd.DataFrame({column: [] for column in TABLES[name].names})
        return self._frame("updates", update, name)

    def prompt_skills(self, update: int, kind: str = "updates") -> pd.DataFrame:
        """The skill in each trajectory's prompts and teacher's prompts, read back from their ids; `kind` eval: in its
        episodes' prompts.  Empty where no prompt had one, and in runs from before this was recorded."""
        if "prompt_skills" not in self.tables(kind, update):
            return pd.DataFrame(columns=TABLES["prompt_skills"].names)
        return self._frame(kind, update, "prompt_skills")

    def records(self, update: int) -> list[Trajectory]:
        """The update's trajectories as they were played, with their skills: enough to score a typed skill later."""
        return records(self.trajectories(update), self.steps(update), self.skills(update))

    def tokens(self, trajectory: str | None = None, *, update: int | None = None) -> pd.DataFrame:
        """One row per sampled token, of one trajectory (by id) or of a whole update."""
        if trajectory is None:
            if update is None:
                raise ValueError("give a trajectory id or an update")
            return self._frame("updates", update, "tokens")
        if update is None:
            found = _TRAJECTORY_ID.match(trajectory)
            if found is None:
                raise RunError(f"{trajectory!r} is no trajectory id; ids look like u12/TASK/n3")
            update = int(found[1])
        frame = self._frame("updates", update, "tokens", filters=[("trajectory", "=", trajectory)])
        if frame.empty and trajectory not in set(self._frame("updates", update, "trajectories", columns=["id"])["id"]):
            raise RunError(f"update {update} of {self.path} has no trajectory {trajectory!r}; .trajectories({update}) lists them")
        return frame

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row per (update, panel) with macro and micro success, decoding and the panel's hash."""
        rows = [{"panel": panel, **entry, "update": update} for update in self._numbers("eval") for panel, entry in self.summary(update).items()]
        return pd.DataFrame(rows, columns=None if rows else ["panel", "update"])

    def summary(self, update: int) -> dict[str, dict]:
        """{panel: its scores} of one evaluation, as summary.json has them."""
        file = self.path / "eval" / f"{update:06d}" / "summary.json"
        content = check_summary(read_versioned(file), file)
        if content["update"] != update:
            raise RunError(f"{file} is damaged: it is of update {content['update']}; {RESTORE}")
        return content["panels"]

    def episodes(self, update: int) -> pd.DataFrame:
        """One row per evaluated episode."""
        return self._frame("eval", update, "episodes")

    @property
    def stage1(self) -> dict | None:
        """Stage 1's record (acceptance, losses, acting before and after), or None where the run has none."""
        file = self.path / "stage1" / RECORD
        return check_fields(read_json(file), STAGE1_FIELDS, file, optional=STAGE1_MORE) if file.exists() else None

    def problems(self) -> list[str]:
        """Everything in the folder that cannot be read, one sentence each; empty for a sound run."""
        checks = [lambda: self.config, lambda: self.status, lambda: self.metrics, lambda: self.events, lambda: self.evaluations, lambda: self.stage1]
        kept = [name for name in (TRAJECTORIES, LABELS, SFT_ROWS) if (self.path / "stage1" / name).exists()]
        checks += [lambda name=name: read_rows(self.path, name) for name in kept]
        checks += [lambda number=number: verify_checkpoint(self.path / "checkpoints" / f"{number:06d}") for number in complete_checkpoints(self.path)]
        if (self.path / "manifest.json").exists():
            checks.append(lambda: self.manifest)
        for kind in ("updates", "eval"):
            root = self.path / kind
            for folder in sorted(root.iterdir()) if root.is_dir() else []:
                if NUMBER.fullmatch(folder.name):
                    checks.append(lambda kind=kind, number=int(folder.name): self._check_tables(kind, number))
        return [message for message in map(_problem, checks) if message]

    def _check_tables(self, kind: str, number: int) -> None:
        for name in self.tables(kind, number):
            self._frame(kind, number, name)


def _problem(check) -> str | None:
    try:
        check()
    except RunError as error:
        return str(error)
    return None
