"""train, resume, rollout, evaluate, trace and envs from the command line."""

import json
import shutil

import pytest

from seedlab.cli.main import main
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


# ---- rollout


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
    assert "replay differs at step 2" in out


@pytest.mark.parametrize("field, value", [("final_observation", "You win."), ("goal", "rest"), ("returned", 99.0)])
def test_a_replay_of_an_edited_end_says_which_field(seedlab, saved, field, value):
    record = json.loads(saved.read_text())
    record["trajectory"][field] = value
    saved.write_text(json.dumps(record))
    code, out, _ = seedlab("rollout", "--replay", saved)
    assert (code, f"replay differs in its end: {field}" in out) == (1, True)


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
