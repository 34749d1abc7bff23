"""Two contexts' distributions over the vocabulary side by side: the same sampled tokens, with and without a skill."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.utils.checkpoint import checkpoint

from seedlab.policy.score import LOGIT_BUDGET, ScoreRow, hidden_of_rows, log_probs_of_chunk

Term = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def forward_pairs(
    model, rows: Sequence[ScoreRow], twins: Sequence[ScoreRow], term: Term, *, temperature: float = 1.0, pad_id: int = 0,
    budget: int = LOGIT_BUDGET,
):
    """Flat (log-probs, entropies, term) of all scored tokens of `rows`, as `forward_rows` orders them.

    `term(student_MV, teacher_MV)` maps the log-probs over the vocabulary of both contexts to one number per token [M].
    `twins` score the same tokens in the other context, without a gradient.  At most `budget` logits of each are alive at
    once.
    """
    hidden_MD, targets_M = hidden_of_rows(model, rows, pad_id=pad_id)
    with torch.no_grad():
        other_MD, same_M = hidden_of_rows(model, twins, pad_id=pad_id)
    if not torch.equal(targets_M, same_M):
        raise ValueError("the two contexts must score the same tokens")
    head = model.get_output_embeddings()

    def chunk(hidden, other, targets):
        with torch.no_grad():
            teacher = torch.log_softmax(head(other).float() / temperature, dim=-1)
        student = torch.log_softmax(head(hidden).float() / temperature, dim=-1)
        return (*log_probs_of_chunk(student, targets), term(student, teacher))

    size = max(1, budget // head.out_features)
    parts = []
    for start in range(0, len(targets_M), size):
        args = tuple(x[start : start + size] for x in (hidden_MD, other_MD, targets_M))
        parts.append(checkpoint(chunk, *args, use_reentrant=False) if torch.is_grad_enabled() else chunk(*args))
    return tuple(torch.cat(column) for column in zip(*parts))
