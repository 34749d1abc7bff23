"""verl's agent loop around our episode code: one row of the batch is one episode, one output is one trajectory."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from verl.experimental.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics

from seedlab.config.presets import from_json
from seedlab.config.schema import Config
from seedlab.engines.verl.generator import ServerGenerator
from seedlab.engines.verl.threads import in_thread
from seedlab.envs import make_family
from seedlab.episodes.play import play_one, unplayed
from seedlab.episodes.prompts import make_prompt_format
from seedlab.policy.load import load_chat
from seedlab.policy.protocol import Generation

EPISODE = "episode"  # field of a row: the pickled (Episode, PlaySettings)
RECORD = "seedlab"  # key of the pickled Trajectory in an output's extra fields


@dataclass(frozen=True)
class Scene:
    """What every episode of a worker process shares."""

    cfg: Config
    family: object
    prompts: object
    chat: object


@lru_cache(maxsize=2)
def scene(settings: str, policy: str) -> Scene:
    """From the run's config.json and the folder of its reference policy."""
    cfg = from_json(Path(settings).read_text(encoding="utf-8"), settings)
    return Scene(cfg, make_family(cfg.env), make_prompt_format(cfg.env), load_chat(policy, cfg.model))


class _Bridge:
    """The generator for an episode that has a thread and an event loop of its own: verl's client stays in its loop."""

    def __init__(self, generator: ServerGenerator, loop: asyncio.AbstractEventLoop):
        self.generator, self.loop = generator, loop
        self.weights_version = generator.weights_version

    async def generate(self, prompt_ids, sampling, *, trajectory_id, images=()) -> Generation:
        work = self.generator.generate(prompt_ids, sampling, trajectory_id=trajectory_id, images=images)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))


class SeedAgentLoop(AgentLoopBase):
    """Plays one episode with `play_one`.  An infrastructure failure is a record too, never a zero reward."""

    def __init__(self, settings: str, policy: str, server_manager, **_: Any):
        # Not verl's own: it builds a tokenizer wiring that our chat renderer stands for.
        self.scene = scene(settings, policy)
        self.server_manager = server_manager

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        here, cfg = self.scene, self.scene.cfg
        episode, settings = pickle.loads(row[EPISODE])
        generator = _Bridge(ServerGenerator(self.server_manager, cfg), asyncio.get_running_loop())
        work = play_one(episode, here.family, generator, here.chat, here.prompts, cfg.env, settings)
        limit = cfg.cluster.episode_timeout_s
        try:
            trajectory = await in_thread(work, limit)
        except TimeoutError:
            trajectory = unplayed(episode, settings, f"the episode did not end within {limit:g} s (cluster.episode_timeout_s)")
        last = trajectory.steps[-1] if trajectory.steps else None
        prompt, response = (last.prompt_ids, last.response_ids) if last else ([0], [0])
        return AgentLoopOutput(
            prompt_ids=prompt, response_ids=response, response_mask=[1 if last else 0] * len(response),
            reward_score=0.0 if trajectory.infra_failure else trajectory.returned, num_turns=len(trajectory.steps),
            metrics=AgentLoopMetrics(), extra_fields={RECORD: pickle.dumps(trajectory), "reward_extra_info": {}},
        )
