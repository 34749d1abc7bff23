"""train, resume, rollout, evaluate, trace and envs from the command line."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from seedlab.cli.main import main
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.store.stage1_files import SFT_ROWS, read_rows


@pytest.fixture
def seedlab(capsys):
    """seedlab(*argv): exit code, stdout, stderr."""

    def run(*argv):
        capsys.readouterr()
        code = main([str(a) for a in argv])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def task(finished):
    return finished.manifest["panel_tasks"]["dev"][0]


@pytest.fixture
def saved(seedlab, finished, task, tmp_path):
    """A saved rollout of the finished run's policy."""
    file = tmp_path / "rollout.json"
    code, out, _ = seedlab("rollout", task, "--preset", "micro", "--model", finished.path, "--save", file)
    assert code == 0
    assert f"saved to {file}" in out
    return file


# ---- wrong input


@pytest.mark.parametrize(
    "argv, complaint",
    [
        (["train", "micro", "stage2.group_sise=4"], "did you mean 'stage2.group_size'"),
        (["train", "micro", "group_size=4"], "did you mean 'stage2.group_size'"),
        (["train", "mikro"], "did you mean 'micro'"),
        (["train", "micro", "method=grop"], "did you mean 'grpo'"),
        (["train", "micro", "stage2.updates=-1"], "stage2.updates"),
        (["trian", "micro"], "did you mean 'train'"),
        (["rollout", "--preset", "micro"], "give a TASK, or --replay FILE"),
        (["envs", "micro", "env.name=houshold"], "did you mean 'household'"),
    ],
)
def test_a_mistake_ends_with_code_2_and_the_closest_name(seedlab, tmp_path, argv, complaint):
    code, out, err = seedlab(*argv, *(["--out", tmp_path / "run"] if argv[0] == "train" else []))
    assert code == 2
    assert complaint in err
    assert not (tmp_path / "run").exists()


def test_resuming_what_is_no_run_is_refused(seedlab, tmp_path):
    code, _, err = seedlab("resume", tmp_path)
    assert code == 2
    assert str(tmp_path) in err


# ---- train, resume


