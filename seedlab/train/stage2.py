"""Stage 2: self-evolving on-policy distillation (paper section 3), for every method that is a bundle of switches.

    for each update:  theta_old <- theta;  roll out a batch of groups;  the snapshot writes a skill per trajectory;
    each minibatch:   teacher (skill in context, no gradient) and student under the live theta -> gate -> loss -> step

Nothing here depends on arrival order or on the process's history: a run that is killed and resumed repeats bit for bit.
"""

from __future__ import annotations

import copy
import pickle
import resource
import time
from pathlib import Path

import numpy as np
import torch

from seedlab.config.schema import Config
from seedlab.episodes.keys import stream_key
from seedlab.episodes.records import Skill, Trajectory
from seedlab.policy.load import Policy, load_policy
from seedlab.skills import OwnAnalyzer, ScriptedAnalyzer, assign_skills, count_reasons, write_skills
from seedlab.store import RunError, RunWriter
from seedlab.store.checkpoint import latest_checkpoint, save_checkpoint
from seedlab.store.files import write_folder
from seedlab.store.frames import skill_frame, step_frame, trajectory_frame
from seedlab.train.batch import advantages_of, prepare_batch
from seedlab.train.lora import add_lora, trainable_state
from seedlab.train.measures import analyzer_metrics, rollout_metrics, token_metrics
from seedlab.train.session import Ledger, Progress, Session, make_generator, silent
from seedlab.train.sft import make_optimizer
from seedlab.train.tasks import group_episodes, tasks_of_update
from seedlab.train.update import Updater


class Interrupted(Exception):
    """The run was asked to stop and did so at a safe point; it can be resumed."""


