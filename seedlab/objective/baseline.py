"""A baseline b for the gate: at theta_old, sum_v pi grad log pi = 0, so that (g - b) has the expected gradient of g.

That holds only where b depends neither on the sampled token nor on a skill written from it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from seedlab.objective.distillation import Distillation


def centred(term: Distillation, logp, logp_teacher, baseline) -> Distillation:
    """(g - b) (sg[l_t] - l_s) in place of the gated term; a token whose gate is below b is pushed down."""
    coefficient = (term.gate - baseline).detach()
    return Distillation(coefficient * (logp_teacher.detach() - logp), term.delta, coefficient, term.gate)


def leave_out_means(gate: Sequence[torch.Tensor], trajectory: Sequence[int], written_from: Sequence[Collection[int]]) -> list[float]:
    """For each row, the mean gate over the tokens of the rows that owe it nothing; 0 where there are none.

    gate: per row [n] of its taught tokens, empty where it has none.  trajectory: the row's.  written_from: the
    trajectories that the row's skills were written from, if any.  Left out are the rows of the same trajectory, and those whose skill was
    written from it: either would tie b to the sampled token.
    """
    sums = [float(g.double().sum()) for g in gate]
    counts = [g.numel() for g in gate]
    by_trajectory: dict[int, float] = {}
    for own in set(trajectory):
        others = [i for i, (t, sources) in enumerate(zip(trajectory, written_from)) if own != t and own not in sources]
        count = sum(counts[i] for i in others)
        by_trajectory[own] = sum(sums[i] for i in others) / count if count else 0.0
    return [by_trajectory[t] for t in trajectory]
