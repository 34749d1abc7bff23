"""Runs a sweep: whatever is not finished goes into the queue; the jobs live on when this process does not."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from seedlab.jobs.job import Job
from seedlab.jobs.submission import seedlab_argv, submit, submit_resume, submit_train
from seedlab.store.status import LIVE
from seedlab.sweep.cells import Cell, Sweep
from seedlab.sweep.index import sweep_frame, write_index
from seedlab.sweep.state import CellState, cell_states

WATCH_S = 1.0
Say = Callable[[str], None]


def run_sweep(sweep: Sweep, *, wait: bool = True, say: Say = print) -> list[CellState]:
    """Submit every cell that is neither finished nor running, watch them to their end and write the index.

    With `wait=False` it returns as soon as all are submitted; the same call later goes on from what is there.
    Raises UserError before anything starts where a cell's folder holds another run.
    """
    with _alone(sweep):
        states = cell_states(sweep)
        todo = [s.cell for s in states if not s.finished and s.state not in LIVE and s.state != "damaged"]
        say(f"{sweep.name}: {len(states)} cells, {sum(s.finished for s in states)} finished, {sum(s.state in LIVE for s in states)} running or queued, {len(todo)} to start")
        for cell in todo:
            _submit(sweep, cell)
        _submit_reports(sweep, states)
    if wait:
        _watch(sweep, {s.cell.name: s.state for s in states}, say)
    states = cell_states(sweep)
    _record(sweep, states)
    write_index(sweep, sweep_frame(sweep, states))
    return states


@contextmanager
def _alone(sweep: Sweep) -> Iterator[None]:
    """Two calls at the same moment: the second one sees the jobs of the first one."""
    sweep.out.mkdir(parents=True, exist_ok=True)
    with open(sweep.out / ".sweep.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _options(sweep: Sweep) -> dict[str, Any]:
    return {"slots": sweep.at_most, "backend": sweep.backend, "scheduler_options": dict(sweep.scheduler_options)}


def _submit(sweep: Sweep, cell: Cell) -> Job:
    if cell.config is None:
        return _submit_notebook(sweep, cell)
    if (cell.folder / "config.json").exists():
        return submit_resume(cell.folder, results=sweep.results, **_options(sweep))
    return submit_train(sweep.preset, cell.overrides, run_path=cell.folder, results=sweep.results, **_options(sweep))


def _submit_notebook(sweep: Sweep, cell: Cell) -> Job:
    """Execute the cell's notebook as a job whose folder is the one that the executed notebook is kept in."""
    out = sweep.notebook_out(cell)
    parameters = [f"{key}={json.dumps(value)}" for key, value in sweep.notebook_parameters(cell).items()]
    argv = seedlab_argv("notebook", str(sweep.notebook.absolute()), str(out.absolute()), *parameters)
    return submit(argv, out.parent, **_options(sweep))


def _submit_reports(sweep: Sweep, states: list[CellState]) -> None:
    """The notebook of each finished run that has none yet."""
    if sweep.preset is None or sweep.notebook is None:
        return
    for state in states:
        if state.state == "done" and not state.notebook.endswith(".ipynb") and state.notebook not in LIVE:
            _submit_notebook(sweep, state.cell)


def _watch(sweep: Sweep, known: dict[str, str], say: Say) -> None:
    """Until every cell and every notebook has ended; says each change once.  Each run's notebook follows its run."""
    started: set[str] = set()
    while True:
        states = cell_states(sweep)
        for state in states:
            if known.get(state.cell.name) != state.state:
                known[state.cell.name] = state.state
                say(f"{state.cell.name}: {state.state}" + (f" ({state.error.splitlines()[0]})" if state.error and not state.finished else ""))
        fresh = [s for s in states if s.state == "done" and not s.notebook and s.cell.name not in started]
        started |= {s.cell.name for s in fresh}
        _submit_reports(sweep, fresh)
        if not any(s.state in LIVE or s.notebook in LIVE for s in states) and not (fresh and sweep.preset and sweep.notebook):
            return
        time.sleep(WATCH_S)


def _record(sweep: Sweep, states: list[CellState]) -> None:
    """A run that was finished before the sweep named a results file gets its row too."""
    if sweep.results is None:
        return
    from seedlab.store.reader import Run
    from seedlab.store.results import append_result, result_row

    for state in states:
        if state.state == "done" and state.cell.config is not None:
            append_result(sweep.results, result_row(Run(state.cell.folder)))


def failures(sweep: Sweep, states: list[CellState]) -> list[str]:
    """One line per cell that is not finished, or whose notebook is not."""
    found = []
    for state in states:
        if not state.finished:
            found.append(f"{state.cell.name}: {state.state}" + (f", {state.error}" if state.error else ""))
        elif state.state == "done" and sweep.notebook is not None and not state.notebook.endswith(".ipynb"):
            found.append(f"{state.cell.name}: its notebook {sweep.notebook.name} {state.notebook or 'has not run'}")
    return found

