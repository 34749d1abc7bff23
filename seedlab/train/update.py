"""One policy update (paper section 3): rows, references, teachers, minibatches, optimizer steps.

The mathematics is `seedlab.objective`; here tokens meet weights.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import torch

from seedlab.config.schedule import at_update
from seedlab.config.schema import Config, ObjectiveConfig
from seedlab.objective.compose import TokenBatch, minibatch_denominators, objective
from seedlab.objective.metrics import WeightedMeans
from seedlab.objective.support import expected_gate, support_loss
from seedlab.policy.load import Policy
from seedlab.policy.score import ScoreRow, forward_rows, plan_micro_batches, score
from seedlab.policy.vocabulary import forward_pairs
from seedlab.rows.build import TokenRow
from seedlab.train.diverged import Diverged, broken_terms, learning_rate_advice
from seedlab.train.session import Ledger, Progress, silent
from seedlab.train.tokens import (
    PreparedBatch, UpdateResult, minibatch_masks, minibatch_plan, old_log_probs, pad, set_baseline, teacher_log_probs, token_batch, token_frame,
)  # fmt: skip

class Updater:
    """Holds the optimizer; `run` makes all optimizer steps of one update."""

    def __init__(self, cfg: Config, policy: Policy, reference: Policy | None, optimizer: torch.optim.Optimizer):
        self.cfg, self.policy, self.reference, self.optimizer = cfg, policy, reference, optimizer

    @property
    def uses_kl(self) -> bool:
        return self.cfg.objective.kl_coef != 0 and self.cfg.objective.reference != "none"

    @property
    def temperature(self) -> float:
        return self.cfg.rollout.temperature

    def prepare(self, batch: PreparedBatch, parts: list[list[int]], ledger: Ledger, update: int) -> None:
        """Log-probs that stay fixed during the update: the reference's, and the teacher's where it is scored once.

        The reference sees the rows in the very micro-batches `parts` that the student will see: equal weights then give
        equal numbers, and a KL gradient of exactly 0.  A gradient of mere rounding would be a full step under Adam.
        """
        if self.uses_kl and self.cfg.objective.reference == "initial":
            found: dict[int, torch.Tensor] = {}
            with ledger.phase("reference"):
                for indices in parts:
                    scored = self._score(self.reference, [batch.rows[i].student for i in indices])
                    found |= {i: lp for i, (lp, _) in zip(indices, scored)}
            batch.logp_ref = [found[i] for i in range(len(batch.rows))]
            ledger.count("reference", sum(len(r.ids) for r in batch.rows))
        elif self.uses_kl:  # pi_ref = theta_old
            batch.logp_ref = old_log_probs(batch, range(len(batch.rows)))
        if at_update(self.cfg.objective, update).uses_teacher and self.cfg.objective.teacher == "once":
            batch.logp_teacher_once = self._teacher(batch, range(len(batch.rows)), ledger)

    def _score(self, policy: Policy, rows):
        with policy.compute():
            return score(
                policy.model, rows, temperature=self.temperature, pad_id=policy.pad_id,
                micro_batch_tokens=self.cfg.stage2.micro_batch_tokens,
            )

    def _teacher(self, batch: PreparedBatch, indices, ledger: Ledger) -> list[torch.Tensor]:
        """Log-probs of the sampled tokens behind the skill, under the current weights; zeros where masked out."""
        with ledger.phase("teacher"):
            found, read = teacher_log_probs(batch, indices, lambda rows: self._score(self.policy, rows))
        ledger.count("teacher", read)
        return found

    def run(self, batch: PreparedBatch, *, seed: int, update: int, ledger: Ledger, progress: Progress = silent) -> UpdateResult:
        """All minibatches of one update.  With nothing to learn from, no step is made and the weights stay as they are."""
        parts = minibatch_plan(len(batch.rows), self.cfg.stage2, seed=seed, update=update)
        self.prepare(batch, parts, ledger, update)
        every = self.cfg.stage2.log_gradient_terms_every
        metrics: dict[str, float] = {}
        means = WeightedMeans()
        records: list[dict] = []
        frames: list[pd.DataFrame] = []
        for number, indices in enumerate(parts):
            teacher = self._teacher_rows(batch, indices, ledger, update)
            self._set_baseline(batch, indices, teacher, at_update(self.cfg.objective, update), ledger)
            if number == 0 and every and update % every == 0:
                with ledger.phase("diagnostics"):
                    metrics |= self.gradient_norms(batch, indices, teacher, update)
            with ledger.phase("student"):
                record, frame = self._minibatch(batch, indices, teacher, number, means, update)
            ledger.count("student", sum(len(batch.rows[i].ids) for i in indices), backward=True)
            records.append(record)
            frames.append(frame)
            progress("update", number + 1, len(parts), "minibatches")
        self._refuse_broken_weights(batch, update)
        tokens = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        return UpdateResult(metrics, tokens, sum(r["stepped"] for r in records), means, records)

    def _teacher_rows(self, batch: PreparedBatch, indices: list[int], ledger: Ledger, update: int) -> list[torch.Tensor] | None:
        if not at_update(self.cfg.objective, update).uses_teacher:
            return None
        if batch.logp_teacher_once is not None:
            return [batch.logp_teacher_once[i] for i in indices]
        return self._teacher(batch, indices, ledger)

    def _set_baseline(self, batch: PreparedBatch, indices: list[int], teacher, cfg: ObjectiveConfig, ledger: Ledger) -> None:
        set_baseline(batch, indices, teacher, cfg)
        if cfg.baseline != "context" or cfg.opd_coef == 0:
            return
        batch.baseline = {i: torch.zeros(len(batch.rows[i].positions)) for i in indices}
        wanted = [i for i in indices if batch.opd_mask_B[i] > 0 and batch.rows[i].contrast is not None]
        with ledger.phase("teacher"):
            for places in self._micro(batch, wanted):
                chosen = [wanted[p] for p in places]
                _, _, found = self._pairs([batch.rows[i] for i in chosen], [batch.rows[i].contrast for i in chosen], cfg, expected_gate, grad=False)
                batch.baseline |= {i: values.float().cpu() for i, values in zip(chosen, found)}
        ledger.count("teacher", sum(len(batch.rows[i].ids) + len(batch.rows[i].contrast.ids) for i in wanted))

    def _pairs(self, rows: list[TokenRow], twins: list[ScoreRow], cfg: ObjectiveConfig, term, *, grad: bool) -> list[list[torch.Tensor]]:
        """Per row log-probs, entropies and `term(student_MV, teacher_MV, beta)` of its sampled tokens beside those of `twins`."""
        with self.policy.compute(), torch.set_grad_enabled(grad):
            columns = forward_pairs(
                self.policy.model, [r.student for r in rows], twins, lambda student, other: term(student, other, cfg.beta),
                temperature=self.temperature, pad_id=self.policy.pad_id,
            )
        return [list(x.split([len(r.positions) for r in rows])) for x in columns]

    def _tokens(self, batch: PreparedBatch, indices, logp: list, entropy: list, teacher: list | None) -> TokenBatch:
        return token_batch(batch, indices, logp, entropy, teacher, self.policy.model.device)

    def _forward(self, batch: PreparedBatch, indices) -> tuple[list, list]:
        rows = [batch.rows[i] for i in indices]
        with self.policy.compute():
            logp, entropy = forward_rows(
                self.policy.model, [r.student for r in rows], temperature=self.temperature, pad_id=self.policy.pad_id
            )
        sizes = [len(r.positions) for r in rows]
        return list(logp.split(sizes)), list(entropy.split(sizes))

    def _student(self, batch: PreparedBatch, indices, teacher: list | None, cfg: ObjectiveConfig) -> TokenBatch:
        """The sampled tokens of the rows `indices` under the live weights, with the term over the vocabulary where it is asked for."""
        if cfg.support == "sampled" or cfg.opd_coef == 0:
            logp, entropy = self._forward(batch, indices)
            return self._tokens(batch, indices, logp, entropy, teacher)
        rows = [batch.rows[i] for i in indices]
        # a row without a teacher stands beside itself; its mask leaves it out
        twins = [r.teacher if batch.opd_mask_B[i] > 0 else r.student for i, r in zip(indices, rows)]
        term = partial(support_loss, k=cfg.support_k if cfg.support == "topk" else None)
        logp, entropy, support = self._pairs(rows, twins, cfg, term, grad=True)
        return replace(self._tokens(batch, indices, logp, entropy, teacher), support=pad(support))

    def _micro(self, batch: PreparedBatch, indices: list[int]) -> list[list[int]]:
        """Places within `indices`, grouped to fit the token budget."""
        return plan_micro_batches([len(batch.rows[i].ids) for i in indices], self.cfg.stage2.micro_batch_tokens)

    @torch.no_grad()
    def _refuse_broken_weights(self, batch: PreparedBatch, update: int) -> None:
        """Raise Diverged where the last step left weights with which nothing can be sampled or saved: the checkpoint
        before it stays the newest.  Finite weights of 1e30 overflow in the forward pass, so that one row is scored."""
        if not batch.rows:
            return
        shortest = min(range(len(batch.rows)), key=lambda i: len(batch.rows[i].ids))
        logp, _ = self._forward(batch, [shortest])
        if not all(bool(torch.isfinite(values).all()) for values in logp):
            raise Diverged(f"update {update}: after its last optimizer step the policy's log-probs are no numbers; {learning_rate_advice(self.cfg)}")

    def _minibatch(self, batch: PreparedBatch, indices: list[int], teacher, number: int, means: WeightedMeans, update: int):
        cfg, objective_cfg = self.cfg, at_update(self.cfg.objective, update)
        denominators = minibatch_denominators(*minibatch_masks(batch, indices), objective_cfg)
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        frames = []
        for places in self._micro(batch, indices):
            chosen = [indices[p] for p in places]
            inputs = self._student(batch, chosen, None if teacher is None else [teacher[p] for p in places], objective_cfg)
            output = objective(inputs, denominators, objective_cfg)
            if output.loss.requires_grad:
                output.loss.backward()
            means.add_all(output.sums)
            for name, value in output.terms.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
            frames.append(token_frame(batch, chosen, inputs, output, number))
        parameters = [p for p in self.policy.model.parameters() if p.requires_grad and p.grad is not None]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, cfg.stage2.grad_clip)) if parameters else 0.0
        if not np.isfinite(norm):
            raise Diverged(f"update {update}: the gradient norm of minibatch {number} is {norm}; no step was made ({broken_terms(sums)}); {learning_rate_advice(self.cfg)}")
        # A zero gradient must not move the weights through momentum or weight decay (a batch with nothing to learn).
        stepped = norm > 0.0
        if stepped:
            self.optimizer.step()
        return {"grad_norm": norm, "stepped": stepped, **sums}, pd.concat(frames, ignore_index=True)

    def gradient_norms(self, batch: PreparedBatch, indices: list[int], teacher, update: int) -> dict[str, float]:
        """Norm of each term's gradient, apart, and of the policy and OPD terms on tied and untied groups."""
        objective_cfg = at_update(self.cfg.objective, update)
        mask_policy, mask_opd = minibatch_masks(batch, indices)
        denominators = minibatch_denominators(mask_policy, mask_opd, objective_cfg)
        parameters = [p for p in self.policy.model.parameters() if p.requires_grad]
        wanted = {"policy": None, "kl": None}
        if objective_cfg.opd_coef != 0:
            wanted |= {"opd": None, "opd_tied": True, "opd_untied": False}
        totals: dict[str, list] = {}
        for places in self._micro(batch, indices):
            chosen = [indices[p] for p in places]
            inputs = self._student(batch, chosen, None if teacher is None else [teacher[p] for p in places], objective_cfg)
            tied = batch.tied_B[torch.tensor(chosen)][:, None].to(inputs.mask_opd.device)
            for name, which in wanted.items():
                if which is None:
                    term = objective(inputs, denominators, objective_cfg).terms[name]
                else:
                    keep = (tied if which else ~tied).float()
                    term = objective(inputs.with_opd_mask(inputs.mask_opd * keep), denominators, objective_cfg).terms["opd"]
                if not term.requires_grad:
                    continue
                grads = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
                old = totals.get(name, [None] * len(parameters))
                totals[name] = [b if a is None else a if b is None else a + b for a, b in zip(old, grads)]
        out = {f"optim/grad_norm_{name}": 0.0 for name in wanted}
        for name, grads in totals.items():
            out[f"optim/grad_norm_{name}"] = float(torch.sqrt(sum((g.double() ** 2).sum() for g in grads if g is not None)))
        return out
