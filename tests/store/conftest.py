import os

import pytest

from seedlab.config.presets import load_config
from seedlab.episodes.records import Skill, Step, Trajectory
from seedlab.store.writer import RunWriter


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@pytest.fixture(scope="session")
def config():
    return load_config("micro")


@pytest.fixture
def writer(tmp_path, config):
    made = RunWriter.create(tmp_path / "run", config)
    yield made
    made.release()


def step(**changes) -> Step:
    values = {
        "observation": "You see a mug.", "response": "take mug 1", "action": "take mug 1", "prompt_ids": [1, 2, 3],
        "response_ids": [7, 8], "logprobs": [-0.5, -1.25], "entropies": [0.5, 0.75], "finish": "stop", "parsed": True,
        "admissible": True, "reward": 0.0, "kept_from": 1, "holding": "nothing", "admissible_commands": ("look", "take mug 1"),
        "progress": 1.0,
    }  # fmt: skip
    return Step(**values | changes)


@pytest.fixture
def trajectories():
    """Two trajectories of one task: a success with a skill, and an infrastructure failure without one."""
    skill = Skill("s0", "u000000/t/n0", "look first, then take", True, "ok", "own", 0, 5, "raw text")
    won = Trajectory(
        "u000000/t/n0", "t", "pick", "put a mug on a desk.", 0, 0, 3, [step(), step(reward=1.0, progress=None, admissible=False)],
        "You put the mug down.", 1.0, True, False, None, skill,
    )  # fmt: skip
    lost = Trajectory("u000000/t/n1", "t", "pick", "put a mug on a desk.", 0, 1, 3, [], "", 0.0, False, True, "worker died")
    return [won, lost]
