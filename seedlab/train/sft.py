"""Weighted next-token training, shared by the tiny base policy and Stage 1."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Callable, Iterable, Sequence

import numpy as np
import torch

from seedlab.policy.score import ScoreRow, forward_rows, pack_rows, plan_micro_batches
from seedlab.train.diverged import Diverged


STAGE1 = {"called": "Stage 1's SFT", "rate_key": "stage1.learning_rate"}  # of `train_documents`, on whichever engine


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
    pack_tokens: int = 0  # tokens of a line that several documents share; 0 gives each its own


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


Parts = list[list[list[int]]]  # forward passes -> lines -> documents


def plan_parts(lengths: Sequence[int], settings: SftSettings) -> Parts:
    """Forward passes over lines of documents: a line holds one document, or several where `pack_tokens` allows it."""
    packs = pack_rows(lengths, settings.pack_tokens) if settings.pack_tokens else [[i] for i in range(len(lengths))]
    totals = [sum(lengths[i] for i in line) for line in packs]
    return [[packs[line] for line in part] for part in plan_micro_batches(totals, settings.micro_batch_tokens)]


class DocumentLoss(torch.nn.Module):
    """A language model whose forward pass is the loss of some documents; what an engine wraps and differentiates.

    `compute` makes the context of one forward pass (bf16 autocast where a policy is configured so).
    """

    def __init__(self, model, pad_id: int, compute: Callable = nullcontext):
        super().__init__()
        self.model, self.pad_id, self.compute = model, pad_id, compute

    def forward(self, documents: Sequence[Document], lines: Sequence[Sequence[int]]) -> torch.Tensor:
        """Sum of weight x negative log-likelihood over the targets of the documents that `lines` name, in nats."""
        order = [i for line in lines for i in line]
        place = {i: k for k, i in enumerate(order)}
        docs = [documents[i] for i in order]
        # One context per pass: autocast keeps its copies of the weights until it is left, also over an optimizer step.
        with self.compute():
            logp, _ = forward_rows(
                self.model, [d.scored for d in docs], want_entropy=False, pad_id=self.pad_id,
                packs=[[place[i] for i in line] for line in lines],
            )
        return -(torch.tensor([w for d in docs for w in d.target_weights], device=logp.device) * logp).sum()


class Stepper:
    """How one process turns losses into optimizer steps; DeepSpeed's counterpart has the same methods."""

    def __init__(self, model, settings: SftSettings, *, pad_id: int, compute: Callable = nullcontext):
        self.loss, self.settings = DocumentLoss(model, pad_id, compute), settings
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = make_optimizer(
            model, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay, betas=settings.betas
        )

    def share(self, lengths: Sequence[int]) -> Parts:
        """This process's forward passes of a batch."""
        return plan_parts(lengths, self.settings)

    def begin(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)

    def backward(self, loss: torch.Tensor, *, last: bool) -> None:
        loss.backward()

    def step(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, self.settings.grad_clip)
        self.optimizer.step()

    def total(self, value: float) -> float:
        """The sum of `value` over all processes."""
        return value

    def step_done(self, step: int, losses: list[float]) -> None:
        """Called after each optimizer step with the number of steps done and all losses so far."""


def train_documents(
    model,
    documents: Sequence[Document],
    batches: Sequence[Sequence[int]],
    settings: SftSettings,
    *,
    pad_id: int,
    on_step: Callable[[int, int, float], None] = lambda step, total, loss: None,
    stepper: Stepper | None = None,
    before: Sequence[float] = (),
    called: str = "the training",
    rate_key: str = "the learning rate",
) -> list[float]:
    """Minimise the weighted mean negative log-likelihood of each batch; returns the loss of each step.

    The denominator is the batch's whole weight, so neither micro-batches nor packing nor the number of processes changes
    a gradient.  `before` are the losses of steps already done, which are passed over.  Raises ValueError where no
    document has a target, and Diverged, which names the training as `called` and its key `rate_key`, where a loss is
    no longer finite.
    """
    if not any(d.scored.positions for d in documents):
        raise ValueError("no document has a token to learn from; check the length limit and the loss weights")
    stepper = stepper or Stepper(model, settings, pad_id=pad_id)
    losses = list(before)
    for step in range(len(losses), len(batches)):
        chosen = [documents[i] for i in batches[step] if documents[i].scored.positions]
        total_weight = sum(sum(d.target_weights) for d in chosen)
        stepper.begin(learning_rate_at(step, len(batches), settings))
        loss_sum = 0.0
        parts = stepper.share([len(d.ids) for d in chosen])
        for number, lines in enumerate(parts):
            loss = stepper.loss(chosen, lines) / total_weight
            stepper.backward(loss, last=number == len(parts) - 1)
            loss_sum += float(loss.detach())
        stepper.step()
        losses.append(stepper.total(loss_sum))
        if not math.isfinite(losses[-1]):
            raise Diverged(f"{called}: the loss of step {step + 1} of {len(batches)} is {losses[-1]}; lower {rate_key}={settings.learning_rate:g}")
        stepper.step_done(step + 1, losses)
        on_step(step + 1, len(batches), losses[-1])
    return losses


@torch.no_grad()
def mean_loss(model, documents: Sequence[Document], *, micro_batch_tokens: int, pad_id: int) -> float:
    """Weighted mean negative log-likelihood in nats per token; NaN where there is no target."""
    chosen = [d for d in documents if d.scored.positions]
    loss = DocumentLoss(model, pad_id)
    parts = plan_micro_batches([len(d.ids) for d in chosen], micro_batch_tokens)
    total = sum(float(loss(chosen, [[i] for i in part])) for part in parts)
    weight = sum(sum(d.target_weights) for d in chosen)
    return total / weight if weight else float("nan")
