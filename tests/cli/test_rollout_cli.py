"""rollout from the command line: the episode shown, saved and replayed, and replay files that are damaged."""

import json

import pytest


@pytest.fixture
def saved(seedlab, finished, task, tmp_path):
    """A saved rollout of the finished run's policy."""
    file = tmp_path / "rollout.json"
    code, out, _ = seedlab("rollout", task, "--preset", "micro", "--model", finished.path, "--save", file)
    assert code == 0
    assert f"saved to {file}" in out
    return file


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
