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

from seedlab.policy.mask import attention_mask

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
    return log_probs_of_chunk(torch.log_softmax(logits, dim=-1), targets_M, want_entropy)


def log_probs_of_chunk(logp_MV, targets_M, want_entropy=True):
    """Log-probs and entropies [M] of `targets_M` from log-probs over the vocabulary."""
    logp_M = logp_MV.gather(1, targets_M[:, None])[:, 0]
    # A token that is masked to -inf adds 0 to the entropy and its gradient, not 0 * inf.
    finite_MV = logp_MV.clamp(min=torch.finfo(logp_MV.dtype).min)
    entropy_M = -(logp_MV.exp() * finite_MV).sum(-1) if want_entropy else torch.zeros_like(logp_M)
    return logp_M, entropy_M


def token_logprobs(hidden_MD, targets_M, head, *, temperature=1.0, want_entropy=True, budget=LOGIT_BUDGET):
    """Float32 log-probs [M] and entropies [M] (nats) of `targets_M` under head(hidden) / T, differentiable.

    At most `budget` logits are alive at once, and twice that in the backward pass.
    """
    vocabulary = head.out_features  # not the weight's shape: under ZeRO-3 a weight is empty between its uses
    size = max(1, budget // vocabulary)
    if len(targets_M) <= size and not (torch.is_grad_enabled() and len(targets_M) * vocabulary > budget):
        return _chunk(hidden_MD, targets_M, head, temperature, want_entropy)
    parts = []
    for start in range(0, len(targets_M), size):
        args = (hidden_MD[start : start + size], targets_M[start : start + size], head, temperature, want_entropy)
        parts.append(checkpoint(_chunk, *args, use_reentrant=False) if torch.is_grad_enabled() else _chunk(*args))
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])


def forward_rows(
    model, rows: Sequence[ScoreRow], *, temperature: float = 1.0, want_entropy: bool = True, pad_id: int = 0,
    packs: Sequence[Sequence[int]] | None = None,
):
    """Flat log-probs and entropies of all scored tokens of `rows`, row after row; gradients flow if enabled.

    `packs` groups the indices of `rows` that share one line of the forward pass: positions start anew with each row, and
    no token attends to another row of its line.  Without it every row has a line of its own.
    """
    hidden_MD, targets_M = hidden_of_rows(model, rows, pad_id=pad_id, packs=packs)
    return token_logprobs(hidden_MD, targets_M, model.get_output_embeddings(), temperature=temperature, want_entropy=want_entropy)


def hidden_of_rows(model, rows: Sequence[ScoreRow], *, pad_id: int = 0, packs: Sequence[Sequence[int]] | None = None):
    """Hidden states [M, D] from which each scored token is predicted, and those tokens [M], row after row."""
    device = model.device
    ids_BL, positions_BL, mask_BLL, place_R = _lay_out(rows, packs, pad_id)
    layout = {}
    if mask_BLL is not None:
        layout = {"position_ids": positions_BL.to(device), "attention_mask": attention_mask(model, mask_BLL.to(device))}
    hidden_BLD = model.get_decoder()(input_ids=ids_BL.to(device), use_cache=False, **layout).last_hidden_state
    line_M = torch.tensor([line for r, (line, _) in zip(rows, place_R) for _ in r.positions], dtype=torch.long)
    position_M = torch.tensor([start + p for r, (_, start) in zip(rows, place_R) for p in r.positions], dtype=torch.long)
    if any(p < 1 for r in rows for p in r.positions):
        raise ValueError("a token at position 0 has no context and cannot be scored")
    targets_M = ids_BL[line_M, position_M].to(device)
    return hidden_BLD[line_M.to(device), (position_M - 1).to(device)], targets_M


def _lay_out(rows, packs, pad_id):
    """Right-padded ids [B, L], positions [B, L] and mask [B, L, L] (None where no line is shared), (line, start) per row."""
    lines = [[i] for i in range(len(rows))] if packs is None else packs
    if sorted(i for line in lines for i in line) != list(range(len(rows))):
        raise ValueError("packs must name every row exactly once")
    width = max(sum(len(rows[i].ids) for i in line) for line in lines)
    ids_BL = torch.full((len(lines), width), pad_id, dtype=torch.long)
    positions_BL = torch.zeros((len(lines), width), dtype=torch.long)
    owner_BL = torch.full((len(lines), width), -1)  # padding attends to padding, so that no line of the mask is empty
    place_R = [(0, 0)] * len(rows)
    for number, line in enumerate(lines):
        start = 0
        for i in line:
            end = start + len(rows[i].ids)
            ids_BL[number, start:end] = torch.tensor(rows[i].ids)
            positions_BL[number, start:end] = torch.arange(end - start)
            owner_BL[number, start:end] = i
            place_R[i] = (number, start)
            start = end
    if all(len(line) == 1 for line in lines):
        return ids_BL, None, None, place_R  # causality alone keeps the padding out, and the fast kernels apply
    same_BLL = owner_BL[:, :, None] == owner_BL[:, None, :]
    return ids_BL, positions_BL, same_BLL & torch.ones(width, width, dtype=torch.bool).tril(), place_R


def pack_rows(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices grouped into lines of at most `budget` tokens (a longer row stands alone): longest first, first fit."""
    lines: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        for number, free in enumerate(room):
            if lengths[index] <= free:
                lines[number].append(index)
                room[number] -= lengths[index]
                break
        else:
            lines.append([index])
            room.append(budget - lengths[index])
    return lines


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
