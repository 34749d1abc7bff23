"""``seedlab submit``: refused before anything starts, else a job that trains in the folder asked for."""

import json
import os
import subprocess
import sys

import pytest

from seedlab.cli import jobs_cli
from seedlab.cli.main import main
from seedlab.jobs import attach, submission
from seedlab.store.files import read_json


@pytest.fixture
def submitted(tmp_path, monkeypatch):
    """Runs in `tmp_path`; each submission is a real job whose command prints its own arguments instead of training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    monkeypatch.setattr(submission, "seedlab_argv", lambda *arguments: [sys.executable, "-c", show, *arguments])
    return tmp_path


def test_submit_trains_with_the_overrides_in_the_folder(submitted, capsys):
    assert main(["submit", "micro", "method=grpo", "seed=3", "stage2.betas=[0.8,0.9]", "model.revision=null", "--out", "runs/a", "--at-most", "1"]) == 0
    job = attach("runs/a")
    assert job.wait(20)["state"] == "succeeded", job.logs()
    assert capsys.readouterr().out.splitlines()[1:] == ["  seedlab logs runs/a -f", "  seedlab cancel runs/a"]
    command, preset, *settings, flag, out, resume = json.loads(job.logs())
    assert (command, preset, flag, out, resume) == ("train", "micro", "--out", str(submitted / "runs" / "a"), "--resume")
    from seedlab.config.presets import load_config

    config = load_config(preset, settings)
    assert (config.method, config.seed, config.stage2.betas) == ("grpo", 3, (0.8, 0.9))
    assert config.model_dump(mode="json") == job.record.config and job.record.slots == 1
    assert job.record.queue == str(submitted / "cache" / "queue")


def test_the_folder_has_the_name_that_train_would_choose_and_torch_stays_out(submitted, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would raise
    seen = []
    monkeypatch.setattr(jobs_cli, "submit_train", lambda *args, run_path, **options: seen.append((str(run_path), options["slots"])) or _stop())
    with pytest.raises(RuntimeError, match="seen enough"):
        main(["submit", "micro", "seed=3"])
    assert seen == [("runs/micro-seed-s3", None)]


def _stop():
    raise RuntimeError("seen enough")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["micro", "stage2.update=3"], "did you mean 'stage2.updates'"),
        (["mikro"], "did you mean 'micro'"),
        (["micro", "seed"], "'seed' is not an override"),
        (["micro", "--at-most", "0"], "--at-most: it has to be at least 1"),
        (["micro", "--at-most", "two"], "--at-most: 'two' is not a whole number"),
    ],
)
def test_a_mistake_is_told_with_exit_code_2_and_leaves_nothing(submitted, capsys, arguments, message):
    assert main(["submit", *arguments, "--out", "runs/a"]) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(submitted) == []


def test_a_folder_that_holds_a_run_is_refused(submitted, capsys):
    os.makedirs("runs/a")
    (submitted / "runs" / "a" / "config.json").write_text("{}")
    assert main(["submit", "micro", "--out", "runs/a"]) == 2
    assert "runs/a already holds a run" in capsys.readouterr().err
    assert read_json(submitted / "runs" / "a" / "config.json") == {}


def test_the_commands_load_neither_torch_nor_pandas():
    code = "import sys, seedlab.cli.main as m; m.build_parser(); print([x for x in ('torch', 'pandas') if x in sys.modules])"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "[]\n"
