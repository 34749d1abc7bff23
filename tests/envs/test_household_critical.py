"""Critical steps of the scripted analyzer: hand-written transcripts, and bounds on whole demonstrations."""

import re

import numpy as np
import pytest
from test_household_hindsight import DELIVERED, HEAT, INTRO, LAMP, SEEN, TAKEN, transcript

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.household.critical import step_skills


def of(goal, turns, success, limit=5):
    return step_skills(goal, *transcript(*turns), success, limit)


def test_a_success_is_decided_by_finding_taking_treating_and_delivering():
    assert of(HEAT, DELIVERED, True) == {
        1: "open cabinet 2 now , the mug is in cabinet 2 .",
        2: "take mug 1 from cabinet 2 now , it is what the task asks for .",
        4: "heat mug 1 with microwave 1 before it is moved to the shelf .",
        6: "move mug 1 to shelf 2 now , it belongs there .",
    }


def test_the_most_decisive_ones_come_first_where_there_is_room_for_few():
    assert list(of(HEAT, DELIVERED, True, 1)) == [2]
    assert list(of(HEAT, DELIVERED, True, 2)) == [2, 6]
    assert of(HEAT, DELIVERED, True, 0) == {}


def test_the_lamp_decides_a_task_under_it():
    used = [*TAKEN, LAMP, ("use desklamp 1", "You turn on the desklamp 1.")]
    assert of("look at mug under the desklamp.", used, True)[4] == "use desklamp 1 now , with the mug in hand ."


def test_what_a_failure_did_wrong():
    passed_by = [*SEEN, ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a pen 1.")]
    assert of(HEAT, passed_by, False) == {2: "take mug 1 from cabinet 2 now , it is what the task asks for ."}
    cold = [*TAKEN, ("go to shelf 2", "You arrive at shelf 2. On the shelf 2, you see nothing."), ("move mug 1 to shelf 2", "You move the mug 1 to the shelf 2.")]
    assert of(HEAT, cold, False) == {4: "heat mug 1 with microwave 1 before it is moved ."}
    assert of(HEAT, [("fly", "Nothing happens.")], False) == {0: "this command does nothing here , so do something else ."}
    again = [LAMP, ("go to shelf 2", "You arrive at shelf 2. On the shelf 2, you see nothing."), LAMP]
    assert of(HEAT, again, False) == {2: "desk 1 was already searched , so go to another place ."}
    assert of(HEAT, [], False) == {} and step_skills(HEAT, [INTRO], [], True, 5) == {}


@pytest.fixture(scope="module")
def demonstrations():
    family = make_family(EnvConfig())
    rng = np.random.default_rng(0)
    tasks = family.panels()["train"].task_ids[:60]
    return [family.demonstrate(family.make(task), rng, noise) for noise in (0.0, 0.5) for task in tasks]


def test_every_advice_is_of_its_own_step_and_names_only_what_was_seen(demonstrations):
    """Names of an advice stand in what was read up to the answer of its step: nothing of the world's state leaks."""
    assert {d.success for d in demonstrations} == {True, False}
    marked = 0
    for d in demonstrations:
        found = step_skills(d.goal, d.observations, d.actions, d.success, 5)
        assert len(found) <= 5 and list(found) == sorted(found)
        for step, advice in found.items():
            assert 0 <= step < len(d.actions) and 5 <= len(advice.split()) <= 30
            read = " ".join([*d.observations[: step + 2], *d.actions[: step + 1]]).lower()
            assert all(name in read for name in re.findall(r"[a-z]+ \d+", advice)), (advice, read)
            marked += 1
        if d.success:
            taken = [s for s, advice in found.items() if advice.startswith("take")]
            assert taken and all(found[s].startswith(d.actions[s]) for s in taken)
    assert marked > 200
