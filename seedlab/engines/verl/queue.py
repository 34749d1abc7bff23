"""Rows to and from verl's workers through the TransferQueue."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Sequence

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.seqlen_balancing import calculate_workload, get_seqlen_balanced_partitions

from seedlab.engines.verl.loss import VISITED
from seedlab.policy.score import ScoreRow

SCORE, UPDATE = "seedlab-score", "seedlab-update"  # partitions beside verl's own


@dataclass(frozen=True)
class Visit:
    """What an optimizer step saw: per row log-probs and entropies [n] before the step, and the gradient's norm."""

    logp: list[torch.Tensor]
    entropy: list[torch.Tensor]
    grad_norm: float
    peak_memory_mb: float


class Workers:
    """The actor's and the reference's workers: scoring of rows, and one optimizer step on a minibatch of rows."""

    def __init__(self, actor, reference, *, temperature: float, micro_batch_tokens: int):
        self.actor, self.reference, self.temperature, self.micro_batch_tokens = actor, reference, temperature, micro_batch_tokens
        self._numbers = itertools.count()

    @property
    def ranks(self) -> int:
        if "actor" not in self.actor._dispatch_info:
            self.actor._dispatch_info["actor"] = self.actor._query_dispatch_info("actor")
        return max(self.actor._dispatch_info["actor"]) + 1

    def score(self, rows: Sequence[ScoreRow], *, reference: bool = False) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Float32 log-probs [n] (and the actor's entropies [n]) of each row, under the present weights or the reference's."""
        if not rows:
            return []
        keys, meta, order = self._put(SCORE, rows, {})
        meta.extra_info = {"calculate_entropy": not reference, "compute_loss": False} | self._common(rows)
        if reference:
            self.reference.compute_ref_log_prob(meta)
        else:
            self.actor.compute_log_prob(meta)
        names = ["log_probs"] if reference else ["log_probs", "entropy"]
        data = tq.kv_batch_get(keys=keys, partition_id=SCORE, select_fields=names)
        tq.kv_clear(keys=keys, partition_id=SCORE)
        found: list = [None] * len(rows)
        columns = [[x.float() for x in data[name].unbind()] for name in names]
        for place, row in enumerate(order):
            if row < len(rows):
                found[row] = (columns[0][place], None if reference else columns[1][place])
        return found

    def update(self, rows: Sequence[ScoreRow], fields: dict[str, list[torch.Tensor]], extra: dict[str, float]) -> Visit:
        """One optimizer step on all `rows`; `fields` hold one tensor [n] per row, `extra` plain numbers for the loss."""
        keys, meta, _ = self._put(UPDATE, rows, fields)
        meta.extra_info = {
            "calculate_entropy": True, "mini_batch_size": len(keys), "epochs": 1, "seed": 0,
            "dataloader_kwargs": {"shuffle": False}, **extra, **self._common(rows),
        }  # fmt: skip
        metrics = self.actor.update_actor(meta)["metrics"]
        tq.kv_clear(keys=keys, partition_id=UPDATE)
        logp: list = [None] * len(rows)
        entropy: list = [None] * len(rows)
        for row, lp, en in _flat(metrics[VISITED]):
            if row < len(rows):
                logp[row], entropy[row] = torch.from_numpy(lp), torch.from_numpy(en)
        return Visit(logp, entropy, float(np.max(metrics["grad_norm"])), 1024.0 * float(np.max(metrics["perf/max_memory_allocated_gb"])))

    def _common(self, rows: Sequence[ScoreRow]) -> dict:
        """A row longer than the budget stands alone in its micro-batch, as in the in-process engine; verl would refuse it."""
        longest = max(len(r.ids) for r in rows)
        return {"temperature": self.temperature, "max_token_len_per_gpu": max(self.micro_batch_tokens, longest)}

    def _put(self, partition: str, rows: Sequence[ScoreRow], fields: dict[str, list[torch.Tensor]]):
        """Rows into `partition`; keys, their metadata, and the row number of each place."""
        order = balanced_order([len(r.ids) for r in rows], self.ranks)
        tensors = row_tensors(rows, fields, order)
        number = next(self._numbers)
        keys = [f"{partition}-{number}_{place}_0" for place in range(len(order))]
        tags = [{"seq_len": int(n)} for n in tensors["input_ids"].offsets().diff()]
        tq.kv_batch_put(keys=keys, partition_id=partition, fields=tensors, tags=tags)
        return keys, KVBatchMeta(partition_id=partition, keys=keys, tags=tags), order


def balanced_order(lengths: Sequence[int], ranks: int) -> list[int]:
    """Row numbers by rank: every rank gets the same number of rows, and about the same work.

    Where the number of rows is no multiple of the ranks, numbers of len(lengths) and more stand for fillers.
    """
    fillers = -len(lengths) % ranks
    sizes = torch.tensor([*lengths, *[min(lengths)] * fillers])
    parts = get_seqlen_balanced_partitions(calculate_workload(sizes), k_partitions=ranks, equal_size=True)
    return [row for part in parts for row in part]


def row_tensors(rows: Sequence[ScoreRow], fields: dict[str, list[torch.Tensor]], order: Sequence[int]) -> TensorDict:
    """Rows in `order` with their fields; a filler is a copy of the shortest row whose fields are all 0."""
    shortest = min(range(len(rows)), key=lambda i: len(rows[i].ids))
    chosen = [rows[number] if number < len(rows) else rows[shortest] for number in order]
    tensors = {
        "input_ids": _jagged([torch.tensor(list(r.ids)) for r in chosen]),
        "scored": _jagged([torch.tensor(list(r.positions)) for r in chosen]),
        "row": torch.tensor(list(order)),
        # verl counts its tokens by this field; our denominators come from the whole minibatch instead
        "loss_mask": _jagged([torch.ones(len(r.positions)) for r in chosen]),
    }
    for name, values in fields.items():
        nothing = torch.zeros_like(values[shortest])
        tensors[name] = _jagged([values[number] if number < len(rows) else nothing for number in order])
    return TensorDict(tensors, batch_size=[len(order)])


def _jagged(values: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(values, layout=torch.jagged)


def _flat(value):
    """Rows of all ranks and micro-batches, however verl nested the lists."""
    if isinstance(value, tuple):
        yield value
    else:
        for part in value:
            yield from _flat(part)
