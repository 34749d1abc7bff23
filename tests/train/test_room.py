"""Memory that runs out, with the allocator's own errors: which keys make room, and that a resumed run takes them."""

import shutil

import pytest
import torch

from seedlab.analysis.checks import check_run
from seedlab.cli.main import main
from seedlab.config.presets import config_hash
from seedlab.errors import ConfigError, UserError
from seedlab.store import open_run
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.store.making_room import FILE, KEYS, make_room, with_room
from seedlab.train.room import OutOfMemory, room
from seedlab.train.run import resume, train
from seedlab.train.update import Updater

FORWARD = "lower stage2.micro_batch_tokens=4096 (it never changes a gradient) or set model.gradient_checkpointing=true"


def too_much():
    return torch.empty(2**60)


@pytest.mark.parametrize(
    "part, overrides, advice",
    [
        ("update", (), f"{FORWARD}, with"),
        ("update", ("model.gradient_checkpointing=true",), "lower stage2.micro_batch_tokens=4096 (it never changes a gradient), with"),
        ("update", ("engine=verl", "cluster.sleep=false"), f"{FORWARD} or set cluster.offload_optimizer=true or set cluster.sleep=true, with"),
        ("update", ("engine=verl", "cluster.offload_optimizer=true"), f"{FORWARD}, with"),
        ("rollout", (), "set cluster.max_cache_tokens (0: no bound), with"),
        ("rollout", ("cluster.max_cache_tokens=512",), "lower cluster.max_cache_tokens=512, with"),
        ("rollout", ("engine=verl",), "lower cluster.gpu_memory_utilization=0.5, with"),
        ("sft", (), f"{FORWARD}, with"),
        ("sft", ("cluster.sft_zero_stage=2", "cluster.sft_pack_tokens=256"), f"{FORWARD} or lower cluster.sft_pack_tokens=256 or set cluster.sft_offload_optimizer=true, with"),
    ],
)  # fmt: skip
def test_each_part_names_the_keys_that_make_room_in_it(micro, part, overrides, advice):
    with pytest.raises(OutOfMemory) as caught, room(micro(*overrides), part, "here"):
        too_much()
    text = str(caught.value)
    assert text.startswith("here: out of memory (") and "can't allocate memory" in text and f"; {advice} `seedlab resume RUN KEY=VALUE`" in text


def test_words_of_another_process_are_its_last_line_and_other_errors_pass(micro):
    with pytest.raises(OutOfMemory, match=r"here: out of memory \(torch.OutOfMemoryError: CUDA\); "), room(micro(), "update", "here"):
        raise torch.OutOfMemoryError("ray::WorkerDict (pid=7)\n  File engine.py\ntorch.OutOfMemoryError: CUDA")
    with pytest.raises(OutOfMemory, match=r"here: out of memory \(MemoryError\); "), room(micro(), "update", "here"):
        raise MemoryError
    with pytest.raises(RuntimeError, match="^shape$"), room(micro(), "update", "here"):
        raise RuntimeError("shape")


def test_an_update_without_memory_fails_by_name_and_goes_on_with_a_smaller_micro_batch(micro, tmp_path, monkeypatch, same_run):
    cfg, path = micro("initial=base", "method=grpo", "evaluation.panels=[]"), tmp_path / "run"
    quiet = train(cfg, tmp_path / "quiet")
    minibatch, sizes = Updater._minibatch, []

    def small_enough(self, batch, indices, *rest):
        sizes.append(self.cfg.stage2.micro_batch_tokens)
        if rest[-1] == 1 and sizes[-1] > 2048:
            too_much()
        return minibatch(self, batch, indices, *rest)

    monkeypatch.setattr(Updater, "_minibatch", small_enough)
    with pytest.raises(OutOfMemory):
        train(cfg, path)
    status = open_run(path).status
    assert status["state"] == "failed" and "OutOfMemory: update 1: out of memory (" in status["error"] and FORWARD in status["error"]
    assert status["error"].endswith(f"`seedlab resume` would take {path} on from its checkpoint of update 1") and latest_checkpoint(path)[0] == 1
    assert main(["resume", str(path), "stage2.micro_batch_tokens=2048"]) == 0
    assert set(sizes) == {4096, 2048}
    run = open_run(path)
    assert run.manifest["config_hash"] == config_hash(cfg) == config_hash(run.config)
    assert run.events.query("kind == 'room made'")["settings"].tolist() == [{"stage2.micro_batch_tokens": 2048}]
    assert run.metrics["update"].tolist() == [0, 1]
    torch.testing.assert_close(torch.tensor(run.metrics["optim/grad_norm"]), torch.tensor(quiet.metrics["optim/grad_norm"]), rtol=1e-4, atol=0)


def test_generation_without_memory_is_named_too(make_session, micro, rollout, monkeypatch):
    session = make_session(micro())
    monkeypatch.setattr(session.policy.model.model, "forward", lambda *args, **kwargs: too_much())
    with pytest.raises(OutOfMemory, match="generation: out of memory .*set cluster.max_cache_tokens"):
        rollout(session, 1, 1)


def test_a_resumed_run_takes_only_what_makes_room(finished, micro, tmp_path, capsys):
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.json").write_text((finished.path / "config.json").read_text())
    with pytest.raises(ConfigError, match="stage2.learning_rate changes more than memory: choose it for a new run"):
        make_room(path, ["stage2.learning_rate=1e-4", "stage2.micro_batch_tokens=64"])
    with pytest.raises(ConfigError, match="micro_batch_tokens"):
        make_room(path, ["stage2.micro_batch_tokens=0"])
    assert not (path / FILE).exists() and with_room(micro(), path) == micro()
    make_room(path, ["stage2.micro_batch_tokens=64"])
    make_room(path, ["cluster.max_cache_tokens=512"])
    assert with_room(micro(), path) == micro("stage2.micro_batch_tokens=64", "cluster.max_cache_tokens=512")
    assert main(["resume", str(path), "seed=1"]) == 2 and "seed changes more than memory" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[1]", '{"stage2": {"learning_rate": 1.0}, "seed": 7}', '{"stage2": 5}', '{"stage2": {"micro_batch_tokens": 0}}', "{"])
def test_a_file_that_changes_more_than_memory_is_refused_and_found(finished, micro, tmp_path, content):
    path = tmp_path / "run"
    shutil.copytree(finished.path, path)
    (path / FILE).write_text(content)
    with pytest.raises(UserError, match=FILE):
        with_room(micro(), path)
    results = {result.name: result for result in check_run(path)}
    assert any(result.state == "failed" and FILE in result.detail for result in results.values())


def test_every_key_that_makes_room_exists(micro):
    from seedlab.config.names import flatten

    assert set(KEYS) <= set(flatten(micro().model_dump()))
