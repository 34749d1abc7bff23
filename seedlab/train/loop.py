"""Stage 2's loop over updates, the same for every engine: roll out, analyze, learn, store.

An engine gives a session that plays episodes and an updater that makes the optimizer steps; it holds the weights.
"""

from __future__ import annotations

import resource
import time
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from seedlab.config.schedule import at_update
from seedlab.config.schema import Config
from seedlab.episodes.keys import stream_key
from seedlab.episodes.records import Skill, Trajectory
from seedlab.skills import OwnAnalyzer, ScriptedAnalyzer, SkillLibrary, assign_skills, count_reasons, write_skills
from seedlab.skills.neighbours import averaged_skills, with_contrasts
from seedlab.store import RunWriter
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.store.frames import skill_frame, step_frame, step_skill_frame, trajectory_frame
from seedlab.train.batch import advantages_of, prepare_batch
from seedlab.train.diverged import Diverged
from seedlab.train.external import external_analyzer
from seedlab.train.library import run_library, skill_of_task
from seedlab.train.measures import analyzer_metrics, credit_metrics, rollout_metrics, step_skill_metrics, token_metrics
from seedlab.train.prompt_skills import prompt_skill_frame
from seedlab.train.room import OutOfMemory, room
from seedlab.train.session import Ledger, Progress, Session, silent
from seedlab.train.tasks import group_episodes, tasks_of_update
from seedlab.train.tokens import PreparedBatch, UpdateResult


class Interrupted(Exception):
    """The run was asked to stop and did so at a safe point; it can be resumed."""


class UpdateEngine(Protocol):
    """Makes all optimizer steps of one update."""

    def run(self, batch: PreparedBatch, *, seed: int, update: int, ledger: Ledger, progress: Progress = silent) -> UpdateResult: ...


