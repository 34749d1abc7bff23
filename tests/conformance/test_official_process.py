"""A process of the official engine that dies, hangs or fails: an infrastructure error with the task named (case D12)."""

import asyncio
import os
import signal
import time

import psutil
import pytest

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.protocol import InfrastructureError
from seedlab.envs.textworld.client import PYTHON_VARIABLE, OfficialEngineMissing, OfficialProcess, ProcessPool, official_python
from seedlab.envs.textworld.environment import OfficialEpisode
from seedlab.episodes.play import Episode, PlaySettings, play
from seedlab.episodes.prompts import COMPACT_WORDS, make_prompt_format
from seedlab.policy.chat import ChatRenderer
from seedlab.policy.protocol import Generation
from seedlab.policy.tiny_tokenizer import build_tokenizer


@pytest.fixture
def pool(stand_in):
    pool = ProcessPool(timeout_s=1.0)
    yield pool
    pool.close()


@pytest.fixture
def started(monkeypatch):
    """The allowance for importing the engine is not waited for."""
    monkeypatch.setattr("seedlab.envs.textworld.client._STARTUP_S", 5.0)


def episode(pool, task="alfworld/train/a/t1", game="g"):
    return OfficialEpisode(game, task, "pick_and_place_simple", pool, max_steps=3, success_reward=10.0)


def test_an_episode_has_the_protocol_of_every_environment(pool):
    env = episode(pool)
    assert env.reset().startswith("You see a shelf 1.") and env.goal == "put a mug in shelf."
    first = env.step(" take mug 1 from shelf 1 ")
    assert (first.info.admissible, first.reward, first.done, env.holding()) == (True, 0.0, False, "mug 1")
    assert env.step("fly").info.admissible is False
    last = env.step("win")
    assert (last.info.won, last.reward, last.done, last.info.truncated) == (True, 10.0, True, False)
    with pytest.raises(RuntimeError, match="alfworld/train/a/t1"):
        env.step("look")
    env.close()


def test_the_step_limit_truncates(pool):
    env = episode(pool)
    env.reset()
    results = [env.step("look") for _ in range(3)]
    assert [r.done for r in results] == [False, False, True] and results[-1].info.truncated
    env.close()


@pytest.mark.parametrize(
    ("command", "message"),
    [("die", "died at `step` .exit code 7.; it said: the last words"), ("garble", "broke off"), ("fail", "failed: KeyError: 'mug'"),
     ("hang", "did not answer in time")],
)  # fmt: skip
def test_every_fault_is_an_infrastructure_error_with_the_task(pool, command, message):
    env = episode(pool)
    env.reset()
    pid = env._process.pid
    start = time.monotonic()
    with pytest.raises(InfrastructureError, match=message) as error:
        env.step(command)
    assert str(error.value).startswith("alfworld/train/a/t1: ")
    assert time.monotonic() - start < 5
    assert not psutil.pid_exists(pid)
    env.close()
    assert pool.idle == []  # a process that failed is not used again


def test_a_process_that_hangs_from_the_start_is_noticed(stand_in, started, monkeypatch):
    monkeypatch.setattr("seedlab.envs.textworld.client._STARTUP_S", 0.2)
    stand_in.write_text("#!/bin/sh\nexec sleep 60\n")
    process = OfficialProcess(timeout_s=0.2)
    process.task = "some task"
    with pytest.raises(InfrastructureError, match="some task: .*did not answer in time"):
        process.ask("versions")


def test_a_process_killed_between_two_steps_is_noticed(pool):
    env = episode(pool)
    env.reset()
    os.kill(env._process.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="alfworld/train/a/t1: .*at `step` .exit code -9"):
        env.step("look")


def test_a_game_that_does_not_load_is_named(pool):
    with pytest.raises(InfrastructureError, match="alfworld/train/a/t1: .*failed: no such game"):
        episode(pool, game="missing").reset()


def test_processes_are_used_again_and_a_dead_one_is_replaced(pool):
    env = episode(pool)
    env.reset()
    pid = env._process.pid
    env.close()
    env.close()
    other = episode(pool, "alfworld/train/b/t1")
    other.reset()
    assert other._process.pid == pid and other._process.task == "alfworld/train/b/t1"
    other.close()
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=5)
    third = episode(pool)
    third.reset()
    assert third._process.pid != pid
    third.close()
    assert len(pool.idle) == 1


def test_no_process_is_left_when_the_pool_goes(stand_in):
    pool = ProcessPool(timeout_s=5.0)
    envs = [episode(pool, f"alfworld/train/{k}/t") for k in range(3)]
    for env in envs:
        env.reset()
    pids = [env._process.pid for env in envs]
    for env in envs:
        env.close()
    assert len(pool.idle) == 3
    del pool, envs, env
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_copy_replays_the_actions_in_a_process_of_its_own(pool):
    env = episode(pool)
    env.reset()
    env.step("take mug 1 from shelf 1")
    copy = env.clone()
    assert (copy.holding(), copy.actions, copy.steps) == ("mug 1", env.actions, 1)
    assert copy._process.pid != env._process.pid
    env.close()
    copy.close()


class Scripted:
    """Says for each task what it is told to."""

    weights_version = 0

    def __init__(self, chat, words):
        self.chat, self.words = chat, words

    def expect(self, episodes):
        pass

    def leave(self):
        pass

    async def generate(self, prompt_ids, sampling, *, trajectory_id, images=()):
        await asyncio.sleep(0)
        ids = [*self.chat.encode(self.words(trajectory_id)), self.chat.end_of_turn]
        return Generation(ids, [-0.5] * len(ids), [0.2] * len(ids), "stop", 0)


def test_a_killed_worker_costs_its_own_episode_only(pool):  # case D12
    class Family:
        def make(self, task_id):
            return episode(pool, task_id)

    chat = ChatRenderer(build_tokenizer([*COMPACT_WORDS, *"look win die you see a shelf put mug in 1 .".split()], 512))
    config = EnvConfig(max_steps=3)
    trajectories = play(
        [Episode(f"task-{k}", 0) for k in range(4)], Family(), Scripted(chat, lambda name: "die" if "task-2" in name else "win"),
        chat, make_prompt_format(config), config, PlaySettings("u", 0, 0, 1.0, 4, 200),
    )  # fmt: skip
    assert [t.success for t in trajectories] == [True, True, False, True]  # case D3
    assert [bool(t.infra_failure) for t in trajectories] == [False, False, True, False]
    assert trajectories[2].infra_failure.startswith("task-2: the official engine's process")
    assert trajectories[2].steps == [] and trajectories[2].returned == 0.0  # marked: no reward of an attempt


# ---- which interpreter


def test_a_missing_engine_says_how_to_get_it(monkeypatch):
    monkeypatch.setenv(PYTHON_VARIABLE, "/no/such/python")
    with pytest.raises(OfficialEngineMissing, match="/no/such/python is not a program"):
        official_python()
    monkeypatch.delenv(PYTHON_VARIABLE)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OfficialEngineMissing, match="make alfworld"):
        official_python()
    with pytest.raises(OfficialEngineMissing):
        make_family(EnvConfig(backend="textworld"))  # at the start of a run, not in its middle


def test_the_backend_is_chosen_in_the_configuration(stand_in):
    family = make_family(EnvConfig(backend="textworld"))
    assert family.name == "household" and family.panels() == make_family(EnvConfig()).panels()
    with pytest.raises(ValueError, match="is not a task id"):
        family.make("nonsense")
