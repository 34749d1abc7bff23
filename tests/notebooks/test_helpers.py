"""What the notebooks call before they look at a run."""

import os

import pytest
from example_runs import EXAMPLE

from seedlab import notebook
from seedlab.errors import ConfigError, UserError
from seedlab.jobs import JobError
from seedlab.store import RunError, open_run
from seedlab.store.status import read_status

DECLARED = "# Papermill replaces these values.\naction = 'show'\nrun = ''\nwait = False"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """An empty root of runs."""
    root = tmp_path / "runs"
    root.mkdir()
    monkeypatch.setenv("SEEDLAB_RUNS", str(root))
    return root


# ---- parameters


@pytest.mark.parametrize("injected", ["# Parameters\naction = 'submit'\nwait = True", "# Parameters\nrun = 'a'"])
def test_known_parameters_pass(injected):
    notebook.refuse_unknown_parameters(["", DECLARED, injected, "x = 1"])
    notebook.refuse_unknown_parameters(["", DECLARED])


def test_a_misspelt_parameter_is_refused_with_the_right_one():
    with pytest.raises(UserError, match=r"no parameter 'wiat'; did you mean 'wait'\? \(parameters: action, run, wait\)"):
        notebook.refuse_unknown_parameters(["", DECLARED, "# Parameters\nwiat = True"])


def test_the_last_run_of_a_cell_counts():
    notebook.refuse_unknown_parameters(["", DECLARED, "# Parameters\nwiat = True", "# Parameters\nwait = True"])
    with pytest.raises(UserError, match="parameters has not run"):
        notebook.refuse_unknown_parameters(["", "x = 1"])


# ---- finding runs


def test_the_nearest_runs_folder_is_the_root(tmp_path, monkeypatch):
    monkeypatch.delenv("SEEDLAB_RUNS", raising=False)
    (tmp_path / "runs").mkdir()
    (tmp_path / "notebooks" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "notebooks" / "deep")
    assert notebook.runs_root() == tmp_path / "runs"
    monkeypatch.setenv("SEEDLAB_RUNS", str(tmp_path / "elsewhere"))
    assert notebook.runs_root() == tmp_path / "elsewhere"


def test_a_run_is_found_by_name_and_by_path(monkeypatch):
    monkeypatch.setenv("SEEDLAB_RUNS", str(EXAMPLE.parent))
    assert notebook.find("example/seed-s0") == notebook.find(EXAMPLE / "seed-s0") == EXAMPLE / "seed-s0"
    assert notebook.choose_run("show", "example/seed-s0") == EXAMPLE / "seed-s0"
    with pytest.raises(JobError, match="did you mean '.*example/seed-s0'"):
        notebook.find("seed-s0")


def test_new_runs_get_new_folders(runs):
    assert notebook.new_folder("tiny", "seed/no-opd") == runs / "tiny-seed-no-opd"
    (runs / "tiny-seed-no-opd").mkdir()
    assert notebook.new_folder("tiny", "seed/no-opd") == runs / "tiny-seed-no-opd-2"


# ---- refusals before anything starts


def test_an_unknown_action_is_refused(runs):
    with pytest.raises(UserError, match="action='sumbit'; did you mean 'submit'"):
        notebook.choose_run("sumbit", "a")


def test_wrong_settings_start_nothing(runs):
    with pytest.raises(ConfigError, match="stage2.update"):
        notebook.choose_run("submit", preset="micro", overrides="stage2.update=4")
    with pytest.raises(ConfigError, match="grop"):
        notebook.choose_run("submit", preset="micro", method="grop")
    assert list(runs.iterdir()) == []


# ---- how far a run is


def test_a_finished_run_is_ready():
    for part in ("stage1", "stage2", "evaluation"):
        assert notebook.ready(EXAMPLE / "seed-s0", part).path == EXAMPLE / "seed-s0"


def test_a_run_on_its_way_says_how_far_it_is(tmp_path, micro):
    from seedlab.store import RunWriter

    writer = RunWriter.create(tmp_path / "run", micro())
    writer.start()
    try:
        for part in ("stage1", "stage2", "evaluation"):
            with pytest.raises(RunError, match=rf"no {part} yet: it is running, "):
                notebook.ready(tmp_path / "run", part)
    finally:
        writer.finish("failed", exit_code=1, error="made to fail")
    assert read_status(tmp_path / "run")["state"] == "failed"
    with pytest.raises(RunError, match="no stage1 yet: it is failed"):
        notebook.ready(tmp_path / "run", "stage1")


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(RunError, match="holds no config.json"):
        notebook.ready(tmp_path, "stage2")


def test_the_update_with_tokens_is_chosen():
    run = open_run(EXAMPLE / "seed-s0")
    assert notebook.update_with_tokens(run) == 4 and notebook.update_with_tokens(run, 2) == 2
    with pytest.raises(RunError, match=r"no update 3 with stored tokens \(store.tokens=2; stored: 0, 2, 4\)"):
        notebook.update_with_tokens(run, 3)


def test_a_failed_job_is_an_error_with_its_log(runs, tmp_path):
    import sys

    from seedlab.jobs import submit

    job = submit([sys.executable, "-c", "print('last words'); raise SystemExit(3)"], runs / "bad", queue=tmp_path / "queue", slots=1, snapshot=False)
    assert job.wait(60)["state"] == "failed"
    with pytest.raises(RunError, match=r"(?s)bad failed \(exit code 3\).*last words"):
        notebook.refuse_unfinished(runs / "bad")
    assert "SEEDLAB_RUNS" in os.environ