class Stage2:
    """State of one run: policy, optimizer, reference, analyzer snapshot and the next update."""

    def __init__(self, cfg: Config, run: Path, writer: RunWriter, initial: str | Path, progress: Progress = silent):
        self.cfg, self.run, self.writer, self.progress = cfg, run, writer, progress
        self.reference_path = run / "checkpoints" / "reference"
        found = latest_checkpoint(run)
        self.next_update = 0 if found is None else found[0]
        source = initial if found is None else found[1]
        policy = load_policy(source, cfg.model, trainable=True)
        if found is None:
            self._save_reference(policy)
        if cfg.model.lora_rank:
            policy = load_policy(self.reference_path, cfg.model, trainable=True)
            add_lora(policy.model, cfg.model.lora_rank, cfg.model.lora_alpha)
        self.session = Session(cfg, policy, progress)
        optimizer = make_optimizer(
            policy.model, learning_rate=cfg.stage2.learning_rate, weight_decay=cfg.stage2.weight_decay, betas=cfg.stage2.betas
        )
        if found is not None:
            self._restore(found[1], policy, optimizer)
        uses_reference = cfg.objective.kl_coef != 0 and cfg.objective.reference == "initial"
        reference = load_policy(self.reference_path, cfg.model) if uses_reference else None
        self.updater = Updater(cfg, policy, reference, optimizer)
        self.skill_texts: list[str] = []
        self.snapshot = self._restore_snapshot(found)
        if cfg.model.gradient_checkpointing:
            policy.model.train()  # transformers checkpoints in training mode only; the models have no dropout

    @property
    def policy(self) -> Policy:
        return self.session.policy

    # ---- analyzer snapshot

    @property
    def uses_own_analyzer(self) -> bool:
        return self.cfg.objective.opd_coef != 0 and self.cfg.objective.skill_from in ("own", "shuffled")

    @property
    def _separate_snapshot(self) -> bool:
        return self.uses_own_analyzer and (
            self.cfg.objective.analyzer_snapshot == "initial" or self.cfg.objective.refresh_every > 1
        )

    def _restore_snapshot(self, found) -> tuple[int, Policy] | None:
        """(update it was taken at, weights) where the analyzer is not the live policy."""
        if not self._separate_snapshot:
            return None
        if self.cfg.objective.analyzer_snapshot == "initial":
            return 0, load_policy(self.reference_path, self.cfg.model)
        if found is not None:
            folder = found[1] / "analyzer"
            return int((folder / "snapshot").read_text()), load_policy(folder, self.cfg.model)
        return None

    def _analyzer(self, update: int) -> tuple[object, int]:
        """The generator that writes skills, and the update whose weights it has."""
        if not self._separate_snapshot:
            return self.session.generator, update
        every = self.cfg.objective.refresh_every
        if self.cfg.objective.analyzer_snapshot != "initial" and (self.snapshot is None or update % every == 0):
            policy = Policy(copy.deepcopy(self.policy.model), self.policy.tokenizer, self.policy.chat, self.policy.compute_dtype)
            self.snapshot = (update, policy)
        taken, policy = self.snapshot
        return make_generator(policy, self.cfg), taken

    # ---- checkpoints

    def _save_reference(self, policy: Policy) -> None:
        if not self.reference_path.exists():
            self.reference_path.parent.mkdir(parents=True, exist_ok=True)
            write_folder(self.reference_path, policy.save)

    def save(self, update: int) -> None:
        """Weights as a Hugging Face folder, optimizer state, and the analyzer snapshot where it is a separate one."""

        def write(folder: Path) -> None:
            if self.cfg.model.lora_rank:
                torch.save(trainable_state(self.policy.model), folder / "lora.pt")
                self.policy.tokenizer.save_pretrained(folder)
            else:
                self.policy.save(folder)
            torch.save({"optimizer": self.updater.optimizer.state_dict(), "next_update": update}, folder / "trainer.pt")
            if self._separate_snapshot and self.snapshot is not None and self.cfg.objective.analyzer_snapshot != "initial":
                self.snapshot[1].save(folder / "analyzer")
                (folder / "analyzer" / "snapshot").write_text(str(self.snapshot[0]))

        save_checkpoint(self.run, update, write, keep=self.cfg.stage2.keep_checkpoints, min_free_gb=self.cfg.store.min_free_gb)

    def _restore(self, folder: Path, policy: Policy, optimizer) -> None:
        try:
            state = torch.load(folder / "trainer.pt", weights_only=True)
            optimizer.load_state_dict(state["optimizer"])
            if self.cfg.model.lora_rank:
                policy.model.load_state_dict(torch.load(folder / "lora.pt", weights_only=True), strict=False)
        except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
            raise RunError(
                f"the trainer's state in {folder} cannot be read: {error}; remove this folder to resume from the checkpoint before it"
            ) from error

    # ---- the loop

    def train(self, stop_requested=lambda: False) -> None:
        """All updates that are left; raises Interrupted, with a checkpoint saved, when a stop is asked for."""
        total = self.cfg.stage2.updates
        if latest_checkpoint(self.run) is None:
            self.save(0)
        saved = self.next_update
        for update in range(self.next_update, total):
            self.one_update(update)
            self.next_update = update + 1
            due = (update + 1) % self.cfg.stage2.checkpoint_every == 0 or update + 1 == total
            if due or stop_requested():
                self.save(update + 1)
                saved = update + 1
            self.progress("stage 2", update + 1, total, "updates")
            if stop_requested() and update + 1 < total:
                raise Interrupted(f"stopped after update {saved} of {total}")

    def one_update(self, update: int) -> None:
        """Roll out, analyze, learn, store."""
        cfg = self.cfg
        started = time.perf_counter()
        ledger = Ledger(self.policy.parameters)
        tasks = tasks_of_update(
            self.session.panels["train"], seed=cfg.seed, update=update, tasks_per_update=cfg.stage2.tasks_per_update
        )
        generator = self.session.generator
        before = (generator.prompt_tokens, generator.sampled_tokens)
        with ledger.phase("rollout"):
            trajectories = self.session.play(
                group_episodes(tasks, cfg.stage2.group_size), phase="u", update=update, seed=cfg.seed,
                temperature=cfg.rollout.temperature, track_progress=self.session.family.has_scripted_analyzer,
            )
        ledger.count("rollout", generator.prompt_tokens - before[0] + generator.sampled_tokens - before[1])
        advantages = advantages_of(trajectories, cfg)
        skills, assigned = self._skills(update, trajectories, ledger)
        self.session.forget(trajectories)
        batch, left_out = prepare_batch(self.session, trajectories, advantages, assigned)
        result = self.updater.run(batch, seed=cfg.seed, update=update, ledger=ledger, progress=silent)
        self.session.weights_changed()

        metrics = rollout_metrics(trajectories, advantages) | result.metrics
        metrics |= analyzer_metrics(self.session, trajectories, skills, count_reasons(skills), left_out)
        metrics |= token_metrics(result, trajectories, advantages, cfg)
        with ledger.phase("store"):
            self._store(update, trajectories, skills, result, advantages)
        metrics |= ledger.metrics()
        metrics["optim/steps"], metrics["optim/learning_rate"] = float(result.steps), cfg.stage2.learning_rate
        metrics["cost/update_seconds"] = time.perf_counter() - started
        metrics["cost/peak_memory_mb"] = peak_memory_mb()
        for reason, count in left_out.items():
            self.writer.event("rows without OPD", update=update, reason=reason, rows=count)
        for trajectory in trajectories:
            if trajectory.infra_failure:
                self.writer.event("infrastructure failure", update=update, trajectory=trajectory.id, error=trajectory.infra_failure)
        self.writer.metrics(update, metrics)

    def _skills(self, update: int, trajectories: list[Trajectory], ledger: Ledger):
        """Skills written for this update and the one that each trajectory's teacher sees; none without an OPD term."""
        objective = self.cfg.objective
        if objective.opd_coef == 0:
            return [], None
        skills: list[Skill] = []
        if objective.skill_from in ("own", "shuffled", "scripted"):
            generator, taken = self._analyzer(update)
            if objective.skill_from == "scripted":
                analyzer = ScriptedAnalyzer(self.session.family, self.cfg.analyzer.contract)
            else:
                analyzer = OwnAnalyzer(generator, self.policy.chat, self.cfg.analyzer)
            before = (generator.prompt_tokens, generator.sampled_tokens)
            with ledger.phase("analyzer"), self.policy.compute():
                skills = write_skills(
                    trajectories, analyzer, self.session.prompts, self.policy.chat, self.cfg.analyzer, snapshot=taken,
                    key=lambda t: stream_key(self.cfg.seed, "analyzer", t.id),
                ).skills
            ledger.count("analyzer", generator.prompt_tokens - before[0] + generator.sampled_tokens - before[1])
        by_trajectory = {s.trajectory_id: s for s in skills}
        for trajectory in trajectories:
            trajectory.skill = by_trajectory.get(trajectory.id)
        self.skill_texts = [s.text for s in skills if s.accepted] or self.skill_texts
        assigned = assign_skills(
            trajectories, skills, objective.skill_from, stream_key(self.cfg.seed, "shuffle", update),
            drop_unusable=self.cfg.analyzer.drop_unusable,
        )
        return skills, assigned

    def _store(self, update, trajectories, skills, result, advantages) -> None:
        frames = {
            "trajectories": trajectory_frame(trajectories, advantages.tied_T.tolist(), advantages.advantage_T.tolist()),
            "steps": step_frame(trajectories),
            "skills": skill_frame(skills),
        }
        wanted = self.cfg.store.tokens
        if len(result.tokens) and (wanted == "all" or (isinstance(wanted, int) and update % wanted == 0)):
            tokens = result.tokens.sort_values(["trajectory_index", "step", "position"], ignore_index=True)
            names = np.array([t.id for t in trajectories])
            tokens.insert(0, "trajectory", names[tokens.pop("trajectory_index").to_numpy()])
            texts = {i: self.policy.tokenizer.decode([int(i)]) for i in tokens["token_id"].unique()}
            tokens.insert(4, "text", tokens["token_id"].map(texts))
            frames["tokens"] = tokens.drop(columns="row")
        self.writer.update(update, frames)


def peak_memory_mb() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
