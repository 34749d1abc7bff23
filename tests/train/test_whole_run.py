"""A run from configuration to evaluation: what it leaves, and how it survives interruptions (cases E1, E4)."""

import json
import os
import shutil

import pytest
import torch
from compare_runs import file_hash, weights_hash
from new_process import command_process, train_process

from seedlab.errors import UserError
from seedlab.store import RunError, open_run
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.store.files import read_json, write_json
from seedlab.store.layout import default_out
from seedlab.train.run import resume, train
from seedlab.train.stage2 import Interrupted


def copy_cache(source, target, *kinds):
    target.mkdir()
    for kind in kinds:
        for folder in source.glob(f"{kind}-*"):
            if folder.is_dir():
                shutil.copytree(folder, target / folder.name)
    return target


STAGE1 = ("base", "stage1-rollouts", "stage1-labels", "stage1-sft")

# ---- what a run leaves


def test_every_update_learns(finished):
    metrics = finished.metrics
    assert list(metrics["update"]) == [0, 1]
    assert (metrics["optim/steps"] == 2).all()
    for term in ("policy", "kl", "opd"):
        assert metrics[f"optim/grad_norm_{term}"].iloc[1] > 1e-3, term
    initial = finished.path / "checkpoints" / "reference" / "model.safetensors"
    assert weights_hash(finished) != file_hash(initial)


def test_the_folder_names_what_made_it(finished):
    manifest = finished.manifest
    assert (manifest["preset"], manifest["method"], manifest["seed"]) == ("micro", "seed", 0)
    assert manifest["packages"]["torch"] == torch.__version__.split("+")[0] or manifest["packages"]["torch"] == torch.__version__
    assert manifest["initial"].startswith("stage1-sft-")
    assert {n: p["tasks"] for n, p in manifest["panels"].items()} == {"stage1": 8, "train": 24, "dev": 4, "seen": 4, "unseen": 4}
    assert finished.stage1["labels"] == 8
    assert finished.status["exit_code"] == 0


def test_the_rollout_log_probs_are_those_of_the_trainer(finished):
    assert finished.metrics["policy/rollout_mismatch"].max() <= 1e-4
    tokens = finished.tokens(update=0)
    first = tokens[tokens["minibatch"] == 0]
    assert (first["ratio"] - 1).abs().max() <= 1e-4
    assert (tokens["logp_rollout"].dtype, tokens["logp_student"].dtype) == ("float32", "float32")


def test_two_samples_of_a_group_differ(finished):
    steps = finished.steps(0)
    texts = steps[steps["step"] == 0].groupby(steps["trajectory"].str.rsplit("/", n=1).str[0])["response"].nunique()
    assert texts.max() >= 2


def test_every_panel_is_evaluated_once_with_its_decoding(finished):
    rows = finished.evaluations
    assert list(rows["panel"]) == ["seen", "unseen"]
    assert list(rows["update"]) == [2, 2]
    for panel, row in rows.set_index("panel").iterrows():
        assert row["decoding"] == {"temperature": 0.4, "top_p": 1.0, "n": 1, "seed": 1000, "max_tokens": 12}
        assert row["panel_hash"] == finished.manifest["panels"][panel]["hash"]
    episodes = finished.episodes(2)
    for panel in ("seen", "unseen"):
        assert sorted(episodes[episodes["panel"] == panel]["task"]) == sorted(finished.manifest["panel_tasks"][panel])


def test_the_finished_run_appends_one_result_row(finished, own_cache):
    rows = [json.loads(line) for line in (own_cache.parent / "results.jsonl").read_text().splitlines()]
    assert len(rows) == 1
    assert rows[0]["seed"] == 0


# ---- refusals


def test_a_finished_run_is_not_overwritten(finished, micro):
    with pytest.raises(RunError, match="already holds a run"):
        train(micro(), finished.path)


def test_another_configuration_is_refused_by_key(finished, micro):
    with pytest.raises(RunError, match="stage2.learning_rate"):
        train(micro("stage2.learning_rate=0.001"), finished.path, resume=True)


def test_a_finished_run_resumed_is_the_same_run(finished, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy)
    before = {p.relative_to(copy): p.read_bytes() for p in copy.rglob("*") if p.is_file() and p.name not in ("status.json", "latest")}
    run = resume(copy)
    assert run.status["state"] == "succeeded"
    assert {name: (copy / name).read_bytes() for name in before} == before


