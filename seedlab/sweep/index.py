"""The index of a sweep: one row per cell, results of finished cells alone, and their means over seeds."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pandas as pd

from seedlab.analysis.statistics import mean_interval
from seedlab.config.presets import config_hash
from seedlab.store.files import write_text
from seedlab.sweep.cells import Sweep
from seedlab.sweep.state import CellState


def sweep_frame(sweep: Sweep, states: Sequence[CellState]) -> pd.DataFrame:
    """Columns cell, state, every swept key, config_hash, PANEL/MEASURE of finished cells (missing elsewhere), seconds
    (s of wall time), run, notebook, error."""
    scored = list(dict.fromkeys(place for state in states for place in state.scores))
    rows = []
    for state in states:
        cell = state.cell
        scores = {f"{panel}/{measure}": state.scores.get((panel, measure)) for panel, measure in scored}
        rows.append(
            {"cell": cell.name, "state": state.state}
            | {key: _plain(cell.values.get(key)) for key in sweep.keys}
            | {"config_hash": "" if cell.config is None else config_hash(cell.config)}
            | scores
            | {"seconds": state.seconds, "run": str(cell.folder), "notebook": state.notebook, "error": state.error}
        )
    return pd.DataFrame(rows)


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) or value is None else json.dumps(value)


def write_index(sweep: Sweep, frame: pd.DataFrame) -> None:
    """index.csv and index.parquet in the sweep's folder, each replaced at once."""
    sweep.out.mkdir(parents=True, exist_ok=True)
    write_text(sweep.out / "index.csv", frame.to_csv(index=False))
    # a key may be a text in one cell and a number in another, which parquet has no column for
    mixed = [key for key in sweep.keys if frame[key].map(type).nunique() > 1]
    partial = sweep.out / f".index.{os.getpid()}.parquet"
    frame.assign(**{key: frame[key].map(json.dumps) for key in mixed}).to_parquet(partial, index=False)
    os.replace(partial, sweep.out / "index.parquet")


def summary(sweep: Sweep, states: Sequence[CellState]) -> pd.DataFrame:
    """Columns: the swept keys but the seed, panel, measure, mean, low, high (95 % t interval over seeds), finished, of.

    Only finished cells are averaged; `finished` and `of` say how many there are, so that a mean over fewer is seen.
    """
    keys = [key for key in sweep.keys if key != "seed"]
    groups: dict[str, list[CellState]] = {}
    for state in states:
        groups.setdefault(json.dumps([state.cell.values.get(key) for key in keys]), []).append(state)
    rows = []
    for members in groups.values():
        shared = {key: _plain(members[0].cell.values.get(key)) for key in keys}
        finished = [state for state in members if state.finished]
        for panel, measure in dict.fromkeys(place for state in finished for place in state.scores):
            if measure == "episodes":
                continue
            interval = mean_interval([s.scores[panel, measure] for s in finished if (panel, measure) in s.scores])
            rows.append(
                shared | {"panel": panel, "measure": measure, "mean": interval.estimate, "low": interval.low, "high": interval.high}
                | {"finished": interval.n, "of": len(members)}
            )  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else [*keys, "panel", "measure", "mean", "low", "high", "finished", "of"])
