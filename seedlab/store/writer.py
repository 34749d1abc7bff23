"""Writes a run folder: the interface that jobs, notebooks, reports and the command line read."""

from __future__ import annotations

import fcntl
import json
import math
import numbers
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from seedlab.config.names import flatten
from seedlab.config.presets import from_json, to_json
from seedlab.config.schema import Config
from seedlab.store.errors import RunError
from seedlab.store.files import (
    NUMBER, SCHEMA_VERSION, append_line, disk_error, read_json, repair_lines, sweep_partials, tail_rows, write_folder, write_json, write_lines, write_text,
)  # fmt: skip
from seedlab.store.metrics import describe
from seedlab.store.shapes import check_event_row, check_metrics_row
from seedlab.store.status import ENDED, HEARTBEAT_S, StatusWriter
from seedlab.store.tables import write_table

DONE = "DONE"
# What a background job puts into the folder before the run itself starts; anything else means a folder of another kind.
JOB_FILES = {"job.json", "status.json", "log.txt", "code", "cancel.json", "job.sbatch", "requeues.json", "ray.txt"}


class RunWriter:
    """One process writes a run; `status.json` carries its pid, start time and heartbeat."""

    def __init__(self, path: Path, lock: int | None = None):
        self.path = Path(path)
        self._lock = lock
        self._status: StatusWriter | None = None
        self._last_update: int | None = None

    @classmethod
    def create(cls, path: str | Path, config: Config, *, resume: bool = False) -> "RunWriter":
        """A new run folder, or an existing one to go on with.

        Raises RunError where the folder holds another configuration, holds a run and `resume` is off, holds other
        things than a run, or is being written by another process.
        """
        path = Path(path)
        stored = path / "config.json"
        text = to_json(config)
        if stored.exists():
            if not resume:
                raise RunError(f"{path} already holds a run; `seedlab resume {path}` goes on with it, or choose another folder")
            _refuse_other_config(stored, text)
        elif path.exists():
            _refuse_foreign_folder(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(path, error) from error
        writer = cls(path, _lock_folder(path))
        sweep_partials(path)
        if not stored.exists():  # what the run began with stays as the manifest's hash has it, also under a later schema
            write_text(stored, text)
        for name in ("metrics.jsonl", "events.jsonl"):
            cut = repair_lines(path / name)
            if cut:
                writer.event("repaired", file=name, bytes_cut=cut)
        rows, _ = tail_rows(path / "metrics.jsonl", check=check_metrics_row)
        writer._last_update = rows[-1]["update"] if rows else None
        return writer

    # ---- status

    def start(self, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        """State running, with a heartbeat from a thread of its own."""
        self._status = StatusWriter(self.path, "running", heartbeat_s=heartbeat_s, phase="starting")

    def progress(self, phase: str, done: int, total: int, note: str = "") -> None:
        """Kept in memory; the heartbeat writes it."""
        self._started().change(phase=phase, done=done, total=total, note=note)

    def links(self, links: list[dict]) -> None:
        """The links of the run with their states, on disk at once."""
        self._started().write(links=links)

    def finish(self, state: str, *, exit_code: int, error: str | None = None) -> None:
        """state: succeeded | failed | cancelled | interrupted.  The folder is free for another writer afterwards."""
        if state not in ENDED:
            raise ValueError(f"{state!r} is no final state; use one of {', '.join(ENDED)}")
        try:
            self._started().close(state=state, exit_code=exit_code, error=error, ended=time.time())
        finally:
            self.release()

    def release(self) -> None:
        """Stop the heartbeat and let go of the folder, without a last word: a reader then finds the run lost."""
        if self._status is not None:
            self._status.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _started(self) -> StatusWriter:
        if self._status is None:
            raise RuntimeError("call RunWriter.start() first")
        return self._status

    # ---- rows

    def manifest(self, content: Mapping) -> None:
        write_json(self.path / "manifest.json", {"schema_version": SCHEMA_VERSION, **content})

    def event(self, kind: str, **fields) -> None:
        """A line of events.jsonl; a field `update` lets it be discarded with that update on resume."""
        append_line(self.path / "events.jsonl", {"schema_version": SCHEMA_VERSION, "time": time.time(), "kind": kind, **fields})

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        """One row per update, in order.  Raises KeyError for a name that is not registered, TypeError for a value that
        is not a number; NaN is stored as null, which a reader shows as missing."""
        for name, value in values.items():
            describe(name)
            if not isinstance(value, numbers.Real):
                raise TypeError(f"metric {name!r} of update {update} is a {type(value).__name__}, not a number: {value!r}")
        if self._last_update is not None and update <= self._last_update:
            raise RunError(f"{self.path / 'metrics.jsonl'} already goes to update {self._last_update}; update {update} cannot follow")
        append_line(self.path / "metrics.jsonl", {"schema_version": SCHEMA_VERSION, "update": update, "time": time.time(), **values})
        self._last_update = update

    def update(self, update: int, frames: Mapping[str, pd.DataFrame]) -> None:
        """updates/NNNNNN with one parquet file per frame and the DONE marker; complete or absent.

        `frames` are tables of `store.schemas`; raises ValueError for columns that do not fit.
        """
        self._folder("updates", update, frames)

    def evaluation(
        self, update: int, episodes: pd.DataFrame, summary: Mapping[str, Mapping], prompt_skills: pd.DataFrame | None = None
    ) -> None:
        """eval/NNNNNN: one row per episode, and per panel its scores with the decoding and the panel's hash (E10).

        `prompt_skills` says which skill each episode had in its prompts, where they had one.
        Raises ValueError naming what a panel's summary lacks.
        """
        for panel, entry in summary.items():
            decoding = entry.get("decoding", {})
            missing = [k for k in ("panel_hash", "success_macro", "success_micro", "decoding") if k not in entry]
            missing += [f"decoding.{k}" for k in ("temperature", "top_p", "n", "seed") if k not in decoding]
            if missing:
                raise ValueError(f"the summary of panel {panel!r} lacks {', '.join(missing)}")

        def write_summary(folder: Path) -> None:
            write_json(folder / "summary.json", {"schema_version": SCHEMA_VERSION, "update": update, "panels": summary})

        frames = {"episodes": episodes} | ({} if prompt_skills is None else {"prompt_skills": prompt_skills})
        self._folder("eval", update, frames, write_summary)

    def _folder(self, kind: str, update: int, frames: Mapping[str, pd.DataFrame], more: Callable[[Path], None] | None = None) -> None:
        def fill(folder: Path) -> None:
            for name, frame in frames.items():
                write_table(folder / f"{name}.parquet", name, frame)
            if more is not None:
                more(folder)
            content = {"schema_version": SCHEMA_VERSION, "update": update, "rows": {n: len(f) for n, f in frames.items()}}
            write_json(folder / DONE, content)

        final = self.path / kind / f"{update:06d}"
        if final.exists():
            self._set_aside(kind, final)
        write_folder(final, fill)

    def _set_aside(self, kind: str, folder: Path) -> None:
        target = self.path / "discarded" / f"{kind}-{folder.name}-{time.time_ns()}"
        target.parent.mkdir(exist_ok=True)
        os.rename(folder, target)

    # ---- resume

    def discard_from(self, update: int) -> int:
        """Move what lies at or past `update` aside, when the checkpoint says that `update` is the next one: rows to
        metrics.discarded.jsonl and events.discarded.jsonl, folders to discarded/.

        Nothing is deleted, and nothing stays in both places, even where this is killed and repeated.  An evaluation of
        `update` itself stays: it was made before that update.  Returns the number of metric rows that were moved.
        """
        moved = self._discard_rows("metrics", lambda row: row["update"] >= update)
        self._discard_rows("events", lambda row: isinstance(row.get("update"), int) and row["update"] >= update)
        self._last_update = update - 1 if update > 0 else None
        for kind, first in (("updates", update), ("eval", update + 1)):
            for folder in sorted((self.path / kind).iterdir()) if (self.path / kind).is_dir() else []:
                if folder.name.startswith(".tmp-"):
                    shutil.rmtree(folder)  # never complete, and made again
                elif NUMBER.fullmatch(folder.name) and int(folder.name) >= first:
                    self._set_aside(kind, folder)
        return moved

    def _discard_rows(self, name: str, late: Callable[[dict], bool]) -> int:
        source, target = self.path / f"{name}.jsonl", self.path / f"{name}.discarded.jsonl"
        rows, _ = tail_rows(source, check={"metrics": check_metrics_row, "events": check_event_row}[name])
        moving = [row for row in rows if late(row)]
        if moving:
            repair_lines(target)
            # An earlier attempt, killed between the two writes, may have copied some already; rows carry their time.
            there = {json.dumps(row, sort_keys=True) for row in tail_rows(target)[0]}
            for row in moving:
                if json.dumps(row, sort_keys=True) not in there:
                    append_line(target, row)
            write_lines(source, [row for row in rows if not late(row)])
        return len(moving)


def stored_config_text(path: Path) -> str:
    """Text of config.json; RunError where the folder is no run."""
    read_json(path / "config.json")
    return (path / "config.json").read_text(encoding="utf-8")


def _refuse_other_config(stored: Path, text: str) -> None:
    # Read as a configuration, so that a run from before a key existed has that key's default.
    old = flatten(json.loads(to_json(from_json(stored.read_text(encoding="utf-8"), str(stored)))))
    new = flatten(json.loads(text))
    differing = [f"{key}: {old.get(key)!r} there, {new.get(key)!r} here" for key in {**old, **new} if old.get(key, math.nan) != new.get(key, math.nan)]
    if differing:
        raise RunError(f"{stored.parent} holds a run with another configuration ({'; '.join(differing)}); choose another folder")


def _refuse_foreign_folder(path: Path) -> None:
    if not path.is_dir():
        raise RunError(f"{path} is a file; a run needs a folder of its own")
    foreign = sorted(p.name for p in path.iterdir() if p.name not in JOB_FILES and not p.name.startswith("."))
    if foreign:
        raise RunError(f"{path} holds other things than a run ({', '.join(foreign[:3])}); choose a new or an empty folder")


def _lock_folder(path: Path) -> int:
    """A lock that the system frees when this process ends, however it ends."""
    handle = os.open(path / ".writer.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise RunError(f"another process is writing {path}; see `seedlab jobs`, or wait until it ends") from error
    return handle
