"""From per-token losses to one number, independent of how a minibatch is cut into micro-batches.

The denominators are counted once over the whole minibatch (and, with several workers, added up over them); each
micro-batch then contributes an additive share, and the shares' sum has the gradient of the minibatch taken at once.

A *sequence* is a row: a trajectory in the conversation layout, a step sample in the step layout.  The two sequence
rules therefore weigh a trajectory by its number of steps in the step layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Mapping

import torch

RULES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "fixed")


@dataclass(frozen=True)
class Denominators:
    """`tokens` masked in, and `sequences` with at least one such token, over a whole minibatch.  Add them over workers."""

    tokens: float
    sequences: float

    def __add__(self, other: "Denominators") -> "Denominators":
        return Denominators(self.tokens + other.tokens, self.sequences + other.sequences)


def count_denominators(mask_BL: torch.Tensor) -> Denominators:
    """Counts of a minibatch from its mask [B, L]; a fully masked row is no sequence."""
    kept = mask_BL > 0
    return Denominators(float(kept.sum()), float(kept.any(dim=-1).sum()))


def aggregate(
    per_token_BL: torch.Tensor, mask_BL: torch.Tensor, denominators: Denominators, rule: str, fixed: float | None = None
) -> torch.Tensor:
    """A micro-batch's additive share of the minibatch value, a scalar that keeps the graph.

    token-mean: sum / tokens.  seq-mean-token-sum: sum / sequences.  seq-mean-token-mean: each row's mean over its own
    tokens, summed / sequences (a row must not be split over micro-batches).  fixed: sum / `fixed`, for instance
    B * Lmax.  With nothing masked in, the value and the gradients are 0.  Values outside the mask do not matter, not
    even if they are NaN.
    """
    kept = mask_BL > 0
    values = torch.where(kept, per_token_BL, torch.zeros_like(per_token_BL))
    if rule == "token-mean":
        return values.sum() / max(denominators.tokens, 1.0)
    if rule == "seq-mean-token-sum":
        return values.sum() / max(denominators.sequences, 1.0)
    if rule == "seq-mean-token-mean":
        lengths = kept.sum(dim=-1).clamp(min=1)
        return (values.sum(dim=-1) / lengths).sum() / max(denominators.sequences, 1.0)
    if rule == "fixed":
        if fixed is None or fixed <= 0:
            raise ValueError("aggregation=fixed needs objective.fixed_denominator above 0")
        return values.sum() / fixed
    raise ValueError(f"unknown objective.aggregation={rule!r}; choose one of {', '.join(RULES)}")


def macro_micro(success_by_type: Mapping[str, tuple[int, int]]) -> tuple[float, float]:
    """(macro, micro) success from {task type: (successes, episodes)}.

    Macro is the mean of the types' rates, micro the share over all episodes; never compare one with the other.
    Raises ValueError where a type, or everything, has no episodes: its rate does not exist.
    """
    empty = [kind for kind, (_, episodes) in success_by_type.items() if episodes <= 0]
    if empty or not success_by_type:
        raise ValueError(f"no episodes for {', '.join(map(str, empty)) or 'any task type'}; leave it out or evaluate it")
    rates = [won / episodes for won, episodes in success_by_type.values()]
    won, episodes = (sum(pair[i] for pair in success_by_type.values()) for i in (0, 1))
    return sum(rates) / len(rates), won / episodes
