"""What a run folder says at this moment, read bit by bit; damaged or missing parts become words, never an exception."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from seedlab.errors import UserError
from seedlab.jobs import Job, LogReader
from seedlab.store.files import INFINITIES, Rewritten, tail_rows
from seedlab.store.reader import Run
from seedlab.store.shapes import check_event_row, check_metrics_row
from seedlab.store.status import LIVE, read_status

LOG_LINES = 12
SKILLS_SHOWN = 6
RECENT = 5  # updates whose pace the estimate follows
NOT_THERE = "not there"  # a state that only a watcher knows


@dataclass(frozen=True)
class SkillSeen:
    """A skill of the newest update, with what it was written about."""

    update: int
    goal: str
    success: bool
    text: str
    accepted: bool
    reason: str


@dataclass(frozen=True)
class WatchState:
    """One reading.  `state` is a status of `store.status` (also `lost`), or `not there`.

    `metrics` [updates]: the frame of `Run.metrics`; `planned` updates, 0 where unknown; `eta_s` seconds to the last
    update or None; `problems` are sentences on what could not be read.
    """

    path: Path
    time: float
    state: str = NOT_THERE
    stale: bool = False
    phase: str = ""
    done: int = 0
    total: int = 0
    note: str = ""
    error: str = ""
    started: float | None = None
    ended: float | None = None
    title: str = ""
    method: str = ""
    planned: int = 0
    metrics: pd.DataFrame = field(default_factory=pd.DataFrame)
    eta_s: float | None = None
    resumed: int = 0
    log: tuple[str, ...] = ()
    skills: tuple[SkillSeen, ...] = ()
    evaluations: pd.DataFrame = field(default_factory=pd.DataFrame)
    background: bool = False
    problems: tuple[str, ...] = ()

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def updates_done(self) -> int:
        return len(self.metrics)

    @property
    def elapsed_s(self) -> float | None:
        return None if self.started is None else (self.ended or self.time) - self.started


class Watcher:
    """Reads one folder again and again; of what only grows, it reads what is new."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._forget()

    def _forget(self) -> None:
        self._rows: list[dict] = []
        self._offset = 0
        self._log = LogReader(self.path / "log.txt")
        self._lines: list[str] = []
        self._run: Run | None = None
        self._skills_of: int | None = None
        self._skills: tuple[SkillSeen, ...] = ()
        self._pace: tuple[str, float, int] | None = None

    def read(self) -> WatchState:
        """The folder as it is now.  Never raises for what a run, a crash or a half-copied folder can leave there."""
        now = time.time()
        if not self.path.is_dir():
            self._forget()
            return WatchState(self.path, now)
        problems: list[str] = []
        facts = self._status(problems)
        facts |= self._configuration(problems)
        facts["metrics"] = self._metrics(problems)
        facts["log"] = self._tail()
        facts["resumed"] = self._guard(problems, self._resumes, 0)
        facts["skills"] = self._guard(problems, self._newest_skills, ())
        facts["evaluations"] = self._guard(problems, self._evaluated, pd.DataFrame())
        facts["eta_s"] = self._eta(facts, now)
        return WatchState(self.path, now, problems=tuple(dict.fromkeys(problems)), **facts)

    @staticmethod
    def _guard(problems: list[str], read, otherwise):
        try:
            return read()
        except UserError as error:
            problems.append(str(error))
            return otherwise

    def _status(self, problems: list[str]) -> dict:
        background = (self.path / "job.json").exists()
        if not (self.path / "status.json").exists():
            return {"state": NOT_THERE, "background": background}
        status = self._guard(problems, lambda: Job(self.path).status() if background else read_status(self.path), {})
        return {
            "state": status.get("state", "damaged"), "stale": status.get("stale", False), "phase": status.get("phase", ""),
            "done": status.get("done", 0), "total": status.get("total", 0), "note": status.get("note", ""), "error": status.get("error") or "",
            "started": status.get("started"), "ended": status.get("ended"), "background": background,
        }  # fmt: skip

    def _configuration(self, problems: list[str]) -> dict:
        if not (self.path / "config.json").exists():
            return {"title": self.path.name}
        if self._run is None:
            self._run = Run(self.path)
        cfg = self._guard(problems, lambda: self._run.config, None)
        if cfg is None:
            return {"title": self.path.name}
        return {"title": f"{cfg.method} on {cfg.preset}, seed {cfg.seed}", "method": cfg.method, "planned": cfg.stage2.updates}

    def _metrics(self, problems: list[str]) -> pd.DataFrame:
        try:
            rows, self._offset = tail_rows(self.path / "metrics.jsonl", self._offset, check_metrics_row)
        except Rewritten:  # a resumed run discarded rows
            self._rows, self._offset = [], 0
            return self._metrics(problems)
        except UserError as error:
            problems.append(str(error))
            rows = []
        self._rows += rows
        plain = [{k: INFINITIES.get(v, v) if isinstance(v, str) else v for k, v in row.items()} for row in self._rows]
        return pd.DataFrame(plain)

    def _tail(self) -> tuple[str, ...]:
        self._lines = (self._lines + self._log.poll())[-LOG_LINES:]
        lines = self._lines + ([self._log.current] if self._log.current else [])
        return tuple(lines[-LOG_LINES:])

    def _resumes(self) -> int:
        rows, _ = tail_rows(self.path / "events.jsonl", check=check_event_row)
        return sum(row.get("kind") == "resumed" for row in rows)

    def _newest_skills(self) -> tuple[SkillSeen, ...]:
        if self._run is None or not self._run.updates:
            return ()
        update = self._run.updates[-1]
        if update != self._skills_of:
            written, played = self._run.skills(update), self._run.trajectories(update).set_index("id")
            # One of each task before the second of any: a group's skills are much alike.
            order = written.assign(task=written["trajectory"].map(played["task"])).groupby("task", sort=False).cumcount().sort_values(kind="stable").index
            self._skills = tuple(
                SkillSeen(update, played.loc[r["trajectory"], "goal"], bool(played.loc[r["trajectory"], "success"]), r["text"] or r["raw"], bool(r["accepted"]), r["reason"])
                for r in written.loc[order].head(SKILLS_SHOWN).to_dict("records")
            )
            self._skills_of = update
        return self._skills

    def _evaluated(self) -> pd.DataFrame:
        return pd.DataFrame() if self._run is None else self._run.evaluations

    def _eta(self, facts: dict, now: float) -> float | None:
        """Seconds to the end of Stage 2 from the pace of its latest updates; before it begins, to the end of the phase
        from the pace seen since the watcher first saw it."""
        if facts.get("state") != "running":
            return None
        metrics, planned = facts["metrics"], facts.get("planned", 0)
        left = planned - len(metrics)
        if planned and len(metrics) and left > 0 and "cost/update_seconds" in metrics:
            pace = float(metrics["cost/update_seconds"].tail(RECENT).mean())
            since = now - float(metrics["time"].iloc[-1])
            return max(0.0, left * pace - min(since, pace))
        phase, done, total = facts["phase"], facts["done"], facts["total"]
        if self._pace is None or self._pace[0] != phase or done < self._pace[2]:
            self._pace = (phase, now, done)
        begun, first = self._pace[1:]
        return (now - begun) * (total - done) / (done - first) if done > first and total > done else None
