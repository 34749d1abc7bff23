"""One policy update (paper section 3): rows, references, teachers, minibatches, optimizer steps.

The mathematics is `seedlab.objective`; here tokens meet weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch

from seedlab.config.schema import Config
from seedlab.episodes.keys import stream_key
from seedlab.objective.advantages import AdvantageResult
from seedlab.objective.compose import ObjectiveOutput, TokenBatch, minibatch_denominators, objective
from seedlab.objective.metrics import WeightedMeans
from seedlab.policy.load import Policy
from seedlab.policy.score import forward_rows, plan_micro_batches, score
from seedlab.rows.build import TokenRow, split_minibatches
from seedlab.train.session import Ledger, Progress, silent


@dataclass
class PreparedBatch:
    """Everything one update learns from, per row [B] of `rows`: advantages, masks, fixed log-probs."""

    rows: list[TokenRow]
    advantage: list[torch.Tensor]  # per row [n]: the trajectory's, or the invalid step's where those differ
    policy_mask_B: torch.Tensor  # 0 where the trajectory is unscored
    opd_mask_B: torch.Tensor  # 0 without a usable skill, by `where`, or where the teacher context is too long
    tied_B: torch.Tensor
    logp_ref: list[torch.Tensor] | None = None
    logp_teacher_once: list[torch.Tensor] | None = None


@dataclass
class UpdateResult:
    metrics: dict[str, float]
    tokens: pd.DataFrame
    steps: int
    means: WeightedMeans
    records: list[dict] = field(default_factory=list)


def pad(values: list[torch.Tensor], fill: float = 0.0) -> torch.Tensor:
    """Rows of different lengths to [B, L], padded on the right."""
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=fill)


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

    def prepare(self, batch: PreparedBatch, parts: list[list[int]], ledger: Ledger) -> None:
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
            batch.logp_ref = [torch.tensor(r.logp_rollout) for r in batch.rows]
        if self.cfg.objective.opd_coef != 0 and self.cfg.objective.teacher == "once":
            batch.logp_teacher_once = self._teacher(batch, range(len(batch.rows)), ledger)

    def _score(self, policy: Policy, rows):
        with policy.compute():
            return score(
                policy.model, rows, temperature=self.temperature, pad_id=policy.pad_id,
                micro_batch_tokens=self.cfg.stage2.micro_batch_tokens,
            )

    def _teacher(self, batch: PreparedBatch, indices, ledger: Ledger) -> list[torch.Tensor]:
        """Log-probs of the sampled tokens behind the skill, under the current weights; zeros where masked out."""
        wanted = [i for i in indices if batch.opd_mask_B[i] > 0]
        with ledger.phase("teacher"):
            scored = self._score(self.policy, [batch.rows[i].teacher for i in wanted]) if wanted else []
        ledger.count("teacher", sum(len(batch.rows[i].teacher.ids) for i in wanted))
        found = {i: lp for i, (lp, _) in zip(wanted, scored)}
        return [found.get(i, torch.zeros(len(batch.rows[i].positions))) for i in indices]

    def run(self, batch: PreparedBatch, *, seed: int, update: int, ledger: Ledger, progress: Progress = silent) -> UpdateResult:
        """All minibatches of one update.  With nothing to learn from, no step is made and the weights stay as they are."""
        order = np.random.default_rng(stream_key(seed, "minibatches", update)).permutation(len(batch.rows)).tolist()
        parts = split_minibatches(
            len(batch.rows), order, minibatches=self.cfg.stage2.minibatches, minibatch_rows=self.cfg.stage2.minibatch_rows
        )
        self.prepare(batch, parts, ledger)
        every = self.cfg.stage2.log_gradient_terms_every
        metrics: dict[str, float] = {}
        means = WeightedMeans()
        records: list[dict] = []
        frames: list[pd.DataFrame] = []
        for number, indices in enumerate(parts):
            teacher = self._teacher_rows(batch, indices, ledger)
            if number == 0 and every and update % every == 0:
                with ledger.phase("diagnostics"):
                    metrics |= self.gradient_norms(batch, indices, teacher)
            with ledger.phase("student"):
                record, frame = self._minibatch(batch, indices, teacher, number, means)
            ledger.count("student", sum(len(batch.rows[i].ids) for i in indices), backward=True)
            records.append(record)
            frames.append(frame)
            progress("update", number + 1, len(parts), "minibatches")
        tokens = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        return UpdateResult(metrics, tokens, sum(r["stepped"] for r in records), means, records)

    def _teacher_rows(self, batch: PreparedBatch, indices: list[int], ledger: Ledger) -> list[torch.Tensor] | None:
        if self.cfg.objective.opd_coef == 0:
            return None
        if batch.logp_teacher_once is not None:
            return [batch.logp_teacher_once[i] for i in indices]
        return self._teacher(batch, indices, ledger)

    def token_batch(self, batch: PreparedBatch, indices, logp: list, entropy: list | None, teacher: list | None) -> TokenBatch:
        device = self.policy.model.device
        rows = [batch.rows[i] for i in indices]
        lengths = torch.tensor([len(r.positions) for r in rows])
        present = (torch.arange(int(lengths.max()))[None] < lengths[:, None]).float()
        index = torch.tensor(list(indices))
        return TokenBatch(
            logp=pad(logp),
            logp_old=pad([torch.tensor(r.logp_rollout) for r in rows]).to(device),
            logp_ref=None if batch.logp_ref is None else pad([batch.logp_ref[i] for i in indices]).to(device),
            logp_teacher=None if teacher is None else pad(teacher).to(device),
            entropy=None if entropy is None else pad(entropy),
            advantage=pad([batch.advantage[i] for i in indices]).to(device),
            mask_policy=(present * batch.policy_mask_B[index][:, None]).to(device),
            mask_opd=(present * batch.opd_mask_B[index][:, None]).to(device),
        )

    def _masks(self, batch: PreparedBatch, indices) -> tuple[torch.Tensor, torch.Tensor]:
        shape = [torch.ones(len(batch.rows[i].positions)) for i in indices]
        index = torch.tensor(list(indices))
        present = pad(shape)
        return present * batch.policy_mask_B[index][:, None], present * batch.opd_mask_B[index][:, None]

    def _forward(self, batch: PreparedBatch, indices) -> tuple[list, list]:
        rows = [batch.rows[i] for i in indices]
        with self.policy.compute():
            logp, entropy = forward_rows(
                self.policy.model, [r.student for r in rows], temperature=self.temperature, pad_id=self.policy.pad_id
            )
        sizes = [len(r.positions) for r in rows]
        return list(logp.split(sizes)), list(entropy.split(sizes))

    def _micro(self, batch: PreparedBatch, indices: list[int]) -> list[list[int]]:
        """Places within `indices`, grouped to fit the token budget."""
        return plan_micro_batches([len(batch.rows[i].ids) for i in indices], self.cfg.stage2.micro_batch_tokens)

    def _minibatch(self, batch: PreparedBatch, indices: list[int], teacher, number: int, means: WeightedMeans):
        cfg = self.cfg
        denominators = minibatch_denominators(*self._masks(batch, indices), cfg.objective)
        self.optimizer.zero_grad(set_to_none=True)
        sums: dict[str, float] = {}
        frames = []
        for places in self._micro(batch, indices):
            chosen = [indices[p] for p in places]
            logp, entropy = self._forward(batch, chosen)
            inputs = self.token_batch(batch, chosen, logp, entropy, None if teacher is None else [teacher[p] for p in places])
            output = objective(inputs, denominators, cfg.objective)
            if output.loss.requires_grad:
                output.loss.backward()
            means.add_all(output.sums)
            for name, value in output.terms.items():
                sums[name] = sums.get(name, 0.0) + float(value.detach())
            frames.append(self._frame(batch, chosen, inputs, output, number))
        parameters = [p for p in self.policy.model.parameters() if p.requires_grad and p.grad is not None]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, cfg.stage2.grad_clip)) if parameters else 0.0
        if not np.isfinite(norm):
            raise FloatingPointError(f"the gradient norm of minibatch {number} is {norm}; no step was made")
        # A zero gradient must not move the weights through momentum or weight decay (a batch with nothing to learn).
        stepped = norm > 0.0
        if stepped:
            self.optimizer.step()
        return {"grad_norm": norm, "stepped": stepped, **sums}, pd.concat(frames, ignore_index=True)

    def gradient_norms(self, batch: PreparedBatch, indices: list[int], teacher) -> dict[str, float]:
        """Norm of each term's gradient, apart, and of the policy and OPD terms on tied and untied groups."""
        cfg = self.cfg
        mask_policy, mask_opd = self._masks(batch, indices)
        denominators = minibatch_denominators(mask_policy, mask_opd, cfg.objective)
        parameters = [p for p in self.policy.model.parameters() if p.requires_grad]
        wanted = {"policy": None, "kl": None}
        if teacher is not None:
            wanted |= {"opd": None, "opd_tied": True, "opd_untied": False}
        totals: dict[str, list] = {}
        for places in self._micro(batch, indices):
            chosen = [indices[p] for p in places]
            logp, entropy = self._forward(batch, chosen)
            part_teacher = None if teacher is None else [teacher[p] for p in places]
            inputs = self.token_batch(batch, chosen, logp, entropy, part_teacher)
            tied = batch.tied_B[torch.tensor(chosen)][:, None].to(inputs.mask_opd.device)
            for name, which in wanted.items():
                if which is None:
                    term = objective(inputs, denominators, cfg.objective).terms[name]
                else:
                    keep = (tied if which else ~tied).float()
                    term = objective(inputs.with_opd_mask(inputs.mask_opd * keep), denominators, cfg.objective).terms["opd"]
                if not term.requires_grad:
                    continue
                grads = torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)
                old = totals.get(name, [None] * len(parameters))
                totals[name] = [b if a is None else a if b is None else a + b for a, b in zip(old, grads)]
        out = {f"optim/grad_norm_{name}": 0.0 for name in wanted}
        for name, grads in totals.items():
            out[f"optim/grad_norm_{name}"] = float(torch.sqrt(sum((g.double() ** 2).sum() for g in grads if g is not None)))
        return out

    def _frame(self, batch: PreparedBatch, chosen, inputs: TokenBatch, output: ObjectiveOutput, number: int) -> pd.DataFrame:
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
                "logp_rollout": flat(inputs.logp_old),
                "logp_old": flat(inputs.logp_old),
                "logp_student": flat(inputs.logp),
                "logp_teacher": opd(inputs.logp_teacher),
                "logp_ref": flat(inputs.logp_ref),
                "entropy": flat(inputs.entropy),
                "delta": opd(output.delta),
                "gate": opd(output.gate),
                "advantage": flat(inputs.advantage),
                "ratio": flat(output.ratio),
                "clipped": flat(output.clipped) > 0,
                "kl": flat(output.kl),
                "net_coefficient": flat(output.net_coefficient),
                "minibatch": number,
            }
        )
