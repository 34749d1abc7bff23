"""Stage 2 under verl: Ray started, verl's trainer set up, and our loop over updates run on it."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Iterator

from seedlab.config.schema import Config
from seedlab.engines.verl import require
from seedlab.engines.verl.config import compose
from seedlab.engines.verl.names import AGENT, PACKAGE, on_cpu
from seedlab.errors import UserError
from seedlab.jobs.ray_cluster import ray_environment, token_of
from seedlab.policy.load import load_policy
from seedlab.store import RunError, RunWriter
from seedlab.store.checkpoint import latest_checkpoint, save_checkpoint
from seedlab.store.files import write_folder, write_text
from seedlab.train.loop import UpdateLoop
from seedlab.train.session import Progress, silent
from seedlab.train.stage2 import model_identity

SHARDS = "verl"  # folder of a checkpoint with FSDP's shards, optimizer and random state


class VerlStage2(UpdateLoop):
    """State of one run; `trainer` holds Ray's workers.  Made by `started`, which also ends them."""

    saves_start = False

    def __init__(self, cfg: Config, run: Path, writer: RunWriter, initial: str | Path, progress: Progress = silent):
        self.cfg, self.run, self.writer, self.progress = cfg, run, writer, progress
        self.reference_path = run / "checkpoints" / "reference"
        found = latest_checkpoint(run)
        self.next_update = 0 if found is None else found[0]
        self._resume_from = None if found is None else found[1]
        if not self.reference_path.exists():
            self.reference_path.parent.mkdir(parents=True, exist_ok=True)
            write_folder(self.reference_path, lambda folder: copy_policy(initial, cfg, folder))
        policy = load_policy(self.reference_path, cfg.model.model_copy(update={"device": "cpu", "gradient_checkpointing": False}))
        self._identity = model_identity(policy)
        self._tokenizer, self._chat, self._parameters = policy.tokenizer, policy.chat, policy.parameters

    def attach(self, trainer) -> None:
        """Take over a trainer that is set up; its actor gets the latest checkpoint's state."""
        from seedlab.engines.verl.session import VerlSession
        from seedlab.engines.verl.updater import VerlUpdater

        self.trainer = trainer
        trainer.global_steps = self.next_update
        if self._resume_from is not None:
            trainer.actor_rollout_wg.load_checkpoint(str(self._resume_from / SHARDS), del_local_after_load=False)
        self.session = VerlSession(self.cfg, self._tokenizer, self._chat, self._parameters, trainer, self.progress)
        self.updater = VerlUpdater(self.cfg, trainer)

    def one_update(self, update: int) -> None:
        super().one_update(update)
        self.trainer.global_steps = update + 1

    def _analyzer(self, update: int):
        return self.session.generator, update  # the rollout servers hold theta_old until the update's end

    def save(self, update: int) -> None:
        """FSDP's shards for resuming, and the weights as a Hugging Face folder for everything else."""

        def write(folder: Path) -> None:
            shards = folder / SHARDS
            self.trainer.actor_rollout_wg.save_checkpoint(str(shards), None, update)
            exported = shards / "huggingface"
            for file in sorted(exported.iterdir()):
                if file.suffix in (".safetensors", ".bin") or file.name.endswith(".index.json"):
                    os.replace(file, folder / file.name)
            # verl writes the ids of its own tokenizer into its copies
            for name in ("config.json", "generation_config.json"):
                if (self.reference_path / name).exists():
                    shutil.copyfile(self.reference_path / name, folder / name)
            if not list(folder.glob("*.safetensors")):
                raise RunError(
                    f"{folder}: the training workers wrote no weights here; with several machines, runs have to lie on a file system that all of them share"
                )
            # verl's own copy of the tokenizer went through AutoTokenizer, which rebuilds some of them
            self._tokenizer.save_pretrained(folder)
            self._tokenizer.save_pretrained(exported)

        self.trainer.sleep()
        save_checkpoint(self.run, update, write, keep=self.cfg.stage2.keep_checkpoints, min_free_gb=self.cfg.store.min_free_gb)

    def identity(self) -> dict:
        return self._identity | {"engine": f"verl {version('verl')}", "world_size": self.cfg.cluster.world_size}


def copy_policy(source: str | Path, cfg: Config, folder: Path) -> None:
    """The policy of a folder or hub id as files in `folder`; UserError where the hub cannot be reached."""
    path = Path(source)
    if not path.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        try:
            path = Path(snapshot_download(str(source), revision=cfg.model.revision))
        except (OSError, ValueError, HfHubHTTPError, LocalEntryNotFoundError) as error:
            raise UserError(f"cannot get the model {source}: {error}; give a folder (model.path), or a machine that reaches the hub") from error
    shutil.copytree(path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(SHARDS, "*.pt", "analyzer", "COMPLETE"))


@contextmanager
def started(cfg: Config, run: Path, writer: RunWriter, initial: str | Path, progress: Progress = silent) -> Iterator[VerlStage2]:
    """A VerlStage2 whose trainer runs; Ray and its processes end with the block.  Raises UserError where verl is absent."""
    require()
    variables = environment(cfg)
    if not os.environ.get("RAY_ADDRESS"):
        # Ray runs its workers at niceness 15: on a machine with other work they would hardly run at all.  It starts a process
        # for each CPU that it is told of, although verl's actors have environments of their own and take none of these.
        variables |= own_token(run) | {"RAY_worker_niceness": "0", "RAY_prestart_worker_first_driver": "0"}
    os.environ.update(variables)  # before verl and Ray are imported here: they read theirs at the first use
    stage2 = VerlStage2(cfg, run, writer, initial, progress)
    composed = compose(cfg, run=run.absolute(), model=stage2.reference_path.absolute())
    write_agent_file(run.absolute(), stage2.reference_path.absolute())

    from seedlab.engines.verl.processes import ray_session, set_up

    progress("starting verl", 0, 1, "")
    with ray_session(cfg, variables):
        with set_up(cfg, composed, stage2):
            yield stage2


def environment(cfg: Config) -> dict[str, str]:
    """Variables of every process of the run."""
    out = {
        "VERL_USE_EXTERNAL_MODULES": f"{PACKAGE}.plugin", "SEEDLAB_COLLECTIVE_TIMEOUT_S": f"{cfg.cluster.collective_timeout_s:g}",
        "TOKENIZERS_PARALLELISM": "false", "TRANSFER_QUEUE_ENABLE": "1", "HYDRA_FULL_ERROR": "1",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "VERL_LOGGING_LEVEL": os.environ.get("VERL_LOGGING_LEVEL", "WARN"),
    }  # fmt: skip
    if on_cpu(cfg):
        out |= {"VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return out


def own_token(run: Path) -> dict[str, str]:
    """Variables of Ray's token authentication for a cluster of the run's own: a file below `run` that only its owner
    can read, or the one that RAY_AUTH_TOKEN_PATH names.  Raises JobError where others can read it."""
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or run / "verl" / "ray-token")
    token_of(file, create=True)
    return ray_environment(file)


def write_agent_file(run: Path, policy: Path) -> None:
    """verl's list of agent loops: ours, with the two paths that its workers need."""
    (run / "verl").mkdir(exist_ok=True)
    entry = [{"name": AGENT, "_target_": f"{PACKAGE}.agent_loop.SeedAgentLoop", "settings": str(run / "config.json"), "policy": str(policy)}]
    write_text(run / "verl" / "agent_loop.yaml", json.dumps(entry, indent=1))  # JSON is YAML