class UpdateLoop:
    """An engine's subclass sets the attributes and says who writes skills (`_analyzer`) and how to save (`save`)."""

    cfg: Config
    run: Path
    writer: RunWriter
    progress: Progress
    session: Session
    updater: UpdateEngine
    next_update: int
    saves_start = True  # False where a run without a checkpoint starts from its reference, and sharded ones are large

    def _analyzer(self, update: int) -> tuple[object, int]:
        """The generator that writes skills, and the update whose weights it has."""
        raise NotImplementedError

    def save(self, update: int) -> None:
        """A complete checkpoint whose next update is `update`."""
        raise NotImplementedError

    def identity(self) -> dict:
        """What the manifest says of the model: class, parameters, and hashes of weights, tokenizer and chat template."""
        raise NotImplementedError

    @cached_property
    def library(self) -> SkillLibrary | None:
        """The run's static skills; None where no prompt gets one."""
        return run_library(self.cfg, self.run, self.session, self.writer, next_update=self.next_update)

    def before_evaluation(self) -> None:
        """Called once after the last update."""

    def train(self, stop_requested=lambda: False) -> None:
        """All updates that are left; raises Interrupted, with a checkpoint saved, when a stop is asked for."""
        total = self.cfg.stage2.updates
        if self.saves_start and latest_checkpoint(self.run) is None:
            self.save(0)
        saved = self.next_update
        self.library  # a snapshot writes it before its weights move
        for update in range(self.next_update, total):
            try:
                self.one_update(update)
            except (Diverged, OutOfMemory) as error:
                there = latest_checkpoint(self.run) is not None
                place = f"from its checkpoint of update {saved}" if there else "from Stage 2's start: there is no checkpoint yet"
                raise type(error)(f"{error}; `seedlab resume` would take {self.run} on {place}") from error
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
        ledger = Ledger(self.session.parameters)
        tasks = tasks_of_update(
            self.session.panels["train"], seed=cfg.seed, update=update, tasks_per_update=cfg.stage2.tasks_per_update
        )
        generator = self.session.generator
        before = (generator.prompt_tokens, generator.sampled_tokens)
        with ledger.phase("rollout"):
            trajectories = self.session.play(
                group_episodes(tasks, cfg.stage2.group_size, self._prompt_skill), phase="u", update=update, seed=cfg.seed,
                temperature=cfg.rollout.temperature, track_progress=self.session.family.has_scripted_analyzer,
            )
        ledger.count("rollout", generator.prompt_tokens - before[0] + generator.sampled_tokens - before[1])
        advantages = advantages_of(trajectories, cfg)
        skills, assigned = self._skills(update, trajectories, ledger)
        self.session.forget(trajectories)
        batch, left_out = prepare_batch(self.session, trajectories, advantages, assigned)
        with room(cfg, "update", f"update {update}"):
            result = self.updater.run(batch, seed=cfg.seed, update=update, ledger=ledger, progress=silent)
        self.session.weights_changed()
        if result.entropy_old is not None:
            fill_entropies(trajectories, batch, result.entropy_old)

        metrics = rollout_metrics(trajectories, advantages) | result.metrics
        metrics |= analyzer_metrics(self.session, trajectories, skills, count_reasons(skills), left_out)
        metrics |= token_metrics(result, trajectories, advantages, cfg)
        if cfg.objective.critical_steps:
            metrics |= step_skill_metrics(skills, batch)
        metrics |= credit_metrics(result, advantages, at_update(cfg.objective, update))
        with ledger.phase("store"):
            self._store(update, trajectories, skills, result, advantages, batch)
        metrics |= ledger.metrics()
        metrics["optim/steps"], metrics["optim/learning_rate"] = float(result.steps), cfg.stage2.learning_rate
        metrics["cost/update_seconds"] = time.perf_counter() - started
        metrics.setdefault("cost/peak_memory_mb", peak_memory_mb())
        for reason, count in left_out.items():
            self.writer.event("rows without OPD", update=update, reason=reason, rows=count)
        for trajectory in trajectories:
            if trajectory.infra_failure:
                self.writer.event("infrastructure failure", update=update, trajectory=trajectory.id, error=trajectory.infra_failure)
        self.writer.metrics(update, metrics)

    def _skills(self, update: int, trajectories: list[Trajectory], ledger: Ledger):
        """Skills written for this update and the one that each trajectory's teacher sees; none where no teacher is scored."""
        objective = at_update(self.cfg.objective, update)
        if not objective.uses_teacher:
            return [], None
        skills: list[Skill] = []
        more: list[list[Skill]] = []
        if objective.writes_skills:
            generator, taken = self._analyzer(update)
            analyzer, contract, settings = self._writer(generator)
            before = (generator.prompt_tokens, generator.sampled_tokens)
            draws = objective.average_skills if objective.skill_from == "own" else 1
            with ledger.phase("analyzer"), self.session.compute():
                skills, *more = [
                    write_skills(
                        trajectories, analyzer, self.session.prompts, self.session.chat, settings, snapshot=taken, contract=contract,
                        key=lambda t, draw=draw: stream_key(self.cfg.seed, "analyzer", t.id, *([draw] if draw else [])), critical_steps=objective.critical_steps,
                    ).skills
                    for draw in range(draws)
                ]
            ledger.count("analyzer", generator.prompt_tokens - before[0] + generator.sampled_tokens - before[1])
        by_trajectory = {s.trajectory_id: s for s in skills}
        for trajectory in trajectories:
            trajectory.skill = by_trajectory.get(trajectory.id)
        draws = [
            assign_skills(
                trajectories, written, objective.skill_from, stream_key(self.cfg.seed, "shuffle", update),
                drop_unusable=self.cfg.analyzer.drop_unusable, library=self.library, average=objective.average_skills,
            )
            for written in [skills, *more]
        ]
        assigned = averaged_skills(draws) if more else draws[0]
        if objective.baseline == "context":
            assigned = with_contrasts(assigned, trajectories, skills, stream_key(self.cfg.seed, "contrast", update))
        return skills, assigned

    def _writer(self, generator):
        """(analyzer, contract of its answers, limits of a skill) of objective.skill_from."""
        cfg = self.cfg
        if cfg.objective.skill_from == "external":
            return external_analyzer(cfg, self.session.family, critical_steps=cfg.objective.critical_steps)
        if cfg.objective.skill_from == "scripted":
            return ScriptedAnalyzer(self.session.family, cfg.analyzer.contract, cfg.objective.critical_steps), cfg.analyzer.contract, cfg.analyzer
        return OwnAnalyzer(generator, self.session.chat, cfg.analyzer), cfg.analyzer.contract, cfg.analyzer

    def _prompt_skill(self, task_id: str) -> str:
        """The skill in a task's training prompts."""
        return skill_of_task(self.library if self.cfg.rollout.skill == "library" else None, self.session.family)(task_id)

    def _store(self, update, trajectories, skills, result, advantages, batch) -> None:
        frames = {
            "trajectories": trajectory_frame(trajectories, advantages.tied_T.tolist(), advantages.advantage_T.tolist()),
            "steps": step_frame(trajectories),
            "skills": skill_frame(skills),
        }
        if self.cfg.objective.average_skills > 1:
            frames["more_skills"] = skill_frame([other for row in batch.rows if row.skill is not None and row.first_step == 0 for other in row.skill.others])
        if self.cfg.objective.critical_steps:
            frames["step_skills"] = step_skill_frame(skills)
        prompts = prompt_skill_frame(self.session.tokenizer, trajectories, batch.rows)
        if len(prompts):
            frames["prompt_skills"] = prompts
        wanted = self.cfg.store.tokens
        if len(result.tokens) and (wanted == "all" or (isinstance(wanted, int) and update % wanted == 0)):
            tokens = result.tokens.sort_values(["trajectory_index", "step", "position"], ignore_index=True)
            names = np.array([t.id for t in trajectories])
            tokens.insert(0, "trajectory", names[tokens.pop("trajectory_index").to_numpy()])
            texts = {i: self.session.tokenizer.decode([int(i)]) for i in tokens["token_id"].unique()}
            tokens.insert(4, "text", tokens["token_id"].map(texts))
            frames["tokens"] = tokens.drop(columns="row")
        self.writer.update(update, frames)


def fill_entropies(trajectories: list[Trajectory], batch: PreparedBatch, entropy: list[torch.Tensor]) -> None:
    """Entropies of the sampled tokens under theta_old, where the sampler gave none."""
    for row, values in zip(batch.rows, entropy):
        for step, place, value in zip(row.step, row.place, values.tolist()):
            trajectories[row.trajectory].steps[step].entropies[place] = value


def peak_memory_mb() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
