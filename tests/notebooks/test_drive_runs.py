"""`papermill … -p action submit -p wait true`: notebooks that start real runs as background jobs, and fail where these fail."""

import json
import os
import subprocess
import sys

import pytest
from example_runs import EXAMPLE, ROOT

from seedlab.store import open_run

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture
def papermill(tmp_path, own_cache):
    """papermill(stem, *parameters): (exit code, all that was printed, the executed notebook)."""
    pytest.importorskip("papermill", reason="running notebooks needs the extra `notebooks`")
    pytest.importorskip("ipykernel", reason="running notebooks needs the extra `notebooks`")

    def run(stem, *parameters):
        out = tmp_path / f"{stem}.ipynb"
        options = [word for name, value in parameters for word in ("-p", name, value)]
        done = subprocess.run(
            [sys.executable, "-m", "papermill", "--no-progress-bar", str(ROOT / "notebooks" / f"{stem}.ipynb"), str(out), *options],
            env=os.environ | {"PYTHONPATH": str(ROOT), "SEEDLAB_RUNS": str(tmp_path / "runs"), "SEEDLAB_CACHE": str(own_cache)},
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr, json.loads(out.read_text()) if out.exists() else None

    (tmp_path / "runs").mkdir()
    return run


SUBMIT = (("action", "submit"), ("wait", "true"), ("preset", "micro"))


def test_02_runs_stage_1_and_no_more(papermill, tmp_path):
    code, said, executed = papermill("02_stage1_sft", *SUBMIT, ("out", "runs/own"))
    assert code == 0, said[-2000:]
    run = open_run(tmp_path / "runs" / "own")
    assert run.status["state"] == "succeeded" and run.stage1["labels"] == run.config.stage1.tasks * run.config.stage1.rollouts_per_task
    assert run.updates == [] and len(run.evaluations) == 0
    assert (tmp_path / "02_stage1_sft.ipynb").stat().st_size < 1_000_000
    code, said, _ = papermill("03_stage2_seed", ("action", "resume"), ("run", "own"), ("wait", "true"), ("baseline", ""))
    assert code == 0, said[-2000:]
    assert run.updates == list(range(run.config.stage2.updates)) and len(run.evaluations) == 2


def test_03_makes_a_whole_run_and_a_loop_makes_several(papermill, tmp_path):
    for seed in (0, 1):
        code, said, _ = papermill("03_stage2_seed", *SUBMIT, ("overrides", f"seed={seed} stage2.updates=1"), ("baseline", ""))
        assert code == 0, said[-2000:]
    runs = [open_run(tmp_path / "runs" / name) for name in ("micro-seed", "micro-seed-2")]
    assert [run.config.seed for run in runs] == [0, 1] and [run.updates for run in runs] == [[0], [0]]
    assert all(run.status["state"] == "succeeded" and (run.path / "job.json").exists() for run in runs)


def test_a_run_that_fails_fails_the_notebook(papermill, tmp_path):
    code, said, executed = papermill("03_stage2_seed", *SUBMIT, ("overrides", "stage2.learning_rate=1e30"), ("baseline", ""))
    assert code != 0 and "lower stage2.learning_rate" in said
    assert open_run(tmp_path / "runs" / "micro-seed").status["state"] == "failed"


@pytest.mark.parametrize("stem, wrong, complaint", [
    ("02_stage1_sft", ("wiat", "true"), "no parameter 'wiat'; did you mean 'wait'"),
    ("03_stage2_seed", ("overides", "seed=1"), "no parameter 'overides'; did you mean 'overrides'"),
    ("03_stage2_seed", ("overrides", "stage2.update=1"), "stage2.update"),
    ("03_stage2_seed", ("overrides", "stage1.tasks=9"), "panel stage1 has 8 tasks"),
])  # fmt: skip
def test_what_is_misspelt_starts_nothing(papermill, tmp_path, stem, wrong, complaint):
    code, said, _ = papermill(stem, *SUBMIT, wrong)
    assert code != 0 and complaint in said
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_misspelt_parameter_of_a_reader_is_refused(papermill):
    code, said, _ = papermill("04_analysis", ("runs", str(EXAMPLE)), ("leval", "0.5"))
    assert code != 0 and "no parameter 'leval'; did you mean 'level'" in said
