"""Run by an interpreter with verl: estimators of random groups by verl's own functions and by ours, as one JSON line."""

import json

import numpy as np
import torch
from verl.trainer.ppo import core_algos
from verl.workers.config import ActorConfig

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective.advantages import group_advantages
from seedlab.objective.compose import TokenBatch, minibatch_denominators, objective

ROWS, LENGTH = 12, 7
RULES = {"token-mean": "token-mean", "seq-mean-token-mean": "seq-mean-token-mean", "seq-mean-token-sum": "seq-mean-token-sum"}


def sample(seed):
    g = torch.Generator().manual_seed(seed)
    mask = torch.ones(ROWS, LENGTH, dtype=torch.float64)
    for row, length in enumerate(torch.randint(1, LENGTH + 1, (ROWS,), generator=g).tolist()):
        mask[row, length:] = 0
    returns = torch.randint(0, 3, (ROWS,), generator=g).double() / 2
    group = torch.randint(0, 4, (ROWS,), generator=g)
    logp = -1.5 + 0.3 * torch.randn(ROWS, LENGTH, generator=g, dtype=torch.float64)
    return mask, returns, group, logp, logp + 0.2 * torch.randn(ROWS, LENGTH, generator=g, dtype=torch.float64)


def theirs(name, mask, returns, group):
    rewards = torch.zeros_like(mask)
    rewards[:, 0] = returns
    return core_algos.get_adv_estimator_fn(name)(token_level_rewards=rewards, response_mask=mask, index=group.numpy().astype(object))[0]


def ours(cfg, mask, returns, group):
    return group_advantages(returns, group, cfg=cfg).advantage_T.double()[:, None] * mask


def losses(name, rule, cfg, mask, advantage, logp, logp_old):
    """(loss, gradient) by verl and by us."""
    actor = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, clip_ratio=0.2, clip_ratio_low=cfg.clip_low, clip_ratio_high=cfg.clip_high, clip_ratio_c=cfg.dual_clip or 1e9, loss_agg_mode=rule)
    leaf = logp.clone().requires_grad_(True)
    loss, _ = core_algos.get_policy_loss_fn(name)(logp_old, leaf, advantage, mask, loss_agg_mode=rule, config=actor)
    (gradient,) = torch.autograd.grad(loss, leaf)
    mine = logp.clone().requires_grad_(True)
    batch = TokenBatch(mine, logp_old, None, None, None, advantage, mask, torch.zeros_like(mask))
    total = objective(batch, minibatch_denominators(mask, torch.zeros_like(mask)), cfg).loss
    (own,) = torch.autograd.grad(total, mine)
    return float((loss - total).abs()), float((gradient - own).abs().max()), float(own.abs().max())


def main():
    worst: dict[str, float] = {}

    def note(name, value):
        worst[name] = max(worst.get(name, 0.0), float(value))

    smallest = 1.0
    for seed in range(30):
        mask, returns, group, logp, logp_old = sample(seed)
        grpo = ObjectiveConfig(advantage_ddof=1, kl_coef=0.0, opd_coef=0.0)
        several = torch.tensor(np.bincount(group.numpy(), minlength=4)[group.numpy()] > 1)[:, None]  # verl gives a lone sample its return
        note("rloo", ((ours(ObjectiveConfig(advantage="rloo"), mask, returns, group) - theirs("rloo", mask, returns, group)) * several).abs().max())
        note("rloo_vectorized", (ours(ObjectiveConfig(advantage="rloo"), mask, returns, group) - theirs("rloo_vectorized", mask, returns, group)).abs().max())
        note("grpo", ((ours(grpo, mask, returns, group) - theirs("grpo", mask, returns, group)) * several).abs().max())
        advantage = ours(grpo, mask, returns, group)
        for rule in RULES:
            for name, extra in (("vanilla", {}), ("gspo", {"ratio": "sequence", "clip_low": 0.03, "clip_high": 0.04, "dual_clip": None})):
                cfg = grpo.model_copy(update={"aggregation": rule, **extra})
                loss, gradient, size = losses(name, rule, cfg, mask, advantage, logp, logp_old)
                note(f"{name}/{rule}/loss", loss)
                note(f"{name}/{rule}/gradient", gradient)
                smallest = min(smallest, size)
    print(json.dumps({"worst": worst, "smallest_gradient": smallest}))


if __name__ == "__main__":
    main()
