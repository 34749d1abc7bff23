"""Gradient checkpointing changes memory alone: gradients, scores and generation stay what they are without it."""

import asyncio

import pytest
import torch

from seedlab.policy.local import LocalGenerator
from seedlab.policy.protocol import Sampling
from seedlab.train.sft import Document, SftSettings, Stepper, train_documents

SETTINGS = SftSettings(1e-2, 0.1, 0.1, 0.0, (0.9, 0.95), 1.0, 10**6)
DOCUMENTS = [Document(f"d{i}", list(range(5, 15 + 4 * i)), [0.0, 0.0, *[1.0] * (8 + 4 * i)]) for i in range(3)]


def trained(policy):
    policy.model.train()
    return train_documents(
        policy.model, DOCUMENTS, [[0, 1, 2], [2, 1]], SETTINGS, pad_id=0, stepper=Stepper(policy.model, SETTINGS, pad_id=0, compute=policy.compute)
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_is_the_same_with_less_kept(random_policy, micro, dtype):
    plain = random_policy(micro(f"model.dtype={dtype}"), trainable=True)
    less = random_policy(micro(f"model.dtype={dtype}", "model.gradient_checkpointing=true"), trainable=True)
    calls = {"plain": 0, "less": 0}
    for name, policy in (("plain", plain), ("less", less)):
        # before, not behind: recomputation stops once it has what the backward pass needs
        policy.model.model.layers[0].mlp.register_forward_pre_hook(lambda *_, name=name: calls.__setitem__(name, calls[name] + 1))
    assert trained(less) == pytest.approx(trained(plain), rel=1e-6)
    assert calls["less"] == 2 * calls["plain"] > 0  # it really computes again
    for (name, a), (_, b) in zip(less.model.named_parameters(), plain.model.named_parameters()):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0, msg=name)
        assert a.dtype == torch.float32


def test_bf16_training_computes_in_bf16_over_float32_weights(random_policy, micro):
    plain, half = random_policy(micro(), trainable=True), random_policy(micro("model.dtype=bfloat16"), trainable=True)
    seen = set()
    half.model.model.layers[0].mlp.register_forward_hook(lambda module, args, out: seen.add(out.dtype))
    losses, expected = trained(half), trained(plain)
    assert seen == {torch.bfloat16}
    assert losses == pytest.approx(expected, rel=0.02) and losses != expected
    # the second step has seen the first one's update: autocast kept no stale copy of the weights
    assert losses[1] == pytest.approx(expected[1], rel=0.02)
    assert abs(expected[1] - expected[0]) > 0.05


def test_generation_in_training_mode_keeps_its_cache(random_policy, micro):
    """transformers drops the cache of a checkpointed model in training mode, which the policy of Stage 2 is in."""

    def answers(policy):
        generator = LocalGenerator(policy.model, context=128)

        async def one(i):
            return await generator.generate(list(range(5, 12 + i)), Sampling(1.0, 12, i, ()), trajectory_id=f"t{i}")

        async def all_of():
            generator.expect(3)
            return await asyncio.gather(*(one(i) for i in range(3)))

        return asyncio.run(all_of())

    less = random_policy(micro("model.gradient_checkpointing=true"), trainable=True)
    less.model.train()
    plain = answers(random_policy(micro()))
    for a, b in zip(answers(less), plain):
        assert a.ids == b.ids
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)
    assert less.model.training  # as it was