def test_a_finished_run_is_shown_and_resumed_to_the_same(seedlab, finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    code, out, _ = seedlab("resume", tmp_path / "run", "--results", tmp_path / "results.jsonl")
    assert code == 0
    rows = finished.evaluations.set_index("panel")
    for panel in ("seen", "unseen"):
        assert f"  {panel:8s} success macro {rows.loc[panel, 'success_macro']:.3f}" in out
    code, out, _ = seedlab("train", "micro", "--out", tmp_path / "run", "--resume")
    assert code == 0
    code, _, err = seedlab("train", "micro", "--out", tmp_path / "run")
    assert (code, "already holds a run" in err) == (2, True)


def test_a_finished_run_keeps_what_it_said_when_it_is_resumed(seedlab, finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    before = (tmp_path / "run" / "status.json").read_text()
    assert seedlab("resume", tmp_path / "run")[0] == 0
    assert (tmp_path / "run" / "status.json").read_text() == before
    # with one link to make again, the others stay as they were said
    shutil.rmtree(tmp_path / "run" / "eval")
    assert seedlab("resume", tmp_path / "run")[0] == 0
    links = {link["name"]: link for link in json.loads((tmp_path / "run" / "status.json").read_text())["links"]}
    old = {link["name"]: link for link in json.loads(before)["links"]}
    assert [name for name in links if links[name] != old[name]] in (["evaluation"], [])
    assert links["stage2"]["state"] == "done"
    assert (tmp_path / "run" / "eval" / "000002" / "DONE").exists()


# ---- where nothing can be written


@pytest.fixture
def nowhere(tmp_path):
    """A path below a regular file: not even root can write there."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "out.json"


def test_no_command_works_before_it_finds_that_it_cannot_write(seedlab, finished, task, nowhere, monkeypatch):
    from seedlab.train import open_session, run
    from seedlab.views import report

    def worked(*args, **options):
        raise AssertionError("the work began")

    monkeypatch.setattr(open_session, "open_session", worked)
    monkeypatch.setattr(run, "RunWriter", worked)
    monkeypatch.setattr(report, "write_report", worked)
    for argv in (
        ["evaluate", "micro", "--model", finished.path, "--panel", "dev", "--out", nowhere],
        ["rollout", task, "--preset", "micro", "--model", finished.path, "--save", nowhere],
        ["report", finished.path, "--out", nowhere],
        ["train", "micro", "--out", nowhere.parent.parent / "run", "--results", nowhere],
        ["resume", finished.path, "--results", nowhere],
        ["submit", "micro", "--out", nowhere.parent.parent / "run", "--results", nowhere],
        ["submit", "micro", "--out", nowhere],
        ["envs", "manifest", "micro", "--out", nowhere],
        ["bench", "envs", "--results", nowhere],
        ["config", "--explain", "--write", nowhere],
    ):
        code, out, err = seedlab(*argv)
        assert (code, str(nowhere) in err, "Traceback" in err) == (2, True, False), (argv, out, err)
    assert not (nowhere.parent.parent / "run").exists()


def test_a_folder_in_place_of_a_report_gets_advice(seedlab, finished, tmp_path):
    code, _, err = seedlab("report", finished.path, "--out", tmp_path)
    assert (code, f"--out {tmp_path} is a folder; give a file, such as {tmp_path / 'report.html'}" in err) == (2, True)


@pytest.mark.parametrize("command", ["train", "submit"])
def test_a_cache_that_cannot_be_used_is_named_before_the_run(seedlab, nowhere, tmp_path, monkeypatch, command):
    monkeypatch.setenv("SEEDLAB_CACHE", str(nowhere))
    code, out, err = seedlab(command, "micro", "--out", tmp_path / "run")
    assert (code, str(nowhere) in err, "set SEEDLAB_CACHE" in err) == (2, True, True), (out, err)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("argv", [["plan", "tiny"], ["--help"], ["config", "tiny"], ["envs", "tiny"]], ids=" ".join)
def test_a_reader_that_has_gone_is_no_failure(argv):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "seedlab", *argv], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    # argparse itself passes over a reader of its help that has gone
    assert (done.returncode, done.stderr) == (0 if argv == ["--help"] else 141, "")


# ---- weights that diverge


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_run_that_diverges_says_where_and_keeps_its_checkpoint(seedlab, finished, tmp_path, minibatches):
    code, _, err = seedlab("train", "micro", "stage2.learning_rate=1e30", f"stage2.minibatches={minibatches}", "--out", tmp_path / "run")
    assert code == 1
    assert "error: update 0: " in err and "lower stage2.learning_rate=1e+30" in err and "checkpoint of update 0" in err
    assert ("after its last optimizer step" if minibatches == 1 else "the policy's own log-probs are broken") in err
    assert latest_checkpoint(tmp_path / "run")[0] == 0
    # it resumes from there, to the same end
    assert seedlab("resume", tmp_path / "run")[0] == 1


def test_stage_1_that_diverges_names_its_key(seedlab, finished, tmp_path):
    code, _, err = seedlab("train", "micro", "stage1.learning_rate=1e30", "stage1.batch_size=1", "--out", tmp_path / "run")
    assert code == 1 and "Stage 1's SFT: the loss of step 2" in err and "lower stage1.learning_rate=1e+30" in err


# ---- rollout


def test_the_ids_of_a_panel_are_printed(seedlab, finished):
    code, out, _ = seedlab("envs", "list", "micro", "--tasks", "dev")
    assert code == 0 and out.split() == finished.manifest["panel_tasks"]["dev"]
    code, _, err = seedlab("envs", "list", "micro", "--tasks", "def")
    assert code == 2 and "did you mean 'dev'" in err


def test_a_saved_rollout_is_replayed_identically(seedlab, saved):
    code, out, _ = seedlab("rollout", "--replay", saved)
    assert code == 0
    assert "replay is identical: every field of every step and of the trajectory" in out


def test_a_rollout_shows_the_episode(seedlab, finished, task):
    code, out, _ = seedlab("rollout", task, "--preset", "micro", "--model", finished.path)
    assert code == 0
    assert out.count("\n> ") == 6
    assert "failure, return 0, 6 steps" in out


def test_a_replay_that_differs_says_where(seedlab, saved):
    record = json.loads(saved.read_text())
    record["trajectory"]["steps"][2]["logprobs"][0] -= 1e-7
    saved.write_text(json.dumps(record))
    code, out, _ = seedlab("rollout", "--replay", saved)
    assert code == 1
    assert "replay differs in steps[2].logprobs[0]: " in out


@pytest.mark.parametrize("field, value", [("final_observation", "You win."), ("goal", "rest"), ("returned", 99.0)])
def test_a_replay_of_an_edited_end_says_which_field(seedlab, saved, field, value):
    record = json.loads(saved.read_text())
    record["trajectory"][field] = value
    saved.write_text(json.dumps(record))
    code, out, _ = seedlab("rollout", "--replay", saved)
    assert (code, f"replay differs in {field}: " in out) == (1, True)


@pytest.mark.parametrize("key, value, says", [
    ("overrides", ["rollout.max_response_tokens=7"], "differs in config_hash"), ("weights_hash", "0" * 16, "differs in weights_hash"),
    ("content_hash", "0" * 16, "another field of the file was edited"),
])  # fmt: skip
def test_a_replay_of_other_settings_or_weights_says_so(seedlab, saved, key, value, says):
    record = json.loads(saved.read_text())
    saved.write_text(json.dumps(record | {key: value}))
    code, out, _ = seedlab("rollout", "--replay", saved)
    assert code == 1 and says in out


@pytest.mark.parametrize("path, value, says", [
    (["preset"], ["micro"], "preset is ['micro'], and must be a text"), (["temperature"], "hot", "temperature is 'hot'"), (["temperature"], -1, "temperature is -1"),
    (["trajectory"], 3, "trajectory is 3"), (["trajectory", "steps"], {}, "steps is {}"), (["trajectory", "steps", 1, "logprobs"], ["x"], "steps[1] is damaged: logprobs"),
    (["trajectory", "n"], True, "n is True"), (["trajectory", "steps", 0, "admissible_commands"], None, "admissible_commands is None"),
])  # fmt: skip
def test_a_replay_file_with_a_field_of_another_kind_names_it(seedlab, saved, path, value, says):
    record = json.loads(saved.read_text())
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    saved.write_text(json.dumps(record))
    code, _, err = seedlab("rollout", "--replay", saved)
    assert code == 2 and str(saved) in err and says in err


def cut(text):
    return text[:-40]


def without(*path):
    def change(text):
        record = json.loads(text)
        inner = record
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        return json.dumps(record)

    return change


@pytest.mark.parametrize(
    "damage", [cut, lambda text: "[1, 2]", lambda text: "", without("preset"), without("trajectory", "steps"), without("trajectory", "steps", 0, "action")]
)
def test_a_damaged_replay_file_is_named(seedlab, saved, damage):
    saved.write_text(damage(saved.read_text()))
    code, _, err = seedlab("rollout", "--replay", saved)
    assert code == 2
    assert str(saved) in err


def test_a_replay_file_that_is_not_there_is_named(seedlab, tmp_path):
    code, _, err = seedlab("rollout", "--replay", tmp_path / "gone.json")
    assert code == 2
    assert "gone.json" in err


def test_an_unknown_task_is_named(seedlab, finished):
    code, _, err = seedlab("rollout", "household/no-such-task", "--preset", "micro", "--model", finished.path)
    assert code == 2
    assert "no-such-task" in err


@pytest.mark.parametrize("temperature", ["-1", "nan"])
def test_an_impossible_temperature_is_refused(seedlab, finished, task, temperature):
    code, _, err = seedlab("rollout", task, "--preset", "micro", "--model", finished.path, "--temperature", temperature)
    assert code == 2
    assert "temperature" in err


def test_where_nothing_can_be_saved_nothing_is_played(seedlab, finished, task, tmp_path):
    argv = ["rollout", task, "--preset", "micro", "--model", finished.path, "--save", tmp_path / "no" / "file.json"]
    code, out, err = seedlab(*argv)
    assert (code, out) == (2, "")
    assert str(tmp_path / "no") in err


# ---- evaluate


def test_an_evaluation_says_panel_model_and_both_means(seedlab, finished, tmp_path):
    argv = ["evaluate", "micro", "--model", finished.path, "--panel", "dev", "--panel", "seen", "--out", tmp_path / "e.json"]
    code, out, _ = seedlab(*argv)
    assert code == 0
    report = json.loads((tmp_path / "e.json").read_text())
    assert report["model"].endswith("checkpoints/000002")
    assert list(report["panels"]) == ["dev", "seen"]
    assert report["panels"]["seen"]["panel_hash"] == finished.manifest["panels"]["seen"]["hash"]
    assert "dev (4 episodes" in out
    # the run's own evaluation of the same panel, with the same weights and streams
    own = finished.evaluations.set_index("panel").loc["seen"]
    for name in ("success_macro", "success_micro", "mean_return", "inadmissible_rate", "by_type"):
        assert report["panels"]["seen"][name] == own[name]


def test_an_unknown_panel_ends_with_code_2(seedlab, finished):
    code, _, err = seedlab("evaluate", "micro", "--model", finished.path, "--panel", "unsen")
    assert code == 2
    assert "did you mean 'unseen'" in err


def test_a_run_without_a_checkpoint_cannot_be_evaluated(seedlab, finished, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    code, _, err = seedlab("evaluate", "micro", "--model", tmp_path / "run", "--panel", "dev")
    assert code == 2
    assert "no complete checkpoint" in err


# ---- trace


def test_a_sample_is_traced_to_its_trajectory(seedlab, finished):
    rows = read_rows(finished.path, SFT_ROWS)
    code, out, _ = seedlab("trace", finished.path, "1")
    assert code == 0
    assert f"1. trajectory {rows[1]['trajectory']}:" in out
    assert "2. label by scripted:" in out
    assert "3. verdict: accepted (ok)" in out
    assert f"4. SFT row: split {rows[1]['split']}, {rows[1]['target_tokens']} target tokens of {rows[1]['tokens']}" in out
    assert rows[1]["skill"] in out
    assert seedlab("trace", finished.path, rows[1]["trajectory"])[1] == out


@pytest.mark.parametrize("sample, complaint", [("999", "there is no row 999"), ("s1-/nowhere/n0", "no trajectory 's1-/nowhere/n0'")])
def test_a_sample_that_is_not_there_is_named(seedlab, finished, sample, complaint):
    code, _, err = seedlab("trace", finished.path, sample)
    assert code == 2
    assert complaint in err


def test_a_trace_needs_the_run_alone(seedlab, finished, tmp_path, monkeypatch):
    _, before, _ = seedlab("trace", finished.path)
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path))
    code, out, _ = seedlab("trace", finished.path)
    assert code == 0
    assert out == before


def test_a_run_without_stage_1_has_nothing_to_trace(seedlab, finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "stage1")
    code, _, err = seedlab("trace", tmp_path / "run")
    assert code == 2
    assert "has no Stage 1" in err


# ---- envs


def test_envs_lists_panels_with_their_hashes(seedlab, finished):
    code, out, _ = seedlab("envs", "micro")
    assert code == 0
    for name, panel in finished.manifest["panels"].items():
        assert f"  {name:8s} {panel['tasks']:5d} tasks  hash {panel['hash']}" in out
