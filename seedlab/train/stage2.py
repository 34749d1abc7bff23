"""Stage 2: self-evolving on-policy distillation (paper section 3), for every method that is a bundle of switches.

    for each update:  theta_old <- theta;  roll out a batch of groups;  the snapshot writes a skill per trajectory;
    each minibatch:   teacher (skill in context, no gradient) and student under the live theta -> gate -> loss -> step

Nothing here depends on arrival order or on the process's history: a run that is killed and resumed repeats bit for bit.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import torch

from seedlab.config.schema import Config
from seedlab.policy.load import Policy, load_policy, model_hash, tokenizer_hash
from seedlab.store import RunError, RunWriter
from seedlab.store.checkpoint import latest_checkpoint, save_checkpoint
from seedlab.store.files import write_folder
from seedlab.policy.lora import add_lora, trainable_state
from seedlab.train.loop import Interrupted, UpdateLoop
from seedlab.train.session import Progress, Session, make_generator, silent
from seedlab.train.sft import make_optimizer
from seedlab.train.update import Updater

__all__ = ["Interrupted", "Stage2"]


class Stage2(UpdateLoop):
    """State of one run in this process: policy, optimizer, reference, analyzer snapshot and the next update."""

    def __init__(self, cfg: Config, run: Path, writer: RunWriter, initial: str | Path, progress: Progress = silent):
        self.cfg, self.run, self.writer, self.progress = cfg, run, writer, progress
        self.reference_path = run / "checkpoints" / "reference"
        found = latest_checkpoint(run)
        self.next_update = 0 if found is None else found[0]
        # A LoRA run's frozen weights are those it started from; its checkpoints hold them with the adapters merged in.
        resumed = self.reference_path if cfg.model.lora_rank and found is not None else found and found[1]
        policy = load_policy(resumed or initial, cfg.model, trainable=True)
        if found is None:
            self._save_reference(policy)
        if cfg.model.lora_rank:
            add_lora(policy.model, cfg.model.lora_rank, cfg.model.lora_alpha, seed=cfg.seed)
        self.session = Session(cfg, policy, progress)
        optimizer = make_optimizer(
            policy.model, learning_rate=cfg.stage2.learning_rate, weight_decay=cfg.stage2.weight_decay, betas=cfg.stage2.betas
        )
        if found is not None:
            self._restore(found[1], policy, optimizer)
        uses_reference = cfg.objective.kl_coef != 0 and cfg.objective.reference == "initial"
        reference = load_policy(self.reference_path, cfg.model) if uses_reference else None
        self.updater = Updater(cfg, policy, reference, optimizer)
        self.snapshot = self._restore_snapshot(found)
        if cfg.model.gradient_checkpointing:
            policy.model.train()  # transformers checkpoints in training mode only; the models have no dropout

    @property
    def policy(self) -> Policy:
        return self.session.policy

    # ---- analyzer snapshot

    @property
    def uses_own_analyzer(self) -> bool:
        return self.cfg.objective.policy_writes_skills

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
        folder = None if found is None else found[1] / "analyzer"
        if folder is not None and folder.is_dir():  # the checkpoint before the first update has none: it is taken at update 0
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
            self.policy.save(folder)
            if self.cfg.model.lora_rank:
                torch.save(trainable_state(self.policy.model), folder / "lora.pt")
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

    # ---- for the run

    def identity(self) -> dict:
        return model_identity(self.policy)

    def before_evaluation(self) -> None:
        self.policy.model.eval()


def model_identity(policy: Policy) -> dict:
    """What a manifest says of a policy."""
    return {
        "class": type(policy.model).__name__, "parameters": policy.parameters, "hash": model_hash(policy.model), "commit": policy.commit,
        "tokenizer_hash": tokenizer_hash(policy.tokenizer), "chat_template_hash": policy.chat.template_hash,
    }
