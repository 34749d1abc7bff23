"""Stage 1 with DeepSpeed on two processes (gloo, CPU): the curve and weights of one process, a kill, the export."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import torch

from seedlab.config.schema import ModelConfig
from seedlab.policy.load import load_policy
from seedlab.store.checkpoint import complete_checkpoints

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]  # the first start compiles DeepSpeed's shared-memory operator
DRIVER = Path(__file__).with_name("deepspeed_driver.py")


@pytest.fixture(scope="module")
def python():
    name = os.environ.get("SEEDLAB_DEEPSPEED_PYTHON")
    if not name:
        pytest.skip("wanted: SEEDLAB_DEEPSPEED_PYTHON, an interpreter with deepspeed and torch (`make test-full` makes one)")
    return name


def start(python, *arguments):
    root = Path(__file__).resolve().parents[2]
    # ninja, which builds DeepSpeed's operator, lies beside the interpreter
    path = f"{Path(python).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PYTHONPATH": str(root), "PATH": path, "DS_ACCELERATOR": "cpu"}
    return subprocess.Popen(
        [python, str(DRIVER), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def run(python, *arguments):
    process = start(python, *arguments)
    output, _ = process.communicate(timeout=1100)
    assert process.returncode == 0, output[-3000:]
    return json.loads((Path(arguments[1]) / f"losses-{arguments[0]}.json").read_text())


def weights(folder):
    return load_policy(folder, ModelConfig()).model.state_dict()


def assert_close(a, b, atol):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=atol, rtol=0, msg=lambda text: f"{name}: {text}")


@pytest.fixture(scope="module")
def reference(python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("deepspeed")
    return folder, run(python, "reference", str(folder), "0")


@pytest.mark.parametrize("stage, options", [("2", []), ("3", ["checkpointing"])])
def test_two_processes_train_what_one_does_and_a_killed_run_goes_on_exactly(python, reference, stage, options):
    folder, expected = reference
    shutil.rmtree(folder / "job", ignore_errors=True)
    losses = run(python, "train", str(folder), stage, *options)
    assert losses == pytest.approx(expected, abs=1e-3)
    assert losses[-1] < losses[0]
    trained = weights(folder / "job" / "result")
    assert_close(trained, weights(folder / "reference"), atol=5e-3)
    untrained = weights(folder / "policy")
    assert max(float((trained[n] - untrained[n]).abs().max()) for n in trained) > 2e-2

    shutil.rmtree(folder / "job")
    killed = start(python, "train", str(folder), stage, *options)
    deadline = time.monotonic() + 300
    while not complete_checkpoints(folder / "job"):
        assert killed.poll() is None, killed.communicate()[0][-3000:]
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)  # the launcher alone: the training must end by itself
    killed.wait()
    killed.stdout.close()
    log, deadline = folder / "job" / "log.txt", time.monotonic() + 120
    while "is gone; start it again" not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, "the workers went on without their launcher"
        time.sleep(0.1)
    while any("deepspeed_sft" in " ".join(p.info["cmdline"] or []) and str(folder) in " ".join(p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < deadline, "torchrun did not end"
        time.sleep(0.2)
    done = complete_checkpoints(folder / "job")
    assert done and done[-1] < len(expected)
    (folder / "job" / "progress.jsonl").unlink()
    assert run(python, "train", str(folder), stage, *options) == losses
    first = json.loads((folder / "job" / "progress.jsonl").read_text().splitlines()[0])
    assert first["step"] == done[-1] + 1  # it did not start anew
    assert_close(weights(folder / "job" / "result"), trained, atol=0)


def test_a_process_that_dies_ends_the_training_with_its_words(python, reference):
    folder, _ = reference
    shutil.rmtree(folder / "job", ignore_errors=True)
    broken = folder / "broken"
    shutil.copytree(folder / "policy", broken / "policy")
    (broken / "policy" / "model.safetensors").write_bytes(b"no weights")
    process = start(python, "train", str(broken), "2")
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "training with DeepSpeed ended with exit code 1" in output
    assert "cannot load a policy from" in output


def test_a_training_that_diverges_says_which_key_to_lower(python, reference):
    folder, _ = reference
    shutil.rmtree(folder / "job", ignore_errors=True)
    process = start(python, "train", str(folder), "2", "diverging")
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0
    assert re.search(r"Diverged: Stage 1's SFT: the loss of step \d+ of 18 is (nan|inf); lower stage1\.learning_rate=1e\+30$", output.strip()), output
