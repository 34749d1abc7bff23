"""The distillation term over the vocabulary instead of the sampled token: no sampling noise, and alternatives that were
not sampled get direct supervision (objective.support).

    -sum_v sg[pi(v) g(v)] log pi(v),   g(v) = sigma(beta (log pi_t(v) - log pi(v)))

pi is the live student, which is pi_k in the first minibatch of an update.  Its gradient is the expected one of the sampled
term where the skill is independent of the sampled token given the context; for skills written from the token's own
trajectory it is another, biased target.
"""

from __future__ import annotations

import torch

from seedlab.objective.losses import gate


def support_loss(logp_MV: torch.Tensor, logp_teacher_MV: torch.Tensor, beta: float, k: int | None = None) -> torch.Tensor:
    """[M]: sum_v sg[pi g] (sg[log pi_t] - log pi); with `k`, over the student's k likeliest tokens and the rest as one more.

    Both arguments are log-probabilities over the vocabulary; only the student's carries a gradient.  A token of
    probability 0 contributes nothing.
    """
    teacher = logp_teacher_MV.detach()
    if k is not None and k < logp_MV.shape[-1]:
        logp_MV, teacher = _head_and_rest(logp_MV, teacher, k)
    finite = torch.finfo(logp_MV.dtype).min / 4
    student, teacher = logp_MV.clamp(min=finite), teacher.clamp(min=finite)
    fixed = student.detach()
    weight = fixed.exp() * gate(teacher - fixed, beta)
    return (weight * (teacher - student)).sum(-1)


def expected_gate(logp_MV: torch.Tensor, logp_teacher_MV: torch.Tensor, beta: float) -> torch.Tensor:
    """[M]: Z = sum_v pi(v) sigma(beta (log pi_t(v) - log pi(v))), what the gate is on average in a context (section 6).

    As a baseline it leaves the expected gradient as it is where the skill of pi_t owes nothing to the sampled token.
    """
    finite = torch.finfo(logp_MV.dtype).min / 4
    student, teacher = logp_MV.detach().clamp(min=finite), logp_teacher_MV.detach().clamp(min=finite)
    return (student.exp() * gate(teacher - student, beta)).sum(-1)


def _head_and_rest(logp, teacher, k):
    top = logp.detach().topk(k, dim=-1).indices
    chosen = torch.zeros_like(logp, dtype=torch.bool).scatter(-1, top, True)

    def rest(values):
        return torch.where(chosen, torch.finfo(values.dtype).min / 4, values).logsumexp(-1, keepdim=True)

    return torch.cat([logp.gather(-1, top), rest(logp)], -1), torch.cat([teacher.gather(-1, top), rest(teacher)], -1)
