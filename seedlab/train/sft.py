"""Weighted next-token training, shared by the tiny base policy and Stage 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

import numpy as np
import torch

from seedlab.policy.score import ScoreRow, forward_rows, plan_micro_batches


@dataclass(frozen=True)
class Document:
    """`ids` [L] and a loss weight per token [L]; weight 0 is context only, and the first token is never a target."""

    id: str
    ids: list[int]
    weights: list[float]

    @property
    def scored(self) -> ScoreRow:
        return ScoreRow(self.ids, [i for i, w in enumerate(self.weights) if w > 0 and i > 0])

    @property
    def target_weights(self) -> list[float]:
        return [w for i, w in enumerate(self.weights) if w > 0 and i > 0]


@dataclass(frozen=True)
class SftSettings:
    learning_rate: float
    min_learning_rate_ratio: float
    warmup_ratio: float
    weight_decay: float
    betas: tuple[float, float]
    grad_clip: float
    micro_batch_tokens: int


def learning_rate_at(step: int, total: int, settings: SftSettings) -> float:
    """Linear warm-up over `warmup_ratio`, then a cosine to `min_learning_rate_ratio` of the peak."""
    warmup = max(1, int(total * settings.warmup_ratio))
    if step < warmup:
        return settings.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, total - warmup)
    floor = settings.min_learning_rate_ratio
    return settings.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))


def batches_by_count(count: int, size: int, epochs: int, seed: int) -> list[list[int]]:
    """Shuffled batches of `size` documents, every document once an epoch."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(epochs):
        order = rng.permutation(count).tolist()
        out += [order[i : i + size] for i in range(0, count, size)]
    return out


def batches_by_tokens(lengths: Sequence[int], budget: int, *, window: int = 1, seed: int = 0) -> list[list[int]]:
    """Batches of about `budget` tokens, in document order.

    With a `window` above 1, so many successive documents are batched by rising length (rows of one batch are then
    padded little) and the window's batches are shuffled, so that training does not swing between short and long.
    """
    if window == 1:
        return _fill(range(len(lengths)), lengths, budget)
    rng = np.random.default_rng([seed, 3])
    out: list[list[int]] = []
    for start in range(0, len(lengths), window):
        part = sorted(range(start, min(start + window, len(lengths))), key=lambda i: lengths[i])
        batches = _fill(part, lengths, budget)
        out += [batches[i] for i in rng.permutation(len(batches)).tolist()]
    return out


def _fill(order: Iterable[int], lengths: Sequence[int], budget: int) -> list[list[int]]:
    out: list[list[int]] = [[]]
    filled = 0
    for index in order:
        if out[-1] and filled + lengths[index] > budget:
            out.append([])
            filled = 0
        out[-1].append(index)
        filled += lengths[index]
    return out


def make_optimizer(model, *, learning_rate: float, weight_decay: float, betas) -> torch.optim.AdamW:
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(parameters, lr=learning_rate, betas=tuple(betas), weight_decay=weight_decay, foreach=True)


def train_documents(
    model,
    documents: Sequence[Document],
    batches: Sequence[Sequence[int]],
    settings: SftSettings,
    *,
    pad_id: int,
    on_step: Callable[[int, int, float], None] = lambda step, total, loss: None,
) -> list[float]:
    """Minimise the weighted mean negative log-likelihood of each batch; returns the loss of each step.

    The denominator is the batch's whole weight, so splitting a batch into micro-batches changes no gradient.  Raises
    ValueError where no document has a target.
    """
    if not any(d.scored.positions for d in documents):
        raise ValueError("no document has a token to learn from; check the length limit and the loss weights")
    optimizer = make_optimizer(
        model, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay, betas=settings.betas
    )
    losses = []
    for step, batch in enumerate(batches):
        chosen = [documents[i] for i in batch if documents[i].scored.positions]
        total_weight = sum(sum(d.target_weights) for d in chosen)
        rate = learning_rate_at(step, len(batches), settings)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        loss_sum = 0.0
        for part in plan_micro_batches([len(d.ids) for d in chosen], settings.micro_batch_tokens):
            docs = [chosen[i] for i in part]
            logp, _ = forward_rows(model, [d.scored for d in docs], want_entropy=False, pad_id=pad_id)
            weights = torch.tensor([w for d in docs for w in d.target_weights], device=logp.device)
            loss = -(weights * logp).sum() / total_weight
            loss.backward()
            loss_sum += float(loss.detach())
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], settings.grad_clip)
        optimizer.step()
        losses.append(loss_sum)
        on_step(step + 1, len(batches), loss_sum)
    return losses


@torch.no_grad()
def mean_loss(model, documents: Sequence[Document], *, micro_batch_tokens: int, pad_id: int) -> float:
    """Weighted mean negative log-likelihood in nats per token; NaN where there is no target."""
    total, weight = 0.0, 0.0
    chosen = [d for d in documents if d.scored.positions]
    for part in plan_micro_batches([len(d.ids) for d in chosen], micro_batch_tokens):
        docs = [chosen[i] for i in part]
        logp, _ = forward_rows(model, [d.scored for d in docs], want_entropy=False, pad_id=pad_id)
        weights = torch.tensor([w for d in docs for w in d.target_weights], device=logp.device)
        total += float(-(weights * logp).sum())
        weight += float(weights.sum())
    return total / weight if weight else float("nan")
