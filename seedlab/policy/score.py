"""Log-probabilities and entropies of given tokens, in chunks over the vocabulary projection.

The hidden states come from one forward pass over right-padded rows; a causal mask alone keeps padding out, since it
lies to the right of every real token.  Logits exist for one chunk of tokens at a time (a vocabulary of 151,936 and
8 x 4,096 tokens would otherwise need 18.6 GiB), also in the backward pass, where they are computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import torch
from torch.utils.checkpoint import checkpoint

LOGIT_BUDGET = 32 * 1024 * 1024  # logits held at once, in elements


@dataclass(frozen=True)
class ScoreRow:
    """`ids` [L] of one sequence and the positions in it whose tokens are to be scored (each >= 1)."""

    ids: Sequence[int]
    positions: Sequence[int]


def _chunk(hidden_MD, targets_M, head, temperature, want_entropy):
    logits = head(hidden_MD).float()
    if temperature != 1.0:
        logits = logits / temperature
    logp_MV = torch.log_softmax(logits, dim=-1)
    logp_M = logp_MV.gather(1, targets_M[:, None])[:, 0]
    # A token that is masked to -inf adds 0 to the entropy and its gradient, not 0 * inf.
    finite_MV = logp_MV.clamp(min=torch.finfo(logp_MV.dtype).min)
    entropy_M = -(logp_MV.exp() * finite_MV).sum(-1) if want_entropy else torch.zeros_like(logp_M)
    return logp_M, entropy_M


def token_logprobs(hidden_MD, targets_M, head, *, temperature=1.0, want_entropy=True, budget=LOGIT_BUDGET):
    """Float32 log-probs [M] and entropies [M] (nats) of `targets_M` under head(hidden) / T, differentiable.

    At most `budget` logits are alive at once, and twice that in the backward pass.
    """
    vocabulary = head.weight.shape[0]
    size = max(1, budget // vocabulary)
    if len(targets_M) <= size and not (torch.is_grad_enabled() and len(targets_M) * vocabulary > budget):
        return _chunk(hidden_MD, targets_M, head, temperature, want_entropy)
    parts = []
    for start in range(0, len(targets_M), size):
        args = (hidden_MD[start : start + size], targets_M[start : start + size], head, temperature, want_entropy)
        parts.append(checkpoint(_chunk, *args, use_reentrant=False) if torch.is_grad_enabled() else _chunk(*args))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def forward_rows(model, rows: Sequence[ScoreRow], *, temperature: float = 1.0, want_entropy: bool = True, pad_id: int = 0):
    """Flat log-probs and entropies of all scored tokens of `rows`, row after row; gradients flow if enabled."""
    device = model.device
    width = max(len(r.ids) for r in rows)
    ids_BL = torch.full((len(rows), width), pad_id, dtype=torch.long)
    for i, row in enumerate(rows):
        ids_BL[i, : len(row.ids)] = torch.tensor(row.ids)
    hidden_BLD = model.get_decoder()(input_ids=ids_BL.to(device), use_cache=False).last_hidden_state
    row_M = torch.tensor([i for i, r in enumerate(rows) for _ in r.positions], dtype=torch.long)
    position_M = torch.tensor([p for r in rows for p in r.positions], dtype=torch.long)
    if len(position_M) and int(position_M.min()) < 1:
        raise ValueError("a token at position 0 has no context and cannot be scored")
    targets_M = ids_BL[row_M, position_M].to(device)
    hidden_MD = hidden_BLD[row_M.to(device), (position_M - 1).to(device)]
    return token_logprobs(hidden_MD, targets_M, model.get_output_embeddings(), temperature=temperature, want_entropy=want_entropy)


def plan_micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices grouped so that rows x longest row <= budget (a single longer row stands alone); short rows together."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if batches and (len(batches[-1]) + 1) * lengths[index] <= budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


@torch.no_grad()
def score(model, rows: Sequence[ScoreRow], *, temperature: float = 1.0, micro_batch_tokens: int = 16384, pad_id: int = 0):
    """Log-probs and entropies per row, on the CPU: a list of (float32 [n], float32 [n]) in the order of `rows`."""
    out: list = [None] * len(rows)
    for batch in plan_micro_batches([len(r.ids) for r in rows], micro_batch_tokens):
        part = [rows[i] for i in batch]
        logp, entropy = forward_rows(model, part, temperature=temperature, pad_id=pad_id)
        sizes = [len(r.positions) for r in part]
        for i, lp, en in zip(batch, logp.float().cpu().split(sizes), entropy.float().cpu().split(sizes)):
            out[i] = (lp, en)
    return out
