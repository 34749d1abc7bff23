"""Whole runs under verl on a CPU: gloo, FSDP2, two ranks, our platform and our transformers replica.

The same run on the in-process engine is the oracle: equal keys draw equal tokens, so everything must agree to float32's
rounding.  What these prove is plumbing; a GPU and vLLM are not in them.
"""

import json
import shutil

import pytest
from verl_runs import LIMIT_S, SETTINGS, TWO_RANKS, assert_same_course, local_run

from seedlab.analysis.checks import check_run
from seedlab.store import open_run
from seedlab.store.checkpoint import latest_checkpoint

pytestmark = [pytest.mark.full, pytest.mark.timeout(2 * LIMIT_S + 200)]


@pytest.fixture(scope="module")
def seed_run(under_verl, own_cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("verl-seed") / "run"
    under_verl("-m", "seedlab", "train", "micro", *SETTINGS, *TWO_RANKS, "--out", folder, timeout=LIMIT_S)
    return open_run(folder)


def test_seed_takes_the_same_course_as_in_process(seed_run, own_cache, tmp_path):
    assert_same_course(seed_run, local_run(tmp_path / "local", own_cache, *SETTINGS))
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
