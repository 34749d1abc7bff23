"""A session whose episodes verl's agent-loop workers play and whose text its rollout servers write."""

from __future__ import annotations

import pickle
import uuid
from contextlib import nullcontext
from typing import Callable

import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from seedlab.config.schema import Config
from seedlab.engines.verl.agent_loop import EPISODE, RECORD
from seedlab.engines.verl.generator import ServerGenerator
from seedlab.engines.verl.names import AGENT
from seedlab.engines.verl.watch import Deadline
from seedlab.envs import make_family
from seedlab.envs.protocol import InfrastructureError
from seedlab.episodes.play import Episode, unplayed
from seedlab.episodes.prompts import make_prompt_format
from seedlab.episodes.records import Trajectory
from seedlab.train.room import room
from seedlab.train.session import LABELS, Progress, play_settings, silent

PARTITION = "train"


class VerlSession:
    """What `seedlab.train.session.Session` is to the in-process engine; holds no weights."""

    def __init__(self, cfg: Config, tokenizer, chat, parameters: int, trainer, progress: Progress = silent):
        self.cfg, self.tokenizer, self.chat, self.parameters = cfg, tokenizer, chat, parameters
        self.trainer, self.progress = trainer, progress
        self.family = make_family(cfg.env)
        self.prompts = make_prompt_format(cfg.env)
        self.panels = self.family.panels()
        self.generator = ServerGenerator(trainer.get_llm_client(), cfg)

    def compute(self):
        return nullcontext()

    def weights_changed(self) -> None:
        """Wakes the rollout servers with the actor's new weights; OutOfMemory where they have no room beside it."""
        with room(self.cfg, "rollout", "waking the rollout servers"):
            self.trainer.wake()

    def forget(self, trajectories: list[Trajectory]) -> None:
        """Nothing is cached here; the servers keep their prefixes by themselves."""

    def play(
        self, episodes: list[Episode], *, phase: str, update: int, seed: int, temperature: float, at_once: int | None = None,
        track_progress: bool = False,
    ) -> list[Trajectory]:
        """Trajectories in the order of `episodes`.  Raises InfrastructureError where more were lost than `cluster.max_lost_share`."""
        settings = play_settings(
            self.cfg, phase=phase, update=update, seed=seed, temperature=temperature, track_progress=track_progress
        )
        out: list[Trajectory] = []
        told = -1

        def count(done_in_block: int) -> None:
            nonlocal told
            if (done := len(out) + done_in_block) != told:
                told = done
                self.progress(LABELS.get(phase, phase.strip("-")), done, len(episodes), "episodes")

        count(0)
        self.weights_changed()
        block = at_once or len(episodes) or 1
        for start in range(0, len(episodes), block):
            out += self._block(episodes[start : start + block], settings, count)
            count(0)
        for trajectory in out:
            self.generator.prompt_tokens += sum(len(s.prompt_ids) for s in trajectory.steps)
            self.generator.sampled_tokens += sum(len(s.response_ids) for s in trajectory.steps)
        _refuse_losses(out, self.cfg.cluster.max_lost_share)
        return out

    def _block(self, episodes: list[Episode], settings, count: Callable[[int], None]) -> list[Trajectory]:
        uids = [uuid.uuid4().hex for _ in episodes]
        deadline = Deadline(self.cfg.cluster.episode_timeout_s, "episodes")
        found = self.trainer.roll_out(uids, rows(uids, episodes, settings), deadline, count)
        lost = "the agent loop ended without a record; the log of the run says why"
        return [
            pickle.loads(found[uid]) if uid in found else unplayed(episode, settings, lost) for uid, episode in zip(uids, episodes)
        ]


def rows(uids: list[str], episodes: list[Episode], settings) -> TensorDict:
    """One row per episode, for verl's agent-loop workers."""
    batch = tu.get_tensordict(
        {
            "uid": uids, "index": torch.arange(len(uids)), "agent_name": [AGENT] * len(uids),
            EPISODE: [pickle.dumps((episode, settings)) for episode in episodes],
        }
    )  # fmt: skip
    tu.assign_non_tensor_data(batch, "global_steps", settings.update)
    return batch


def records(batch) -> dict[str, bytes]:
    """Pickled trajectories by uid, from the queue, which is then emptied of them."""
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", "extra_fields"])
    out = {str(uid): extra[RECORD] for uid, extra in zip(list(data["uid"]), list(data["extra_fields"]))}
    tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
    return out


def _refuse_losses(trajectories: list[Trajectory], most: float) -> None:
    lost = [t for t in trajectories if t.infra_failure]
    if lost and len(lost) > most * len(trajectories):
        raise InfrastructureError(
            f"{len(lost)} of {len(trajectories)} trajectories were lost to infrastructure, more than cluster.max_lost_share={most:g} "
            f"allows; the first one: {lost[0].infra_failure}"
        )

