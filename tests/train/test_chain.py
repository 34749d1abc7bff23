"""The links of a run: seen in its status, ended where asked, gone on with, stopped within."""

import json
import os
import shutil
import signal

import pytest
from compare_runs import weights_hash

from seedlab.errors import UserError
from seedlab.store import open_run
from seedlab.store.layout import LINKS, complete, configuration_of
from seedlab.train.cached import cache_root
from seedlab.train.chain import last_link, links_of
from seedlab.train.loop import Interrupted
from seedlab.train.run import resume, train


def states(run):
    return {link["name"]: link["state"] for link in run.status["links"]}


def test_every_link_of_a_finished_run_is_there(finished):
    assert list(states(finished)) == list(LINKS) and set(states(finished).values()) <= {"done", "cached"}
    assert complete(finished.status)
    assert all(link["seconds"] >= 0 for link in finished.status["links"])


def test_a_run_ends_after_stage1_and_goes_on_to_the_same_weights(finished, tmp_path, micro):
    run = train(micro(), tmp_path / "run", until="stage1")
    assert states(run) == {n: "cached" for n in LINKS[:4]} | {"stage2": "left out", "evaluation": "left out"}
    assert run.status["state"] == "succeeded" and not complete(run.status)
    assert run.stage1 == finished.stage1 and len(run.metrics) == 0
    assert run.manifest["panels"] == finished.manifest["panels"]
    again = resume(tmp_path / "run")
    assert states(again) == {n: "cached" for n in LINKS[:4]} | {"stage2": "done", "evaluation": "done"}
    assert complete(again.status) and weights_hash(again) == weights_hash(finished)
    once_more = resume(tmp_path / "run")
    assert states(once_more) == states(again)  # what the run did itself does not become cached


def test_the_links_follow_from_the_configuration(micro):
    assert links_of(micro("method=grpo", "initial=base", "stage1.enabled=false")) == ["base", "stage2", "evaluation"]
    assert last_link(micro("evaluation.panels=[]"), None) == "stage2"
    with pytest.raises(UserError, match="until=stage1: a run with initial=base has no such link, only base, stage2, evaluation"):
        last_link(micro("method=grpo", "initial=base", "stage1.enabled=false"), "stage1")
    with pytest.raises(UserError, match="until='sft' is unknown"):
        last_link(micro(), "sft")


def test_a_link_that_does_not_exist_leaves_no_folder(tmp_path, micro):
    with pytest.raises(UserError, match="no such link"):
        train(micro("method=grpo", "initial=base", "stage1.enabled=false"), tmp_path / "run", until="labels")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("phase", "link"), [("stage 1: rollouts", "rollouts"), ("stage 1: labels", "labels")])
def test_a_stop_within_a_link_keeps_the_links_before_it(finished, tmp_path, micro, monkeypatch, phase, link):
    cfg = micro()
    cache = tmp_path / "cache"
    shutil.copytree(cache_root(), cache, ignore=shutil.ignore_patterns("stage1-*", "*.lock"))
    monkeypatch.setenv("SEEDLAB_CACHE", str(cache))

    def stop(name, done, total, note):
        if name == phase:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match=f"stopped in link {link}"):
        train(cfg, tmp_path / "run", progress=stop)
    status = open_run(tmp_path / "run").status
    assert (status["state"], status["exit_code"]) == ("interrupted", 130)
    at = LINKS.index(link)
    assert [s["state"] for s in status["links"]][: at + 1] == ["cached"] + ["done"] * (at - 1) + ["running"]
    assert not any(link in p.name for p in cache.iterdir() if p.is_dir() and not p.name.endswith(".partial"))
    run = resume(tmp_path / "run", until="labels")
    assert [s["state"] for s in run.status["links"]][:3] == ["cached", "done", "done"]


def test_a_job_that_never_began_keeps_its_configuration(tmp_path, micro):
    (tmp_path / "job.json").write_text(json.dumps({"schema_version": 1, "config": micro("seed=7").model_dump(mode="json")}))
    assert configuration_of(tmp_path) == micro("seed=7")
    (tmp_path / "job.json").write_text(json.dumps({"schema_version": 1, "config": None}))
    with pytest.raises(UserError, match="is a job, but not one of a run"):
        configuration_of(tmp_path)
