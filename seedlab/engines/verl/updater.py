"""One policy update on verl's workers: what `seedlab.train.update.Updater` does in one process.

theta_old is scored by the actor itself, since a rollout server's log-probs are another implementation's; the live
teacher is scored before each minibatch's optimizer step, under the very weights that the student then has.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from seedlab.config.schedule import at_update
from seedlab.config.schema import Config
from seedlab.engines.verl.loss import loss_fields
from seedlab.objective.compose import minibatch_denominators, objective
from seedlab.objective.metrics import WeightedMeans
from seedlab.train.diverged import Diverged, learning_rate_advice
from seedlab.train.session import Ledger, Progress, silent
from seedlab.train.tokens import (
    PreparedBatch, UpdateResult, minibatch_masks, minibatch_plan, old_log_probs, set_baseline, step_skill_mask, teacher_log_probs, token_batch,
    token_frame,
)  # fmt: skip


class VerlUpdater:
    """`workers` score rows and make optimizer steps; `trainer` puts the rollout servers to sleep meanwhile."""

    def __init__(self, cfg: Config, trainer):
        self.cfg, self.trainer = cfg, trainer

    @property
    def workers(self):
        return self.trainer.workers

    def run(
        self, batch: PreparedBatch, *, seed: int, update: int, ledger: Ledger, progress: Progress = silent
    ) -> UpdateResult:
        """All minibatches of one update.  With nothing to learn from, no step is made and the weights stay as they are."""
        parts = minibatch_plan(len(batch.rows), self.cfg.stage2, seed=seed, update=update)
        means, records, frames = WeightedMeans(), [], []
        self.trainer.sleep()
        entropy = self._prepare(batch, ledger, update)
        peak = 0.0
        for number, indices in enumerate(parts):
            teacher = self._teacher(batch, indices, ledger, update)
            set_baseline(batch, indices, teacher, at_update(self.cfg.objective, update))
            with ledger.phase("student"):
                visit, frame, terms = self._minibatch(batch, indices, teacher, number, means, update)
            ledger.count("student", sum(len(batch.rows[i].ids) for i in indices), backward=True)
            peak = max(peak, visit.peak_memory_mb)
            records.append({"grad_norm": visit.grad_norm, "stepped": visit.grad_norm > 0.0, **terms})
            frames.append(frame)
            progress("update", number + 1, len(parts), "minibatches")
        tokens = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        metrics = {"cost/peak_memory_mb": peak} if records else {}
        return UpdateResult(metrics, tokens, sum(r["stepped"] for r in records), means, records, entropy)

    def _prepare(self, batch: PreparedBatch, ledger: Ledger, update: int) -> list[torch.Tensor]:
        """Log-probs that stay fixed during the update; returns the entropies under theta_old."""
        objective_cfg, size = at_update(self.cfg.objective, update), sum(len(r.ids) for r in batch.rows)
        with ledger.phase("old"):
            old = self.workers.score([r.student for r in batch.rows])
        ledger.count("old", size)
        batch.logp_old = [logp for logp, _ in old]
        if objective_cfg.kl_coef != 0 and objective_cfg.reference == "initial":
            with ledger.phase("reference"):
                batch.logp_ref = [logp for logp, _ in self.workers.score([r.student for r in batch.rows], reference=True)]
            ledger.count("reference", size)
        elif objective_cfg.kl_coef != 0 and objective_cfg.reference == "old":
            batch.logp_ref = old_log_probs(batch, range(len(batch.rows)))
        if objective_cfg.uses_teacher and objective_cfg.teacher == "once":
            batch.logp_teacher_once = self._score_teacher(batch, range(len(batch.rows)), ledger)
        return [entropy for _, entropy in old]

    def _teacher(self, batch: PreparedBatch, indices, ledger: Ledger, update: int) -> list[torch.Tensor] | None:
        if not at_update(self.cfg.objective, update).uses_teacher:
            return None
        if batch.logp_teacher_once is not None:
            return [batch.logp_teacher_once[i] for i in indices]
        return self._score_teacher(batch, indices, ledger)

    def _score_teacher(self, batch: PreparedBatch, indices, ledger: Ledger) -> list[torch.Tensor]:
        """Log-probs of the sampled tokens behind the skill, under the present weights; zeros where masked out."""
        with ledger.phase("teacher"):
            found, read = teacher_log_probs(batch, indices, self.workers.score)
        ledger.count("teacher", read)
        return found

    def _minibatch(self, batch: PreparedBatch, indices: list[int], teacher, number: int, means: WeightedMeans, update: int):
        masks, objective_cfg = minibatch_masks(batch, indices), at_update(self.cfg.objective, update)
        denominators = minibatch_denominators(*masks, objective_cfg)
        fields = token_fields(batch, indices, teacher)
        visit = self.workers.update([batch.rows[i].student for i in indices], fields, loss_fields(denominators, update))
        if not np.isfinite(visit.grad_norm):
            raise Diverged(
                f"update {update}: the gradient norm of minibatch {number} is {visit.grad_norm}; no step was made; {learning_rate_advice(self.cfg)}"
            )
        # The workers' own numbers through the same function: token rows and means need no second implementation.
        inputs = token_batch(batch, indices, visit.logp, visit.entropy, teacher)
        output = objective(inputs, denominators, objective_cfg)
        means.add_all(output.sums)
        terms = {name: float(value) for name, value in output.terms.items()}
        return visit, token_frame(batch, indices, inputs, output, number), terms


def token_fields(batch: PreparedBatch, indices, teacher: list | None) -> dict[str, list[torch.Tensor]]:
    """What the loss needs of each row's sampled tokens, [n] each."""

    def constant(mask_B: torch.Tensor) -> list[torch.Tensor]:
        return [torch.full((len(batch.rows[i].positions),), float(mask_B[i])) for i in indices]

    fields = {
        "logp_old": old_log_probs(batch, indices),
        "advantage": [batch.advantage[i].float() for i in indices],
        "mask_policy": constant(batch.policy_mask_B),
        "mask_opd": constant(batch.opd_mask_B),
    }
    if batch.logp_ref is not None:
        fields["logp_ref"] = [batch.logp_ref[i] for i in indices]
    if teacher is not None:
        fields["logp_teacher"] = list(teacher)
    if batch.baseline is not None:
        fields["baseline"] = [batch.baseline[i] for i in indices]
    if any(row.step_teachers for row in batch.rows):
        fields["mask_step"] = [step_skill_mask(batch.rows[i]) for i in indices]
    return fields