def test_an_engine_that_is_not_there_is_named(micro, tmp_path, monkeypatch):
    monkeypatch.setattr("seedlab.engines.verl.NEEDED", {"no_such_module": "verl"})
    with pytest.raises(UserError, match="engine=verl needs verl"):
        train(micro("engine=verl"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_damaged_checkpoint_is_named(finished, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy)
    weights = latest_checkpoint(copy)[1] / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match=str(weights)):
        resume(copy)
    assert open_run(copy).status["state"] == "succeeded"  # it had ended, and what it said of itself stays


def test_a_checkpoint_garbled_in_place_is_named(finished, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy)
    folder = latest_checkpoint(copy)[1]
    # a run that had ended would load nothing
    write_json(copy / "status.json", read_json(copy / "status.json") | {"state": "interrupted"})
    for name in ("model.safetensors", "trainer.pt"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(b"\x00" * len(kept))
        with pytest.raises(UserError, match=str(folder)):
            resume(copy)
        (folder / name).write_bytes(kept)


def test_names_of_run_folders(micro):
    assert str(default_out(micro("method=grpo", "seed=3"))) == "runs/micro-grpo-s3"


# ---- interruptions

MOMENTS = {
    "base policy": (("base policy", 3, 1), ()),
    "stage-1 rollouts": (("stage 1: rollouts", 5, 1), ("base",)),
    "labels": (("stage 1: labels", 4, 1), ("base", "stage1-rollouts")),
    "SFT": (("stage 1: SFT", 2, 1), ("base", "stage1-rollouts", "stage1-labels")),
    "rollouts of update 0": (("stage 2: rollout", 3, 1), STAGE1),
    "rollouts of update 1": (("stage 2: rollout", 3, 2), STAGE1),
    "after update 0": (("stage 2", 1, 1), STAGE1),
    "after the last update": (("stage 2", 2, 1), STAGE1),
    "evaluation": (("eval-seen", 2, 1), STAGE1),
    "second panel": (("eval-unseen", 4, 1), STAGE1),
}
FAST = ("SFT", "rollouts of update 1", "evaluation")


@pytest.mark.parametrize("moment", [m if m in FAST else pytest.param(m, marks=pytest.mark.full) for m in MOMENTS])
def test_a_killed_run_goes_on_to_the_very_same_end(finished, own_cache, tmp_path, same_run, moment):
    where, cached = MOMENTS[moment]
    cache = copy_cache(own_cache, tmp_path / "cache", *cached)
    assert train_process((), tmp_path / "run", cache, moment=where) == -9
    assert open_run(tmp_path / "run").status["state"] == "lost"
    assert train_process((), tmp_path / "run", cache, resume=True) == 0
    same_run(finished, open_run(tmp_path / "run"))


def test_updates_since_the_last_checkpoint_are_set_aside_and_made_again(finished, own_cache, tmp_path, same_run):
    rare = ("stage2.checkpoint_every=8",)
    assert train_process(rare, tmp_path / "run", own_cache, moment=("stage 2", 1, 1)) == -9
    assert open_run(tmp_path / "run").updates == [0]
    assert train_process(rare, tmp_path / "run", own_cache, resume=True) == 0
    run = open_run(tmp_path / "run")
    same_run(finished, run)
    assert len(list((tmp_path / "run" / "discarded").iterdir())) == 1
    assert list(run.events[run.events["kind"] == "resumed"]["discarded_rows"]) == [1]


def test_ctrl_c_stops_with_a_checkpoint_and_resume_finishes(finished, own_cache, tmp_path, same_run):
    folder, log = tmp_path / "run", tmp_path / "log"
    started = folder / "checkpoints" / "000000" / "COMPLETE"
    code = command_process(
        ["train", "micro", "--out", folder], own_cache, log, interrupt_when=started.exists
    )
    assert code == 130
    run = open_run(folder)
    assert (run.status["state"], run.status["exit_code"]) == ("interrupted", 130)
    assert latest_checkpoint(folder)[0] == 1
    assert f"go on with: seedlab resume {folder}" in log.read_text()
    assert command_process(["resume", folder], own_cache, log) == 0
    same_run(finished, run)
    assert "seen" in log.read_text()


def test_a_full_disk_stops_the_run_and_space_lets_it_go_on(finished, tmp_path, micro, monkeypatch, same_run):
    usage = shutil.disk_usage(tmp_path)
    saves = []

    def nearly_full(path):
        saves.append(path)
        return usage._replace(free=usage.free if len(saves) == 1 else 1000)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    with pytest.raises(RunError, match=r"free, but .*free some space.*seedlab resume"):
        train(micro(), tmp_path / "run")
    assert open_run(tmp_path / "run").status["state"] == "failed"
    assert latest_checkpoint(tmp_path / "run")[0] == 0
    monkeypatch.undo()
    same_run(finished, resume(tmp_path / "run"))


def test_a_stop_between_phases_is_an_interruption(finished, tmp_path, micro, monkeypatch):
    monkeypatch.setattr("seedlab.train.run.run_stage1", lambda *arguments: os.kill(os.getpid(), 2) or latest_stage1(finished))
    with pytest.raises(Interrupted, match="between phases"):
        train(micro(), tmp_path / "run")
    assert open_run(tmp_path / "run").status["state"] == "interrupted"


def latest_stage1(run):
    from seedlab.train.cached import cache_root

    return cache_root() / (run.path / "stage1" / "source").read_text().strip()
