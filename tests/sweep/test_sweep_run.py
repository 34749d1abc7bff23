"""Exactly the unfinished cells run again, and only whole results count."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from seedlab.cli.main import main
from seedlab.errors import UserError
from seedlab.jobs import attach, group, submission
from seedlab.store.files import read_json, write_json
from seedlab.sweep import read_sweep, run_sweep, summary
from seedlab.sweep.run import failures
from seedlab.sweep.state import cell_states

TEXT = "preset: micro\ngrid: {method: [grpo, seed], seed: [0, 1]}\nat_most: 4\n"
NAMES = [f"method={m},seed={s}" for m in ("grpo", "seed") for s in (0, 1)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the sweep ab.yaml, in which runs are made by fake_trainer; what is left of its jobs is ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    fake = str(Path(__file__).with_name("fake_trainer.py"))
    monkeypatch.setattr(submission, "seedlab_argv", lambda *arguments: [sys.executable, fake, *arguments])
    monkeypatch.setattr(submission, "snapshot_code", lambda run: None)
    (tmp_path / "ab.yaml").write_text(TEXT)
    yield tmp_path
    for job in (tmp_path / "runs").rglob("job.json"):
        for pid in group.members(attach(job.parent).record):
            os.kill(pid, signal.SIGKILL)


def starts(folder):
    file = folder / "runs" / "ab" / "starts.txt"
    return sorted(file.read_text().splitlines()) if file.exists() else []


def out(folder, name):
    (folder / "runs" / "ab").mkdir(parents=True, exist_ok=True)
    return folder / "runs" / "ab" / name


def test_a_sweep_runs_every_cell_and_then_none(folder, capsys):
    assert main(["sweep", "ab.yaml", "--dry-run"]) == 0
    assert capsys.readouterr().out.count("missing") == 4 and not (folder / "runs").exists()
    assert main(["sweep", "ab.yaml"]) == 0
    text = capsys.readouterr().out
    assert "ab: 4 cells, 0 finished, 0 running or queued, 4 to start" in text and "[" in text
    index = pd.read_csv("runs/ab/index.csv")
    assert index["cell"].tolist() == NAMES and set(index["state"]) == {"done"}
    panel = next(c for c in index.columns if c.endswith("/success_micro"))
    assert index[panel].tolist() == [0.0, 0.25, 0.5, 0.75]
    pd.testing.assert_frame_equal(pd.read_parquet("runs/ab/index.parquet")[["cell", panel]], index[["cell", panel]], check_dtype=False)
    assert starts(folder) == sorted(f"train {name}" for name in NAMES)
    assert main(["sweep", "ab.yaml"]) == 0
    assert "4 cells, 4 finished, 0 running or queued, 0 to start" in capsys.readouterr().out
    assert len(starts(folder)) == 4


def test_failed_and_killed_cells_run_again_and_are_never_averaged_in(folder, capsys):
    out(folder, f"{NAMES[1]}.fail").touch()
    out(folder, f"{NAMES[3]}.hang").touch()
    sweep = read_sweep("ab.yaml")
    run_sweep(sweep, wait=False, say=lambda text: None)
    killed = attach(out(folder, NAMES[3]))
    deadline = time.monotonic() + 60
    while "up" not in killed.logs() or not (killed.path / "config.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for pid in reversed(group.members(killed.record)):  # the command, and its launcher
        os.kill(pid, signal.SIGKILL)
    for name in NAMES[:3]:
        attach(out(folder, name)).wait(60)
    while group.members(killed.record):  # a killed process may take a moment to be gone
        assert time.monotonic() < deadline
        time.sleep(0.05)
    states = cell_states(sweep)
    assert [s.state for s in states] == ["done", "failed", "done", "lost"]
    means = summary(sweep, states)
    micro = means[means["measure"] == "success_micro"].drop_duplicates("method").set_index("method")
    assert micro["mean"].to_dict() == {"grpo": 0.0, "seed": 0.5}
    assert micro["finished"].tolist() == [1, 1] and micro["of"].tolist() == [2, 2]
    assert [line.split(":")[0] for line in failures(sweep, states)] == [NAMES[1], NAMES[3]]
    out(folder, f"{NAMES[3]}.hang").unlink()
    assert main(["sweep", "ab.yaml"]) == 1  # one fails still
    assert f"1 of 4 cells are not finished; the same command runs exactly these again:\n  {NAMES[1]}: failed, asked to fail" in capsys.readouterr().out
    out(folder, f"{NAMES[1]}.fail").unlink()
    assert main(["sweep", "ab.yaml"]) == 0
    assert starts(folder) == sorted([*(f"train {name}" for name in NAMES), f"resume {NAMES[3]}", f"resume {NAMES[1]}", f"resume {NAMES[1]}"])


def test_a_running_cell_is_watched_and_not_started_twice(folder):
    out(folder, f"{NAMES[0]}.hang").touch()
    sweep = read_sweep("ab.yaml")
    run_sweep(sweep, wait=False, say=lambda text: None)
    said = []
    run_sweep(sweep, wait=False, say=said.append)
    assert "0 to start" in said[0] or "running" in said[0]
    out(folder, f"{NAMES[0]}.hang").unlink()
    assert all(s.finished for s in run_sweep(sweep, say=said.append))
    assert len(starts(folder)) == 4


def test_a_cell_with_a_row_in_the_results_is_not_run(folder):
    (folder / "ab.yaml").write_text(TEXT + "results: rows/ab.jsonl\n")
    sweep = read_sweep("ab.yaml")
    states = run_sweep(sweep, say=lambda text: None)
    rows = [json.loads(line) for line in (folder / "rows" / "ab.jsonl").read_text().splitlines()]
    assert sorted((r["method"], r["seed"]) for r in rows) == [("grpo", 0), ("grpo", 1), ("seed", 0), ("seed", 1)]
    elsewhere = read_sweep("ab.yaml")
    elsewhere = replace(elsewhere, out=Path("runs/other"), cells=[replace(c, folder=Path("runs/other") / c.name) for c in elsewhere.cells])
    again = run_sweep(elsewhere, say=lambda text: None)
    assert [s.state for s in again] == ["recorded"] * 4 and [s.scores for s in again] == [s.scores for s in states]
    assert sorted(p.name for p in (folder / "runs" / "other").iterdir() if not p.name.startswith(".")) == ["index.csv", "index.parquet"]


def test_other_settings_and_damaged_results_are_errors(folder):
    sweep = read_sweep("ab.yaml")
    run_sweep(sweep, say=lambda text: None)
    config = out(folder, NAMES[0]) / "config.json"
    kept = config.read_text()
    write_json(config, read_json(config) | {"seed": 5})
    with pytest.raises(UserError, match="method=grpo,seed=0 holds a run with other settings than cell"):
        run_sweep(sweep, say=lambda text: None)
    config.write_text(kept)
    next(out(folder, NAMES[0]).glob("eval/*/summary.json")).write_text("{")
    states = run_sweep(sweep, say=lambda text: None)
    assert states[0].state == "damaged" and "summary.json" in states[0].error and states[0].scores == {}
    assert summary(sweep, states)["finished"].tolist().count(1) > 0 and len(failures(sweep, states)) == 1
    assert len(starts(folder)) == 4


def test_a_run_that_ended_after_stage1_is_not_finished(folder):
    sweep = read_sweep("ab.yaml")
    run_sweep(sweep, say=lambda text: None)
    status = out(folder, NAMES[0]) / "status.json"
    write_json(status, read_json(status) | {"links": [{"name": "stage2", "state": "left out", "seconds": None}]})
    assert cell_states(sweep)[0].state == "unfinished"
    assert run_sweep(sweep, say=lambda text: None)[0].state == "done"
    assert f"resume {NAMES[0]}" in starts(folder)
