"""What one update learns from, and its sampled tokens as tensors and as table rows: the same for every engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Sequence

import numpy as np
import pandas as pd
import torch

from seedlab.config.schema import ObjectiveConfig, Stage2Config
from seedlab.episodes.keys import stream_key
from seedlab.objective.baseline import leave_out_means
from seedlab.objective.compose import ObjectiveOutput, TokenBatch
from seedlab.objective.losses import gate
from seedlab.objective.metrics import WeightedMeans
from seedlab.policy.score import ScoreRow
from seedlab.rows.build import TokenRow, split_minibatches


@dataclass
class PreparedBatch:
    """Everything one update learns from, per row [B] of `rows`: advantages, masks, fixed log-probs."""

    rows: list[TokenRow]
    advantage: list[torch.Tensor]  # per row [n]: the trajectory's, or the invalid step's where those differ
    policy_mask_B: torch.Tensor  # 0 where the trajectory is unscored
    opd_mask_B: torch.Tensor  # 0 without a usable skill, by `where`, or where the teacher context is too long
    tied_B: torch.Tensor
    logp_old: list[torch.Tensor] | None = None  # under theta_old where it was scored anew; None takes the sampler's
    logp_ref: list[torch.Tensor] | None = None
    logp_teacher_once: list[torch.Tensor] | None = None
    written_from: list[frozenset[int]] | None = None  # per row: the trajectories that the teacher's skills were written from
    baseline: dict[int, torch.Tensor] | None = None  # by row [n]: subtracted from its gates, set with each minibatch's teacher


@dataclass
class UpdateResult:
    metrics: dict[str, float]
    tokens: pd.DataFrame
    steps: int
    means: WeightedMeans
    records: list[dict] = field(default_factory=list)
    entropy_old: list[torch.Tensor] | None = None  # per row [n], under theta_old; None where the sampler gave them


def pad(values: Sequence[torch.Tensor], fill: float = 0.0) -> torch.Tensor:
    """Rows of different lengths to [B, L], padded on the right."""
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=fill)


def minibatch_plan(rows: int, cfg: Stage2Config, *, seed: int, update: int) -> list[list[int]]:
    """Row indices of each minibatch of an update: a function of (seed, update) and the number of rows alone."""
    order = np.random.default_rng(stream_key(seed, "minibatches", update)).permutation(rows).tolist()
    return split_minibatches(rows, order, minibatches=cfg.minibatches, minibatch_rows=cfg.minibatch_rows)


def old_log_probs(batch: PreparedBatch, indices: Sequence[int]) -> list[torch.Tensor]:
    """Log-probs under theta_old of each row's sampled tokens."""
    if batch.logp_old is not None:
        return [batch.logp_old[i] for i in indices]
    return [torch.tensor(batch.rows[i].logp_rollout) for i in indices]


def teacher_log_probs(
    batch: PreparedBatch, indices: Sequence[int], score: Callable[[list[ScoreRow]], list[tuple[torch.Tensor, object]]]
) -> tuple[list[torch.Tensor], int]:
    """Log-probs [n] of the sampled tokens of the rows `indices` behind their skills, zeros where a row is masked out, and
    how many tokens were read for them.  `score` is the engine's, under the weights of the moment.

    Where any row of the batch has further teachers (objective.average_skills) they are [n, S], NaN where a row has fewer.
    """
    several = 1 + max((len(row.more_teachers) for row in batch.rows), default=0)
    found = [torch.zeros(len(batch.rows[i].positions), several) for i in indices]
    parts = []
    for out, i in zip(found, indices):
        out[:, 1:] = torch.nan
        if batch.opd_mask_B[i] > 0:
            row = batch.rows[i]
            parts += [(out, scored, places, 0) for scored, places in row.teacher_parts()]
            parts += [(out, twin, list(range(len(row.positions))), column) for column, twin in enumerate(row.more_teachers, 1)]
    scored = score([row for _, row, _, _ in parts]) if parts else []
    for (out, _, places, column), (logp, _) in zip(parts, scored):
        out[places, column] = logp.float()
    return [out[:, 0] if several == 1 else out for out in found], sum(len(row.ids) for _, row, _, _ in parts)


def first_skill(teacher: torch.Tensor) -> torch.Tensor:
    """[n] of a row's log-probs, which are [n, S] where a teacher reads several skills."""
    return teacher if teacher.ndim == 1 else teacher[:, 0]


