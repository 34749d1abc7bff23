"""Whole runs under verl, held against the in-process engine; shared by the test modules of this folder."""

import os

import numpy as np

from seedlab.store.checkpoint import latest_checkpoint

LIMIT_S = 800  # no measure of speed: one start takes a minute or more of CPU time, on a machine that may have other work
TWO_RANKS = ("engine=verl", "cluster.gpus=2", "cluster.workers=1", "stage2.micro_batch_tokens=2048")
SETTINGS = ("objective.opd_coef=0.3", "evaluation.panels=[dev]")


def local_run(folder, own_cache, *overrides):
    from seedlab.config.presets import load_config
    from seedlab.train.run import train

    assert os.environ["SEEDLAB_CACHE"] == str(own_cache)
    return train(load_config("micro", overrides), folder)


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
