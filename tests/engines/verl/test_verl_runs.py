"""Whole runs under verl on a CPU: gloo, FSDP2, two ranks, our platform and our transformers replica.

The same run on the in-process engine is the oracle: equal keys draw equal tokens, so everything must agree to float32's
rounding, after a kill and a resume too.  What these prove is plumbing; a GPU and vLLM are not in them.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from seedlab.analysis.checks import check_run
from seedlab.store import open_run
from seedlab.store.checkpoint import latest_checkpoint

LIMIT_S = 800  # no measure of speed: one start takes a minute or more of CPU time, on a machine that may have other work
pytestmark = [pytest.mark.full, pytest.mark.timeout(2 * LIMIT_S + 200)]
TWO_RANKS = ("engine=verl", "cluster.gpus=2", "cluster.workers=1", "stage2.micro_batch_tokens=2048")
SETTINGS = ("objective.opd_coef=0.3", "evaluation.panels=[dev]")


def local_run(folder, own_cache, *overrides):
    from seedlab.config.presets import load_config
    from seedlab.train.run import train

    assert os.environ["SEEDLAB_CACHE"] == str(own_cache)
    return train(load_config("micro", [*SETTINGS, *overrides]), folder)


def weights(run):
    from safetensors.torch import load_file

    return load_file(latest_checkpoint(run.path)[1] / "model.safetensors")


def assert_same_course(verl, local):
    """Tasks, sampled ids, skills, token values, metrics and weights agree."""
    assert (verl.status["state"], local.status["state"]) == ("succeeded", "succeeded"), verl.status
    assert verl.updates == local.updates == [0, 1]
    assert local.metrics["optim/steps"].tolist() == [2.0, 2.0]  # otherwise two runs that learn nothing would agree
    for update in local.updates:
        one, other = verl.trajectories(update), local.trajectories(update)
        assert one[["id", "return", "success", "steps"]].equals(other[["id", "return", "success", "steps"]])
        steps = verl.steps(update), local.steps(update)
        for column in ("prompt_ids", "response_ids"):
            assert [list(x) for x in steps[0][column]] == [list(x) for x in steps[1][column]]
        np.testing.assert_allclose(
            np.concatenate(list(steps[0]["entropies"])), np.concatenate(list(steps[1]["entropies"])), atol=1e-4
        )
        assert verl.skills(update)[["trajectory", "text", "reason"]].equals(local.skills(update)[["trajectory", "text", "reason"]])
        tokens = verl.tokens(update=update), local.tokens(update=update)
        assert len(tokens[0]) == len(tokens[1]) > 0
        assert tokens[0]["mask_opd"].equals(tokens[1]["mask_opd"])
        for column in ("logp_old", "logp_student", "logp_teacher", "logp_ref", "entropy", "delta", "gate", "advantage", "ratio", "net_coefficient"):
            np.testing.assert_allclose(tokens[0][column], tokens[1][column], atol=1e-4, err_msg=f"{column} of update {update}")
    for name in ("policy/loss", "policy/kl", "rollout/return", "optim/grad_norm", "optim/steps", "opd/gate_mean", "opd/loss"):
        if name in local.metrics:
            np.testing.assert_allclose(verl.metrics[name], local.metrics[name], rtol=1e-3, atol=1e-5, err_msg=name)
    one, other = weights(verl), weights(local)
    assert one.keys() == other.keys()
    # Adam steps by the gradient's sign where the gradient is rounding alone: few weights, and none that matters
    gaps = np.concatenate([(one[n] - other[n]).abs().flatten().numpy() for n in one])
    assert (gaps > 1e-4).mean() < 0.02 and np.median(gaps) < 1e-6
    assert verl.evaluations["success_micro"].tolist() == local.evaluations["success_micro"].tolist()
    assert (verl.problems(), local.problems()) == ([], [])


@pytest.fixture(scope="module")
def seed_run(under_verl, own_cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("verl-seed") / "run"
    under_verl("-m", "seedlab", "train", "micro", *SETTINGS, *TWO_RANKS, "--out", folder, timeout=LIMIT_S)
    return open_run(folder)


def test_seed_takes_the_same_course_as_in_process(seed_run, own_cache, tmp_path):
    assert_same_course(seed_run, local_run(tmp_path / "local", own_cache))
    assert seed_run.manifest["model"]["world_size"] == 2
    results = check_run(seed_run.path)
    assert not [r for r in results if r.state == "failed"] and sum(r.state == "passed" for r in results) >= 9, results
    gates = seed_run.tokens(update=1)["gate"].dropna()
    assert gates.std() > 0 and seed_run.metrics["cost/teacher_tokens"].min() > 0


def test_merged_shards_are_the_exported_policy_and_can_be_evaluated(seed_run, under_verl, tmp_path):
    checkpoint = latest_checkpoint(seed_run.path)[1]
    merged = tmp_path / "merged"
    under_verl(
        "-m", "verl.model_merger", "merge", "--backend", "fsdp", "--local_dir", checkpoint / "verl", "--target_dir", merged,
        env={"VERL_USE_EXTERNAL_MODULES": "seedlab.engines.verl.plugin", "VERL_PLATFORM": "cpu"},
    )
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    exported = load_file(checkpoint / "model.safetensors")
    state = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).state_dict()
    assert exported.keys() <= state.keys()  # a tied output matrix is in the state only
    assert all(torch.equal(state[n], value.bfloat16().float()) for n, value in exported.items())  # verl's merger rounds
    # Its copy of the tokenizer went through AutoTokenizer, which rebuilds some of them: the checkpoint's is the right one.
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(checkpoint / file, merged / file)
    from seedlab.cli.main import main

    summary = {}
    for name, folder in (("exported", checkpoint), ("merged", merged)):
        file = tmp_path / f"{name}.json"
        assert main(["evaluate", "micro", *SETTINGS, "--model", str(folder), "--panel", "dev", "--out", str(file)]) == 0
        summary[name] = json.loads(file.read_text())["panels"]["dev"]
    assert summary["exported"]["success_micro"] == seed_run.evaluations["success_micro"].item()
    assert summary["merged"]["episodes"] == summary["exported"]["episodes"] == 4


def test_grpo_killed_after_an_update_goes_on_to_the_same_end(verl_python, under_verl, own_cache, tmp_path):
    folder = tmp_path / "run"
    process = start(verl_python, own_cache, tmp_path / "log", "train", "micro", *SETTINGS, "method=grpo", *TWO_RANKS, "--out", folder)
    try:
        wait_for(lambda: (folder / "checkpoints" / "latest").exists(), process, tmp_path / "log")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert open_run(folder).updates in ([0], [0, 1])
    under_verl("-m", "seedlab", "resume", folder, timeout=LIMIT_S)
    resumed = open_run(folder)
    assert_same_course(resumed, local_run(tmp_path / "local", own_cache, "method=grpo"))
    assert resumed.metrics["update"].tolist() == [0, 1]


def test_a_killed_worker_stops_the_run_with_the_cause(verl_python, own_cache, tmp_path):
    """Environments step in this worker: without a watch, verl would wait for its episodes for ever."""
    folder = tmp_path / "run"
    process = start(verl_python, own_cache, tmp_path / "log", "train", "micro", *SETTINGS, "initial=base", "method=grpo", *TWO_RANKS, "--out", folder)
    try:
        wait_for(lambda: phase(folder) == "stage 2: rollout", process, tmp_path / "log")
        worker = wait_for(lambda: descendant(process.pid, "AgentLoopWorker"), process, tmp_path / "log")
        os.kill(worker, signal.SIGKILL)
        assert process.wait(LIMIT_S) != 0
    finally:
        process.kill()
        process.wait()
    status = open_run(folder).status
    assert status["state"] == "failed" and "agent-loop worker 0 is gone" in status["error"], status


def start(python, own_cache, log, *argv):
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "SEEDLAB_CACHE": str(own_cache), "OMP_NUM_THREADS": "1"}
    env.pop("RAY_ADDRESS", None)
    with open(log, "wb") as out:
        return subprocess.Popen([python, "-m", "seedlab", *map(str, argv)], stdout=out, stderr=out, env=env)


def wait_for(found, process, log):
    deadline = time.monotonic() + LIMIT_S
    while not (value := found()):
        assert process.poll() is None, log.read_text(errors="replace")[-4000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-4000:]
        time.sleep(0.2)
    return value


def phase(folder):
    status = folder / "status.json"
    return json.loads(status.read_text()).get("phase") if status.exists() else None


def descendant(pid, name):
    import psutil

    for child in psutil.Process(pid).children(recursive=True):
        try:
            if name in " ".join(child.cmdline()):
                return child.pid
        except psutil.Error:  # it ended between the two calls
            continue
    return None