def set_baseline(batch: PreparedBatch, indices: Sequence[int], teacher: list[torch.Tensor] | None, cfg: ObjectiveConfig) -> None:
    """The baseline of the minibatch `indices` for objective.baseline=mean, from its teacher's log-probs and those under
    theta_old; otherwise none."""
    batch.baseline = None
    if cfg.baseline != "mean" or cfg.opd_coef == 0 or teacher is None:
        return
    gates = [
        (gate(t - old, cfg.beta) if t.ndim == 1 else gate(t - old[:, None], cfg.beta).nanmean(-1)) if batch.opd_mask_B[i] > 0 else old[:0]
        for i, t, old in zip(indices, teacher, old_log_probs(batch, indices))
    ]
    found = leave_out_means(gates, [batch.rows[i].trajectory for i in indices], [batch.written_from[i] for i in indices])
    batch.baseline = {i: torch.full((len(batch.rows[i].positions),), b) for i, b in zip(indices, found)}


def step_skill_mask(row: TokenRow) -> torch.Tensor:
    """[n]: 1 where the teacher reads a skill of the token's own step."""
    mask = torch.zeros(len(row.positions))
    for part in row.step_teachers:
        mask[part.places] = 1.0
    return mask


def token_batch(
    batch: PreparedBatch, indices: Sequence[int], logp: list, entropy: list | None, teacher: list | None, device: torch.device | str = "cpu"
) -> TokenBatch:
    """Sampled tokens of the rows `indices`, padded; `logp`, `entropy` and `teacher` hold one tensor [n] per such row."""
    rows = [batch.rows[i] for i in indices]
    lengths = torch.tensor([len(r.positions) for r in rows])
    present = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).float()
    index = torch.tensor(list(indices))
    return TokenBatch(
        logp=pad(logp),
        logp_old=pad(old_log_probs(batch, indices)).to(device),
        logp_ref=None if batch.logp_ref is None else pad([batch.logp_ref[i] for i in indices]).to(device),
        logp_teacher=None if teacher is None else pad([first_skill(t) for t in teacher]).to(device),
        more_teachers=pad([t[:, 1:] for t in teacher]).to(device) if teacher and teacher[0].ndim == 2 else None,
        entropy=None if entropy is None else pad(entropy),
        advantage=pad([batch.advantage[i] for i in indices]).to(device),
        mask_policy=(present * batch.policy_mask_B[index][:, None]).to(device),
        mask_opd=(present * batch.opd_mask_B[index][:, None]).to(device),
        baseline=None if batch.baseline is None else pad([batch.baseline[i] for i in indices]).to(device),
        mask_step=pad([step_skill_mask(r) for r in rows]).to(device) if any(r.step_teachers for r in batch.rows) else None,
    )


def minibatch_masks(batch: PreparedBatch, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Policy and OPD mask [B, L] of the rows `indices`."""
    shape = [torch.ones(len(batch.rows[i].positions)) for i in indices]
    index = torch.tensor(list(indices))
    present = pad(shape)
    return present * batch.policy_mask_B[index][:, None], present * batch.opd_mask_B[index][:, None]


def token_frame(
    batch: PreparedBatch, chosen: Sequence[int], inputs: TokenBatch, output: ObjectiveOutput, number: int,
) -> pd.DataFrame:
    """One line per sampled token, with the values at its first visit."""
    rows = [batch.rows[i] for i in chosen]
    sizes = [len(r.positions) for r in rows]

    def flat(tensor):
        if tensor is None:
            return np.full(sum(sizes), np.nan, dtype=np.float32)
        values = tensor.detach().float().cpu().numpy()
        return np.concatenate([values[i, :n] for i, n in enumerate(sizes)])

    masked = flat(inputs.mask_opd) == 0

    def opd(tensor):
        values = flat(tensor)
        return np.where(masked, np.nan, values)

    return pd.DataFrame(
        {
            "row": np.repeat(chosen, sizes),
            "trajectory_index": np.repeat([r.trajectory for r in rows], sizes),
            "step": np.concatenate([r.step for r in rows]),
            "position": np.concatenate([r.place for r in rows]),
            "token_id": np.concatenate([[r.ids[p] for p in r.positions] for r in rows]),
            "mask_policy": flat(inputs.mask_policy) > 0,
            "mask_opd": ~masked,
            "logp_rollout": np.concatenate([np.asarray(r.logp_rollout, dtype=np.float32) for r in rows]),
            "logp_old": flat(inputs.logp_old),
            "logp_student": flat(inputs.logp),
            "logp_teacher": opd(inputs.logp_teacher),
            "logp_ref": flat(inputs.logp_ref),
            "entropy": flat(inputs.entropy),
            "delta": opd(output.delta),
            "gate": opd(output.gate),
            "advantage": flat(output.advantage),
            "ratio": flat(output.ratio),
            "clipped": flat(output.clipped) > 0,
            "kl": flat(output.kl),
            "net_coefficient": flat(output.net_coefficient),
            "minibatch": number,
        }
    )
