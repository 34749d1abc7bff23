"""The oracle's distance is exact: it falls by one along its plan and by at most one along any command."""

import random

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family

FAMILY = make_family(EnvConfig(max_steps=10**6))
TASKS = FAMILY.panels()["train"].task_ids


def test_the_plan_falls_by_one_per_command():
    for task_id in TASKS[:48]:
        env = FAMILY.make(task_id)
        plan = FAMILY.oracle_plan(env)
        for left in range(len(plan), 0, -1):
            assert FAMILY.oracle_distance(env) == left
            env.step(FAMILY.oracle_plan(env)[0])
        assert env.won and FAMILY.oracle_distance(env) == 0


def test_no_command_is_worth_more_than_one_step():
    # With a plan of that length existing (test above), this makes the distance the true shortest one.
    rng = random.Random(0)
    for task_id in TASKS[:18]:
        env = FAMILY.make(task_id)
        for _ in range(25):
            here = FAMILY.oracle_distance(env)
            for command in env.admissible():
                after = env.clone()
                won = after.step(command).info.won
                assert FAMILY.oracle_distance(after) >= here - 1
                assert won == (FAMILY.oracle_distance(after) == 0)
            env.step(rng.choice(env.admissible()))
            if env.done:
                break


def test_progress_is_the_sign_of_the_change_and_leaves_the_episode_alone():
    env = FAMILY.make("household/pick_heat_then_place_in_recep-Apple-CounterTop-0001")
    plan = FAMILY.oracle_plan(env)
    steps = env.steps
    assert plan == [
        "go to sidetable 1", "take apple 1 from sidetable 1", "go to microwave 1", "heat apple 1 with microwave 1",
        "go to countertop 1", "move apple 1 to countertop 1",
    ]  # fmt: skip
    assert [FAMILY.progress(env, c) for c in (plan[0], "look", "no such command", "go to drawer 1")] == [1, 0, 0, 0]
    assert env.steps == steps
    env.step(plan[0])
    assert FAMILY.progress(env, "take kettle 1 from sidetable 1") == -1.0
    assert FAMILY.progress(env, "go to drawer 1") == -1.0
