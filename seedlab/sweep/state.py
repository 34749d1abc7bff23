"""What there is of a cell: only what is whole counts as done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seedlab.config.presets import config_hash
from seedlab.errors import UserError
from seedlab.jobs.job import Job
from seedlab.jobs.notebooks import is_done
from seedlab.store.files import read_json, read_versioned, tail_rows
from seedlab.store.layout import complete, configuration_of
from seedlab.store.status import read_status
from seedlab.sweep.cells import Cell, Sweep

FINISHED = ("done", "recorded")
MEASURES = ("success_macro", "success_micro", "episodes")


@dataclass(frozen=True)
class CellState:
    """`state`: done, recorded (a row of the results file says so), missing, damaged, or the state of its job.

    `scores` is {(panel, measure): value}, and empty unless the cell is finished.  `seconds` is the wall time of its last job.
    """

    cell: Cell
    state: str
    error: str = ""
    scores: Mapping[tuple[str, str], float] = field(default_factory=dict)
    seconds: float | None = None
    notebook: str = ""

    @property
    def finished(self) -> bool:
        return self.state in FINISHED


def cell_states(sweep: Sweep) -> list[CellState]:
    """One state per cell, in order.  Raises UserError where a cell's folder holds a run with other settings."""
    rows = recorded_rows(sweep.results)
    return [cell_state(sweep, cell, rows) for cell in sweep.cells]


def recorded_rows(results: Path | None) -> dict[str, dict]:
    """{hash of the configuration: last row} of a results file."""
    return {} if results is None else {row["config_hash"]: row for row in tail_rows(results)[0]}


def cell_state(sweep: Sweep, cell: Cell, rows: Mapping[str, dict]) -> CellState:
    if cell.config is None:
        return _notebook_state(sweep, cell)
    row = rows.get(config_hash(cell.config))
    if (cell.folder / "status.json").exists() or (cell.folder / "job.json").exists():
        state = _run_state(sweep, cell)
        if state.finished or row is None or state.state in ("queued", "running"):
            return state
    if row is not None:
        return CellState(cell, "recorded", scores=_scores(row["evaluations"]), seconds=row.get("seconds"))
    return CellState(cell, "missing")


def _notebook_state(sweep: Sweep, cell: Cell) -> CellState:
    out = sweep.notebook_out(cell)
    status = _status(cell.folder)
    if status is not None and status["state"] in ("queued", "running"):
        return CellState(cell, status["state"])
    if is_done(sweep.notebook, out, sweep.notebook_parameters(cell)):
        return CellState(cell, "done", seconds=_seconds(status), notebook=str(out))
    if status is None:
        return CellState(cell, "missing")
    if status["state"] == "succeeded":
        return CellState(cell, "missing", error="the notebook or its parameters were changed since")
    return CellState(cell, status["state"], error=status["error"] or "", seconds=_seconds(status))


def _run_state(sweep: Sweep, cell: Cell) -> CellState:
    refuse_other_run(cell)
    status = _status(cell.folder)
    if status is None:
        return CellState(cell, "missing")
    if not complete(status):
        state = status["state"] if status["state"] != "succeeded" else "unfinished"
        return CellState(cell, state, error=status["error"] or "", seconds=_seconds(status))
    try:
        scores = _scores(_evaluation(cell))
    except UserError as error:
        return CellState(cell, "damaged", error=str(error))
    return CellState(cell, "done", scores=scores, seconds=_seconds(status), notebook=_report(sweep, cell))


def refuse_other_run(cell: Cell) -> None:
    """Raises UserError where the folder of a cell was made with other settings."""
    if configuration_of(cell.folder) != cell.config:
        raise UserError(f"{cell.folder} holds a run with other settings than cell {cell.name}; choose another `out`, or remove the folder")


def _status(folder: Path) -> dict | None:
    if not (folder / "status.json").exists():
        return None
    return Job(folder).status() if (folder / "job.json").exists() else read_status(folder)


def _seconds(status: dict | None) -> float | None:
    return None if status is None or "ended" not in status else round(status["ended"] - status["started"], 1)


def _evaluation(cell: Cell) -> dict[str, dict]:
    """The panels of the evaluation at the last update, every one of the configuration; raises UserError otherwise."""
    folder = cell.folder / "eval" / f"{cell.config.stage2.updates:06d}"
    if not cell.config.evaluation.panels:
        return {}
    read_json(folder / "DONE")
    panels = read_versioned(folder / "summary.json")["panels"]
    lacking = sorted(set(cell.config.evaluation.panels) - set(panels))
    if lacking:
        raise UserError(f"{folder} lacks panel {', '.join(lacking)}")
    return panels


def _scores(panels: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    return {(panel, measure): entry[measure] for panel, entry in panels.items() for measure in MEASURES}


def _report(sweep: Sweep, cell: Cell) -> str:
    """The path of the executed notebook, or what there is of it."""
    if sweep.notebook is None:
        return ""
    out = sweep.notebook_out(cell)
    if is_done(sweep.notebook, out, sweep.notebook_parameters(cell)):
        return str(out)
    status = _status(out.parent)
    return "" if status is None or status["state"] == "succeeded" else status["state"]
