"""verl's synchronous V1 trainer, driven by our loop over updates.

verl sets up Ray's workers, FSDP2, the rollout servers, the weight update and the queue; an update's order of events is
`seedlab.train.loop`'s, the same as in this process.
"""

from __future__ import annotations

from functools import partial
from typing import Callable

import transfer_queue as tq
from omegaconf import DictConfig, open_dict
from tensordict import TensorDict
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from seedlab.config.schema import Config
from seedlab.engines.verl.loss import seed_loss
from seedlab.engines.verl.names import TRAINER
from seedlab.engines.verl.queue import Workers
from seedlab.engines.verl.session import PARTITION, records
from seedlab.engines.verl.watch import Deadline, Liveness

POLL_S = 0.2


class WatchedBuffer(ReplayBuffer):
    """verl's waits for ever where a worker process died; this one looks after them between polls."""

    watch: Callable[[], None] = staticmethod(lambda: None)

    def _wait_for_next_poll(self, partition_id: str, last_debug_time: float) -> float:
        self.watch()
        return super()._wait_for_next_poll(partition_id, last_debug_time)


@register_trainer(TRAINER)
class SeedTrainer(PPOTrainerSync):
    """Our loop over updates calls `wake`, `sleep`, `roll_out` and `workers`; `ours` is our configuration."""

    awake = False
    curr_step_profile = False

    def __init__(self, config: DictConfig, ours: Config):
        self.ours = ours
        super().__init__(config)

    def _build_replay_buffer(self) -> ReplayBuffer:
        sampler = self.config.trainer.v1.sampler
        return WatchedBuffer(
            trainer_mode="sync", trainer_config=self.config.trainer.v1.sync, poll_interval=POLL_S,
            max_off_policy_threshold=sampler.max_off_policy_threshold, max_off_policy_strategy=sampler.max_off_policy_strategy,
            sampler_kwargs=sampler.sampler_kwargs,
        )  # fmt: skip

    def _init_dataloader(self) -> None:
        """No data set: the tasks of an update are a function of (seed, update)."""
        self.total_training_steps = self.ours.stage2.updates
        with open_dict(self.config):
            self.config.actor_rollout_ref.actor.optim.total_training_steps = max(1, self.total_training_steps)

    def _load_checkpoint(self) -> None:
        """Resuming is the loop's business: it knows the run folder's checkpoints."""
        self.global_steps = 0

    def _setup(self) -> None:
        super()._setup()
        self.actor_rollout_wg.set_loss_fn(partial(seed_loss, cfg=self.ours.objective))
        self.workers = Workers(
            self.actor_rollout_wg, self.ref_policy_wg if self.use_reference_policy else None,
            temperature=self.ours.rollout.temperature, micro_batch_tokens=self.ours.stage2.micro_batch_tokens,
        )  # fmt: skip

    def on_init_end(self) -> None:
        """The weights reach the servers when the first rollout wakes them, after a checkpoint has been loaded."""

    def attach(self, agent_loop_manager) -> None:
        """In place of `fit`: our loop calls what follows."""
        self.agent_loop_manager = agent_loop_manager
        actors = {f"agent-loop worker {i}": w for i, w in enumerate(agent_loop_manager.agent_loop_workers)}
        actors |= {f"rollout server {i}": s for i, s in enumerate(self.llm_server_manager.server_handles)}
        actors |= {f"training worker {i}": w for i, w in enumerate(self.actor_rollout_wg.workers)}
        self.liveness = Liveness(actors)
        # an agent-loop worker imports for some time: its first episodes' limit on time must not pay for that
        self.liveness.ready()

    # ---- what the session and the updater ask for

    def wake(self) -> None:
        """Rollout servers hold the actor's present weights and take requests."""
        if not self.awake:
            self.on_step_end()
            self.awake = True

    def sleep(self) -> None:
        """Rollout servers free their memory for scoring and training; their weights are stale afterwards."""
        if self.awake:
            self.on_sample_end()
            self.awake = False

    def roll_out(self, uids: list[str], batch: TensorDict, deadline: Deadline, on_done: Callable[[int], None]) -> dict[str, bytes]:
        """Pickled trajectory by uid of every episode that ended; raises EngineFault where a process died.

        `on_done` hears how many have ended, a few times a second.
        """

        def watch() -> None:
            on_done(len(self.replay_buffer.finished_keys[PARTITION]) + len(self.replay_buffer.failure_keys[PARTITION]))
            deadline.check()
            self.liveness.check()

        self.replay_buffer.watch = watch
        step = self.global_steps
        tags = [{"is_prompt": True, "status": "pending", "global_steps": step} for _ in uids]
        tq.kv_batch_put(keys=uids, partition_id=PARTITION, tags=tags)
        self.agent_loop_manager.generate_sequences(batch)
        found, _ = self.replay_buffer.sample(global_steps=step, partition_id=PARTITION, batch_size=len(uids))
        return records(found)

    def on_step_end(self) -> None:
        # PPOTrainerSync times this into `timing_raw`, which its own loop makes.
        self.checkpoint_manager.update_weights(self.global_steps)
