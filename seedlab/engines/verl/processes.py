"""Ray and verl's trainer: started, watched and ended."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

import ray
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1 import get_trainer_cls

import seedlab
from seedlab.config.schema import Config
from seedlab.engines.verl import engine, trainer  # noqa: F401  register the engine, the replica and the trainer
from seedlab.engines.verl.names import on_cpu

STORE_BYTES = 512 * 1024 * 1024
# verl asks for three CPUs per rank; the queue's controller and storage, and each agent-loop worker, ask for one.
CPUS_PER_RANK, CPUS_BESIDE = 3, 4


@contextmanager
def ray_session(cfg: Config, variables: dict[str, str]) -> Iterator[None]:
    """Ray with `variables` in every process: the cluster of RAY_ADDRESS where that is set, one of our own otherwise."""
    path = os.pathsep.join(filter(None, [str(Path(seedlab.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    options: dict = {
        "runtime_env": {"env_vars": variables | {"PYTHONPATH": path}}, "ignore_reinit_error": False, "log_to_driver": True,
        "include_dashboard": False,
    }  # fmt: skip
    if os.environ.get("RAY_ADDRESS"):
        options.pop("include_dashboard")
    elif on_cpu(cfg):
        ranks = cfg.cluster.world_size
        # A fake GPU stands for a rank, and CPUs are counted, not measured: a laptop has fewer.
        options |= {
            "num_gpus": ranks, "num_cpus": CPUS_PER_RANK * ranks + CPUS_BESIDE + cfg.cluster.workers, "object_store_memory": STORE_BYTES,
        }  # fmt: skip
    with _signal_handlers_kept():
        ray.init(**options)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _signal_handlers_kept() -> Iterator[None]:
    """Ray installs a SIGTERM handler that exits at once; ours asks for a stop with a checkpoint."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Runner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's task runner in this process, so that the run folder's writer and signals are at hand."""

    def __init__(self, cfg: Config, stage2):
        super().__init__()
        self.ours, self.stage2 = cfg, stage2

    @contextmanager
    def session(self, composed: DictConfig) -> Iterator[None]:
        """As verl's `run`, but the block stands for the training."""
        OmegaConf.resolve(composed)
        self.config = composed
        tq.init(composed.transfer_queue)
        try:
            self.trainer = get_trainer_cls(composed.trainer.v1.trainer_mode)(composed, self.ours)
            self.trainer.init()
            self.init_agent_loop_manager()
            self.trainer.attach(self.agent_loop_manager)
            with self.trainer.liveness.named():
                self.stage2.attach(self.trainer)
                yield
        finally:
            tq.close()


@contextmanager
def set_up(cfg: Config, composed: DictConfig, stage2) -> Iterator[None]:
    """The trainer with its workers, attached to `stage2`."""
    with Runner(cfg, stage2).session(composed):
        yield
