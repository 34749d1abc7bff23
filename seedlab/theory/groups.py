"""The claims about groups and minibatches: advantages, ties, the policy gradient and what a mean is taken over."""

from __future__ import annotations

import itertools

import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import advantages, compose, ties
from seedlab.theory import expectation
from seedlab.theory.claims import ClaimResult, Tally

PER_CALL = 50  # groups in one call
RULES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")


def claims(seed: int, instances: int) -> list[ClaimResult]:
    """Each claim on at least `instances` random groups, tokens or minibatches."""
    generator = torch.Generator().manual_seed(seed)
    return [
        _tied_groups(instances, generator),
        _standardised(instances, generator),
        _tie_probability(),
        _policy_gradient(instances, generator),
        _minibatch_mean(max(1, instances // 50), generator),
    ]


def _tied_groups(instances: int, generator) -> ClaimResult:
    """Equal outcomes, whatever their value, precision and the estimator: |A| is 0 to the last bit."""
    tally = Tally("tied-group-has-no-advantage", "R equal in a group => every GRPO advantage is 0, exactly", 0.0)
    configs = [
        ObjectiveConfig(advantage_ddof=ddof, advantage=kind, advantage_eps=eps)
        for ddof, kind, eps in itertools.product((0, 1), ("grpo", "rloo"), (1e-6, 1e-12))
    ]
    for start in range(0, instances, PER_CALL):
        count, size = min(PER_CALL, instances - start), 2 + (start // PER_CALL) % 15
        scale = torch.tensor([1.0, 0.7, 1e-8, 1e6])[torch.randint(4, (count,), generator=generator)]
        value = torch.rand(count, generator=generator) * scale
        if start % 3 == 0:
            value = value.round(decimals=1)
        dtype = torch.float32 if start % 2 else torch.float64
        returns, group = value.to(dtype).repeat_interleave(size), torch.arange(count).repeat_interleave(size)
        result = advantages.group_advantages(returns, group, cfg=configs[(start // PER_CALL) % len(configs)])
        wrong = 0.0 if result.tie_rate == 1.0 and bool(result.tied_T.all()) else 1.0
        tally.error(max(result.advantage_T.abs().max().item(), wrong), count)
    return tally.result()


def _standardised(instances: int, generator) -> ClaimResult:
    """Against the definition with the population std; outcomes binary, partial or continuous."""
    tally = Tally("advantage-is-the-population-z-score", "A = (R - mean) / (std + eps), std over N (ddof 0)", 1e-5)
    cfg = ObjectiveConfig()
    for start in range(0, instances, PER_CALL):
        count, size = min(PER_CALL, instances - start), 2 + (start // PER_CALL) % 15
        returns = torch.rand(count, size, generator=generator, dtype=torch.float64)
        kind = (start // PER_CALL) % 3
        returns = (returns < 0.4).double() if kind == 0 else returns.round(decimals=1) if kind == 1 else returns
        mean = returns.sum(1, keepdim=True) / size
        std = (((returns - mean) ** 2).sum(1, keepdim=True) / size).sqrt()
        tied = returns.max(1, keepdim=True).values == returns.min(1, keepdim=True).values
        expected = torch.where(tied, 0.0, (returns - mean) / (std + cfg.advantage_eps))
        order = torch.randperm(count * size, generator=generator)
        group = torch.arange(count).repeat_interleave(size)
        result = advantages.group_advantages(returns.flatten()[order], group[order], cfg=cfg)
        tally.identity(result.advantage_T.double(), expected.flatten()[order], count)
    return tally.result()


def _tie_probability() -> ClaimResult:
    """All 2^N outcomes of a group, weighed by their probability; ties as the trainer decides them."""
    tally = Tally("tie-probability", "P(tie) = p^N + (1 - p)^N", 1e-6)
    for size in range(2, 7):
        outcomes = torch.tensor(list(itertools.product((0.0, 1.0), repeat=size)), dtype=torch.float64)
        group = torch.arange(len(outcomes)).repeat_interleave(size)
        result = advantages.group_advantages(outcomes.flatten(), group, cfg=ObjectiveConfig())
        tied = result.tied_T.reshape(len(outcomes), size)[:, 0]
        wins = outcomes.sum(1)
        for p in (0.05, 0.3, 0.5, 0.85, 0.95):
            exact = (p**wins * (1 - p) ** (size - wins))[tied].sum().item()
            tally.error(abs(exact - ties.tie_probability(p, size)), 1)
    return tally.result()


def _policy_gradient(instances: int, generator) -> ClaimResult:
    """Trainer's coefficient of each log-prob against -rho A where the clip leaves a gradient, and 0 where it does not."""
    tally = Tally("policy-gradient-is-clipped-rho-a", "dL_policy/dlog pi = -rho A 1[not clipped]", 1e-12)
    cfg = ObjectiveConfig(kl_coef=0.0, opd_coef=0.0)

    def normal(scale):
        return scale * torch.randn(1, instances, generator=generator, dtype=torch.float64)

    old, advantage = normal(1.0) - 2.0, normal(1.0)
    logp = old + normal(0.6) * (torch.rand(1, instances, generator=generator) < 0.8)  # the rest is at theta_old
    rho = torch.exp(logp - old)
    live = torch.where(advantage > 0, rho <= 1 + cfg.clip_high, (rho >= 1 - cfg.clip_low) & (rho <= cfg.dual_clip))
    found = expectation.token_coefficients("policy", logp, cfg, logp_old=old, advantage=advantage)
    tally.identity(found, torch.where(live, -rho * advantage, 0.0), instances)
    return tally.result()


def _minibatch_mean(instances: int, generator) -> ClaimResult:
    """Sum of the micro-batches' gradients against the mean over the whole minibatch, for each rule and both terms."""
    tally = Tally("mean-is-over-the-whole-minibatch", "sum of micro-batch gradients = gradient of the minibatch mean", 1e-12)
    base = ObjectiveConfig(opd_coef=0.5, kl_coef=0.0)
    for number in range(instances):
        rows, length = 6, 7
        cfg = base.model_copy(update={"aggregation": RULES[number % len(RULES)]})

        def normal():
            return torch.randn(rows, length, generator=generator, dtype=torch.float64)

        logp, teacher, advantage = normal() - 2.0, normal() - 2.0, normal()
        mask = (torch.rand(rows, length, generator=generator) < 0.6).double()
        mask_opd = mask * (torch.rand(rows, 1, generator=generator) < 0.6)
        expected = -advantage * _weights(mask, cfg.aggregation)
        expected = expected - 0.5 / (1 + torch.exp(-cfg.beta * (teacher - logp))) * _weights(mask_opd, cfg.aggregation)
        leaf = logp.clone().requires_grad_(True)
        denominators = compose.minibatch_denominators(mask, mask_opd, cfg)
        cut = 1 + number % (rows - 1)
        for part in torch.randperm(rows, generator=generator).split(cut):
            batch = compose.TokenBatch(
                leaf[part], logp[part], None, teacher[part], None, advantage[part], mask[part], mask_opd[part]
            )
            compose.objective(batch, denominators, cfg).loss.backward()
        tally.identity(leaf.grad, expected, 1)
    return tally.result()


def _weights(mask: torch.Tensor, rule: str) -> torch.Tensor:
    """What each token counts in the mean of the minibatch, from the rule's definition."""
    sequences = (mask.sum(1) > 0).sum().clamp(min=1)
    if rule == "token-mean":
        return mask / mask.sum().clamp(min=1)
    if rule == "seq-mean-token-sum":
        return mask / sequences
    return mask / mask.sum(1, keepdim=True).clamp(min=1) / sequences
