"""The scripted expert: what it achieves with and without skills, and that it sees observations only."""

from dataclasses import replace

import numpy as np

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.household.engine import Household

FAMILY = make_family(EnvConfig())
TASKS = FAMILY.panels()["dev"].task_ids


def attempts(noise, skills=None, seed=0, tasks=TASKS, family=FAMILY):
    rng = np.random.default_rng(seed)
    return [family.demonstrate(family.make(t), rng, noise, skills[i] if skills else None) for i, t in enumerate(tasks)]


def skill_of(attempt):
    return FAMILY.hindsight_skill(attempt.goal, attempt.observations, attempt.actions, attempt.success)


def success(demonstrations):
    return float(np.mean([d.success for d in demonstrations]))


def steps(demonstrations):
    return float(np.mean([len(d.actions) for d in demonstrations]))


def test_the_expert_solves_nearly_all_and_a_true_skill_saves_steps():
    plain = attempts(0.0)
    guided = attempts(0.0, [skill_of(d) for d in plain], seed=1)
    assert success(plain) >= 0.95
    assert success(guided) >= success(plain)
    assert steps(guided) < steps(plain) - 1.0


def test_noise_costs_success_and_a_skill_wins_some_back():
    plain = attempts(0.5)
    guided = attempts(0.5, [skill_of(d) for d in attempts(0.0, seed=5)], seed=1)
    assert 0.2 < success(plain) < 0.8
    assert success(guided) > success(plain) + 0.05


def test_skills_of_failures_help_the_next_attempt():
    noisy = attempts(0.8)
    failed = [i for i, d in enumerate(noisy) if not d.success]
    tasks, skills = [TASKS[i] for i in failed], [skill_of(noisy[i]) for i in failed]
    assert len(failed) > 20
    assert steps(attempts(0.0, skills, seed=2, tasks=tasks)) < steps(attempts(0.0, seed=2, tasks=tasks))


def test_a_followed_skill_goes_to_its_place_first_and_a_wrong_one_falls_back_to_search():
    for task in (TASKS[0], TASKS[2], TASKS[3]):
        env = FAMILY.make(task)
        thing = env.world.goal.object
        for place in env.world.receptacles:
            led = attempts(0.0, [f"the {thing} is in {place} . go there first , take {thing} 1 ."], tasks=[task])[0]
            assert led.actions[0] == f"go to {place}"
            assert led.success
        assert attempts(0.0, ["always be careful and think about what you do ."], tasks=[task])[0].success


def test_excluded_places_come_last():
    task = TASKS[0]
    plain = attempts(0.0, tasks=[task])[0]
    first = plain.actions[0].removeprefix("go to ")
    thing = FAMILY.make(task).world.goal.object
    led = attempts(0.0, [f"the {thing} is not in {first} . look in other places ."], tasks=[task])[0]
    assert led.actions[0] != plain.actions[0]


def test_it_stops_at_the_step_limit_with_one_more_observation_than_actions():
    short = make_family(EnvConfig(max_steps=4))
    for d in attempts(0.9, tasks=TASKS[:12], family=short):
        assert len(d.actions) <= 4
        assert len(d.observations) == len(d.holding) == len(d.actions) + 1
        assert d.success or len(d.actions) == 4


def test_the_same_generator_state_gives_the_same_demonstration():
    assert attempts(0.4, seed=3) == attempts(0.4, seed=3)
    assert attempts(0.4, seed=3) != attempts(0.4, seed=4)


def test_noise_never_asks_for_help():
    assert not any(a == "help" for d in attempts(1.0) for a in d.actions)


def test_the_expert_reads_observations_alone():
    """Wherever the object really is, the same texts so far get the same commands."""
    compared = 0
    for task in TASKS[:18]:
        world = FAMILY.make(task).world
        wanted = min(world.wanted)
        elsewhere = [r for r in world.fits[wanted] if wanted not in world.start_contents[r]]
        contents = [tuple(o for o in inside if o != wanted) for inside in world.start_contents]
        contents[elsewhere[-1]] = tuple(sorted((*contents[elsewhere[-1]], wanted)))
        moved_room = Household(replace(world, start_contents=tuple(contents)), task, 15, 1.0)
        here = FAMILY.demonstrate(FAMILY.make(task), np.random.default_rng(0), 0.0)
        moved = FAMILY.demonstrate(moved_room, np.random.default_rng(0), 0.0)
        for turn in range(min(len(here.actions), len(moved.actions))):
            if here.observations[: turn + 1] != moved.observations[: turn + 1]:
                break
            assert here.actions[turn] == moved.actions[turn]
            compared += 1
    assert compared > 18
