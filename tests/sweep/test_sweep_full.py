"""Sweeps of notebooks and of real runs, with everything that can go wrong on the way."""

import os
import signal
import sys
import time

import nbformat
import pandas as pd
import pytest

from seedlab.cli.main import main
from seedlab.jobs import attach, group
from seedlab.jobs.notebooks import failed_file
from seedlab.store import open_run
from seedlab.sweep import read_sweep, run_sweep
from seedlab.sweep.state import cell_states

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

# What happens in the cell depends on the parameter, until a file named `mended` is there.
CELL = """
import os, signal, sys, time
from pathlib import Path
with open('starts.txt', 'a') as log:
    log.write(f'{mode}{seed} ')
if mode != 'good' and not Path('mended').exists():
    if mode == 'error': raise RuntimeError('no such run')
    if mode == 'kernel': os.kill(os.getpid(), signal.SIGKILL)
    if mode == 'exit': sys.exit(0)
    if mode == 'runner': time.sleep(300)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    yield tmp_path
    for job in (tmp_path / "runs").rglob("job.json"):
        for pid in group.members(attach(job.parent).record):
            os.kill(pid, signal.SIGKILL)


def wait_for(condition, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_sweep_of_notebooks_runs_exactly_the_unfinished_ones_again(folder, capsys):
    cells = [nbformat.v4.new_code_cell("mode = 'good'\nseed = 0", metadata={"tags": ["parameters"]}), *map(nbformat.v4.new_code_cell, (CELL, "print('end')"))]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), "nb.ipynb")
    (folder / "nb.yaml").write_text("notebook: nb.ipynb\ngrid: {mode: [good, error, kernel, exit, runner], seed: [1]}\nat_most: 2\n")
    sweep = read_sweep("nb.yaml")
    run_sweep(sweep, wait=False, say=lambda text: None)
    starts = folder / "starts.txt"
    wait_for(lambda: starts.exists() and "runner1" in starts.read_text())
    killed = attach(sweep.cells[4].folder)
    for pid in group.members(killed.record):  # launcher, runner and kernel
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not any(s.state in ("queued", "running") for s in cell_states(sweep)))
    states = cell_states(sweep)
    assert [s.state for s in states] == ["done", "failed", "failed", "failed", "lost"]
    good = sweep.notebook_out(sweep.cells[0])
    assert good.exists() and good.stat().st_size < 1_000_000
    assert not any(sweep.notebook_out(cell).exists() for cell in sweep.cells[1:])
    assert "no such run" in failed_file(sweep.notebook_out(sweep.cells[1])).read_text()
    before = sorted(starts.read_text().split())
    (folder / "mended").touch()
    assert main(["sweep", "nb.yaml"]) == 0
    assert "4 to start" in capsys.readouterr().out
    again = sorted(starts.read_text().split())
    assert again == sorted([*before, "error1", "kernel1", "exit1", "runner1"])
    assert set(pd.read_csv("runs/nb/index.csv")["state"]) == {"done"}
    assert main(["sweep", "nb.yaml"]) == 0
    assert sorted(starts.read_text().split()) == again


def test_a_sweep_of_real_runs_survives_a_kill_and_keeps_a_signed_notebook_of_each(folder, own_cache, capsys):
    cells = [
        nbformat.v4.new_code_cell("run = ''", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("from seedlab.store import open_run\nprint(open_run(run).evaluations['panel'].tolist())"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), "report.ipynb")
    text = "preset: micro\ngrid: {method: [grpo, seed], seed: [0, 1]}\nat_most: 2\nresults: rows.jsonl\nnotebook: report.ipynb\n"
    (folder / "real.yaml").write_text(text)
    sweep = read_sweep("real.yaml")
    run_sweep(sweep, wait=False, say=lambda text: None)
    victim = attach(sweep.cells[3].folder)
    wait_for(lambda: (victim.path / "updates" / "000000" / "DONE").exists(), 600)
    for pid in group.members(victim.record):
        os.kill(pid, signal.SIGKILL)
    assert main(["sweep", "real.yaml"]) == 0, capsys.readouterr().out
    index = pd.read_csv("runs/real/index.csv")
    assert index["state"].tolist() == ["done"] * 4 and index["notebook"].str.endswith("notebook/report.ipynb").all()
    assert len((folder / "rows.jsonl").read_text().splitlines()) == 4
    assert [len(open_run(cell.folder).metrics) for cell in sweep.cells] == [cell.config.stage2.updates for cell in sweep.cells]
