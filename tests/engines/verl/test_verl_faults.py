"""A hung environment, a silent or dead rollout server: lost trajectories, named, and never a wait without end."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from seedlab.engines.verl.threads import in_thread


def test_a_hanging_call_ends_at_its_limit_and_holds_up_nobody():
    async def hangs():
        time.sleep(30)

    async def quick():
        return 7

    async def both():
        started = time.monotonic()
        slow = asyncio.create_task(in_thread(hangs(), 1.0))
        await asyncio.sleep(0)
        assert await in_thread(quick(), 20.0) == 7
        with pytest.raises(TimeoutError):
            await slow
        return time.monotonic() - started

    assert asyncio.run(both()) < 20


def test_an_error_in_the_thread_is_raised_in_its_place():
    async def fails():
        raise KeyError("mug")

    async def one():
        await in_thread(fails(), 5.0)

    with pytest.raises(KeyError, match="mug"):
        asyncio.run(one())


LOST = """
import asyncio, pickle, sys, time
from dataclasses import replace
from types import SimpleNamespace
from pathlib import Path
from ray.exceptions import RayActorError
from seedlab.config.presets import load_config, to_json
from seedlab.engines.verl import agent_loop
from seedlab.episodes.play import Episode
from seedlab.policy.load import load_policy
from seedlab.train.base import build_tiny_base
from seedlab.train.session import Session, play_settings
from verl_faults import Lost

folder = Path(sys.argv[1])
cfg = load_config("micro", {"engine": "verl", "cluster.episode_timeout_s": 8.0, "cluster.generate_timeout_s": 1.0})
(folder / "config.json").write_text(to_json(cfg))
base = build_tiny_base(cfg)
policy = load_policy(base, cfg.model)
session = Session(cfg, policy)
task = session.panels["train"].task_ids[0]
settings = play_settings(cfg, phase="u", update=0, seed=0, temperature=1.0)

class Silent:
    async def generate(self, *args, **kwargs):
        await asyncio.sleep(600)

class Dead:
    async def generate(self, *args, **kwargs):
        raise RayActorError()

class Answers:
    async def generate(self, request_id, *, prompt_ids, sampling_params, image_data=None):
        return SimpleNamespace(token_ids=[sampling_params["stop_token_ids"][0]], log_probs=[-0.5], stop_reason="completed", extra_fields={"global_steps": 3})

def play(client, hang=False):
    loop = agent_loop.SeedAgentLoop(str(folder / "config.json"), str(base), client)
    if hang:
        family = SimpleNamespace(make=lambda task_id, make=loop.scene.family.make: Lost(make(task_id), lambda: time.sleep(600)))
        loop.scene = replace(loop.scene, family=family)
    started = time.monotonic()
    output = asyncio.run(loop.run({}, episode=pickle.dumps((Episode(task, 1), settings))))
    assert time.monotonic() - started < 100
    return output, pickle.loads(output.extra_fields[agent_loop.RECORD])

for client, hang, words in ((Silent(), False, "no answer from the rollout server within 1 s"), (Dead(), False, "the rollout server failed: RayActorError"), (Answers(), True, "did not end within 8 s")):
    output, lost = play(client, hang)
    assert words in lost.infra_failure, lost.infra_failure
    assert (lost.id, lost.task_id, lost.n) == (f"u000000/{task}/n1", task, 1)
    assert output.reward_score == 0.0 and output.response_mask == [0] and not lost.steps

output, played = play(Answers())
assert played.infra_failure is None and len(played.steps) == cfg.env.max_steps and played.steps[0].logprobs == [-0.5]
assert output.num_turns == cfg.env.max_steps and output.response_mask == [1]

from seedlab.engines.verl.session import _refuse_losses
from seedlab.envs.protocol import InfrastructureError
_refuse_losses([played, lost], 0.5)
try:
    _refuse_losses([played, lost, lost], 0.5)
except InfrastructureError as error:
    assert "2 of 3 trajectories were lost" in str(error) and "did not end within" in str(error)
else:
    raise AssertionError("too many losses went unnoticed")
import os
os._exit(0)  # the hung environment's thread is still there
"""


@pytest.mark.full
@pytest.mark.timeout(700)
def test_lost_episodes_are_named_records(under_verl, tmp_path):
    here = Path(__file__).parent
    under_verl("-c", LOST, tmp_path, env={"PYTHONPATH": f"{here.parents[2]}{os.pathsep}{here}"})
