"""Stage 1 on several processes, as far as one process can see: shares of a batch, the job's folder, refusals."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seedlab.config.schema import ClusterConfig, ModelConfig
from seedlab.engines import deepspeed_launch
from seedlab.engines import deepspeed_sft
from seedlab.engines.deepspeed_job import PARENT, SftJob, parent_lives, parent_mark, read_job, write_job
from seedlab.engines.deepspeed_sft import SharedLoss, deepspeed_config, shares
from seedlab.errors import UserError
from seedlab.train.diverged import Diverged
from seedlab.train.fit import fit
from seedlab.train.room import OutOfMemory
from seedlab.train.sft import Document, SftSettings

SETTINGS = SftSettings(1e-2, 0.1, 0.1, 0.0, (0.9, 0.95), 1.0, 40, 0)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 8), st.integers(1, 200), st.integers(0, 100))
def test_shares_hold_every_document_once_and_have_equally_many_passes(lengths, processes, budget, pack):
    settings = SftSettings(1e-2, 0.1, 0.1, 0.0, (0.9, 0.95), 1.0, budget, pack)
    parts = shares(lengths, processes, settings)
    assert len(parts) == processes
    assert len({len(own) for own in parts}) == 1
    assert sorted(i for own in parts for part in own for line in part for i in line) == list(range(len(lengths)))
    assert any(parts[p][-1] for p in range(processes))  # no pass is empty everywhere


def test_shares_are_balanced():
    parts = shares([10] * 8, 8, SETTINGS)
    assert [len([i for part in own for line in part for i in line]) for own in parts] == [1] * 8
    tokens = [sum([50, 30, 20, 10, 10][i] for part in own for line in part for i in line) for own in shares([50, 30, 20, 10, 10], 2, SETTINGS)]
    assert tokens == [60, 60]


def test_an_empty_pass_has_loss_and_gradient_zero(random_policy, micro):
    policy = random_policy(micro())
    documents = [Document("a", [5, 6, 7], [0.0, 1.0, 1.0]), Document("b", [5, 6], [0.0, 1.0])]
    loss = SharedLoss(policy.model, 0)
    value = loss(documents, [])
    value.backward()
    assert float(value.detach()) == 0.0
    gradients = [p.grad for p in policy.model.parameters()]
    assert all(g is not None and float(g.abs().max()) == 0.0 for g in gradients)
    assert float(loss(documents, [[0], [1]]).detach()) > 0


def job(folder, **cluster):
    documents = [Document("a", [5, 6, 7], [0.0, 0.5, 1.0]), Document("b", [5, 6], [0.0, 1.0])]
    return SftJob(folder, "some/folder", ModelConfig(), ClusterConfig(**cluster), 1, SETTINGS, documents, [[1, 0], [0]])


def test_a_job_is_read_as_it_was_written(tmp_path):
    written = job(tmp_path / "job", gpus=2, sft_zero_stage=2)
    write_job(written)
    assert read_job(tmp_path / "job") == written
    (tmp_path / "job" / "documents.jsonl.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(UserError, match="holds no complete training job"):
        read_job(tmp_path / "job")


def test_workers_know_whether_their_launcher_lives():
    mark = parent_mark()
    assert parent_lives({PARENT: mark})
    assert not parent_lives({PARENT: mark.replace(mark.split()[1], "another/start")})  # the pid was given out again
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert not parent_lives({PARENT: f"{gone.pid} {mark.split()[1]}"})


def test_without_deepspeed_the_user_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(deepspeed_launch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="cluster.sft_zero_stage needs DeepSpeed: install the environment of environment.yml"):
        deepspeed_launch.train_with_deepspeed(job(tmp_path / "job", sft_zero_stage=2), print)


def test_deepspeed_is_told_what_the_configuration_says():
    config = deepspeed_config(SETTINGS, ClusterConfig(sft_zero_stage=3, sft_offload_optimizer=True), bfloat16=True)
    assert config["zero_optimization"]["stage"] == 3
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert (config["bf16"], config["gradient_clipping"]) == ({"enabled": True}, 1.0)
    assert "offload_optimizer" not in deepspeed_config(SETTINGS, ClusterConfig(sft_zero_stage=2), bfloat16=False)["zero_optimization"]


WORKER = """
import sys
from pathlib import Path
import torch
from seedlab.engines import deepspeed_sft
from seedlab.train.diverged import Diverged

def train(job):
    raise {error}

deepspeed_sft.train = train
deepspeed_sft.main(Path(sys.argv[-1]))
"""


@pytest.mark.parametrize(
    "error, kind, words",
    [
        ("Diverged('the loss of step 3 is nan; lower stage1.learning_rate=1')", Diverged, "^the loss of step 3 is nan; lower stage1.learning_rate=1$"),
        ("torch.OutOfMemoryError('CUDA out of memory.')", OutOfMemory, r"^Stage 1's SFT: out of memory \(CUDA out of memory\.\); lower stage2.micro_batch_tokens=4096 "),
        ("RuntimeError('no such shape')", deepspeed_launch.DistributedTrainingFailed, "(?s)ended with exit code 1.*RuntimeError: no such shape"),
    ],
    ids=["diverged", "memory", "other"],
)  # fmt: skip
def test_what_a_worker_died_of_is_told_by_the_process_that_started_it(tmp_path, monkeypatch, random_policy, micro, error, kind, words):
    """Torchrun's place is taken by one worker whose training fails."""
    starter = tmp_path / "python"
    starter.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{tmp_path}/worker.py' \"$@\"\n")
    starter.chmod(0o755)
    (tmp_path / "worker.py").write_text(WORKER.format(error=error))
    monkeypatch.setattr(deepspeed_launch.sys, "executable", str(starter))
    monkeypatch.setattr(deepspeed_launch.importlib.util, "find_spec", lambda name: name)
    cfg = micro("cluster.sft_zero_stage=2", "cluster.gpus=1")
    with pytest.raises(kind, match=words):
        fit(cfg, random_policy(cfg), job(tmp_path).documents, lambda *told: None, source="some/folder", work=tmp_path / "work")


def test_the_first_worker_to_fail_is_heard(tmp_path, monkeypatch):
    write_job(job(tmp_path))
    for error in (torch.OutOfMemoryError("rank 0"), Diverged("rank 1")):
        monkeypatch.setattr(deepspeed_sft, "train", lambda job, error=error: (_ for _ in ()).throw(error))
        with pytest.raises((torch.OutOfMemoryError, SystemExit)):
            deepspeed_sft.main(tmp_path)
    assert str(deepspeed_launch.told(tmp_path)) == "rank 0"
