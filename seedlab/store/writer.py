"""Writes a run folder: the interface that jobs, notebooks, reports and the command line read."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pandas as pd
import psutil

from seedlab.config.presets import to_json
from seedlab.config.schema import Config
from seedlab.store.errors import RunError
from seedlab.store.files import append_line, read_json, repair_lines, tail_rows, write_json, write_lines, write_parquet
from seedlab.store.metrics import describe

HEARTBEAT_S = 2.0
DONE = "DONE"


class RunWriter:
    """One process writes a run; `status.json` carries its pid, start time and heartbeat."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self._status: dict = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def create(cls, path: str | Path, config: Config, *, resume: bool = False) -> "RunWriter":
        """A new run folder, or an existing one to go on with.

        Raises RunError where the folder holds another configuration, or holds a run and `resume` is off.
        """
        path = Path(path)
        stored = path / "config.json"
        if stored.exists():
            if not resume:
                raise RunError(f"{path} already holds a run; `seedlab resume {path}` goes on with it, or choose another --out")
            if stored.read_text(encoding="utf-8") != to_json(config):
                raise RunError(f"{path} holds a run with another configuration (see {stored}); choose another --out")
        path.mkdir(parents=True, exist_ok=True)
        partial = path / ".config.json.tmp"
        partial.write_text(to_json(config), encoding="utf-8")
        os.replace(partial, stored)
        for name in ("metrics.jsonl", "events.jsonl"):
            repair_lines(path / name)
        return cls(path)

    # ---- status

    def start(self) -> None:
        process = psutil.Process()
        self._status = {
            "schema_version": 1, "state": "running", "pid": process.pid, "process_started": process.create_time(),
            "started": time.time(), "phase": "starting", "done": 0, "total": 0, "note": "", "exit_code": None, "error": None,
        }
        self._write_status()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            self._write_status()

    def _write_status(self) -> None:
        with self._lock:
            self._status["heartbeat"] = time.time()
            write_json(self.path / "status.json", self._status)

    def progress(self, phase: str, done: int, total: int, note: str = "") -> None:
        """Kept in memory; the heartbeat writes it."""
        with self._lock:
            self._status |= {"phase": phase, "done": done, "total": total, "note": note}

    def finish(self, state: str, *, exit_code: int, error: str | None = None) -> None:
        """state: succeeded | failed | cancelled | interrupted."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._status |= {"state": state, "exit_code": exit_code, "error": error, "ended": time.time()}
        self._write_status()

    # ---- rows

    def manifest(self, content: dict) -> None:
        write_json(self.path / "manifest.json", content)

    def event(self, kind: str, **fields) -> None:
        append_line(self.path / "events.jsonl", {"time": time.time(), "kind": kind, **fields})

    def metrics(self, update: int, values: dict[str, float]) -> None:
        """One row per update; a name that is not registered is refused."""
        for name in values:
            describe(name)
        append_line(self.path / "metrics.jsonl", {"update": update, "time": time.time(), **values})

    def update(self, update: int, frames: dict[str, pd.DataFrame]) -> None:
        """updates/NNNNNN with one parquet file per frame and the DONE marker; complete or absent."""
        self._folder("updates", update, frames)

    def evaluation(self, update: int, episodes: pd.DataFrame, summary: dict) -> None:
        def summary_file(folder: Path) -> None:
            write_json(folder / "summary.json", summary)

        self._folder("eval", update, {"episodes": episodes}, summary_file)

    def _folder(self, kind: str, update: int, frames: dict[str, pd.DataFrame], more=None) -> None:
        root = self.path / kind
        root.mkdir(exist_ok=True)
        partial, final = root / f".tmp-{update:06d}", root / f"{update:06d}"
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        for name, frame in frames.items():
            write_parquet(partial / f"{name}.parquet", frame)
        if more is not None:
            more(partial)
        (partial / DONE).write_text("")
        if final.exists():
            shutil.rmtree(final)
        os.replace(partial, final)

    # ---- resume

    def discard_from(self, update: int) -> int:
        """Move what lies at or past `update` aside: rows to metrics.discarded.jsonl, folders to discarded/.

        Returns the number of metric rows that were moved.
        """
        source = self.path / "metrics.jsonl"
        rows, _ = tail_rows(source)
        late = [r for r in rows if r["update"] >= update]
        if late:
            for row in late:
                append_line(self.path / "metrics.discarded.jsonl", row)
            write_lines(source, [r for r in rows if r["update"] < update])
        for kind, first in (("updates", update), ("eval", update + 1)):
            for folder in sorted((self.path / kind).glob("[0-9]*")) if (self.path / kind).is_dir() else []:
                if int(folder.name) >= first:
                    target = self.path / "discarded" / f"{kind}-{folder.name}-{time.time_ns()}"
                    target.parent.mkdir(exist_ok=True)
                    os.replace(folder, target)
        return len(late)


def stored_config_text(path: Path) -> str:
    """Text of config.json; RunError where the folder is no run."""
    read_json(path / "config.json")
    return (path / "config.json").read_text(encoding="utf-8")
