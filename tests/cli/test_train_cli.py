"""train and resume from the command line: mistakes, runs that are done, weights that diverge."""

import json
import shutil

import pytest

from seedlab.store.checkpoint import latest_checkpoint


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
