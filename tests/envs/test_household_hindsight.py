"""The scripted analyzer: skills per outcome, from hand-written transcripts, read back and compared."""

import numpy as np
import pytest

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.household.beliefs import read_transcript
from seedlab.envs.household.hindsight import hindsight_skill
from seedlab.envs.household.skills import SkillAgreement, SkillFacts, skill_agreement, skill_facts

INTRO = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
    "a cabinet 2, a cabinet 1, a desk 1, a microwave 1, a shelf 2, and a shelf 1.\n\nYour task is to: "
)
OPEN_CABINET = "You open the cabinet 2. The cabinet 2 is open. In it, you see a mug 1, and a plate 1."


def transcript(*turns):
    """(observations, actions) of (action, answer) pairs."""
    return [INTRO, *(answer for _, answer in turns)], [action for action, _ in turns]


TO_CABINET = ("go to cabinet 2", "You arrive at cabinet 2. The cabinet 2 is closed.")
SEEN = [TO_CABINET, ("open cabinet 2", OPEN_CABINET)]
TAKEN = [*SEEN, ("take mug 1 from cabinet 2", "You pick up the mug 1 from the cabinet 2.")]
HEATED = [
    *TAKEN,
    ("go to microwave 1", "You arrive at microwave 1. The microwave 1 is closed."),
    ("heat mug 1 with microwave 1", "You heat the mug 1 using the microwave 1."),
]
DELIVERED = [
    *HEATED,
    ("go to shelf 2", "You arrive at shelf 2. On the shelf 2, you see nothing."),
    ("move mug 1 to shelf 2", "You move the mug 1 to the shelf 2."),
]
LAMP = ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a desklamp 1, and a pen 1.")
HEAT = "put a hot mug in shelf."


@pytest.mark.parametrize(
    ("goal", "turns", "success", "skill"),
    [
        (HEAT, DELIVERED, True,
         "the mug is in cabinet 2 . take mug 1 from cabinet 2 , heat it with microwave 1 , then move it to shelf 2 ."),
        (HEAT, TAKEN, False,
         "the mug is in cabinet 2 . go there first , take mug 1 , heat it with microwave 1 , then move it to shelf 1 ."),
        (HEAT, [], False, "the mug was not found . look in other places ."),
        (HEAT, [TO_CABINET], False, "the mug was not found . open cabinet 2 and look in other places ."),
        (HEAT, [LAMP, TO_CABINET], False, "the mug is not in desk 1 . open cabinet 2 and look in other places ."),
        (HEAT, [LAMP, DELIVERED[5]], False, "the mug is not in desk 1 or shelf 2 . look in other places ."),
        ("put some plate on shelf.", SEEN, False,
         "the plate is in cabinet 2 . go there first , take plate 1 , then move it to shelf 1 ."),
        ("look at mug under the desklamp.", [*TAKEN, LAMP, ("use desklamp 1", "You turn on the desklamp 1.")], True,
         "the mug is in cabinet 2 . take mug 1 from cabinet 2 , then use desklamp 1 in desk 1 ."),
        ("look at mug under the desklamp.", SEEN, False,
         "the mug is in cabinet 2 . go there first , take mug 1 , then look for the desklamp ."),
        ("look at mug under the desklamp.", [LAMP], False,
         "the desklamp is in desk 1 . the mug is not in desk 1 . look in other places ."),
        ("put two mug in shelf.", SEEN, False,
         "one mug is in cabinet 2 . go there first , take it , move it to shelf 1 , then look for another mug ."),
        ("put two mug in shelf.", [*SEEN, ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a mug 2.")], False,
         "one mug is in cabinet 2 , one is in desk 1 . go there first , take both and move them to shelf 1 ."),
    ],
)  # fmt: skip
def test_skill_per_outcome(goal, turns, success, skill):
    observations, actions = transcript(*turns)
    assert hindsight_skill(goal, observations, actions, success) == skill


def test_the_answer_to_the_last_action_may_be_missing():
    observations, actions = transcript(*TAKEN)
    assert hindsight_skill(HEAT, observations[:-1], actions, False) == hindsight_skill(HEAT, observations, actions, False)


def test_an_object_that_was_carried_off_is_reported_where_it_was_first():
    observations, actions = transcript(
        *TAKEN, LAMP, ("move mug 1 to desk 1", "You move the mug 1 to the desk 1."),
        ("examine desk 1", "On the desk 1, you see a desklamp 1, a mug 1, and a pen 1."),
    )  # fmt: skip
    assert skill_facts(hindsight_skill(HEAT, observations, actions, False)).location == "cabinet 2"


def test_what_already_lies_at_the_target_is_named_only_for_lack_of_others():
    at_target = ("go to shelf 1", "You arrive at shelf 1. On the shelf 1, you see a mug 3.")
    only = hindsight_skill(HEAT, *transcript(at_target), False)
    both = hindsight_skill(HEAT, *transcript(at_target, *SEEN), False)
    assert (skill_facts(only).location, skill_facts(both).location) == ("shelf 1", "cabinet 2")


def test_commands_that_did_nothing_teach_nothing():
    beliefs = read_transcript(*transcript(("take mug 1 from shelf 1", "Nothing happens."), ("go to bed 9", "Nothing happens.")))
    assert (beliefs.holding, beliefs.first_seen, beliefs.contents, beliefs.place) == (None, {}, {}, None)


def test_two_object_success_names_both_origins():
    observations, actions = transcript(
        *TAKEN, *DELIVERED[5:], ("go to desk 1", "You arrive at desk 1. On the desk 1, you see a mug 2."),
        ("take mug 2 from desk 1", "You pick up the mug 2 from the desk 1."), DELIVERED[5],
        ("move mug 2 to shelf 2", "You move the mug 2 to the shelf 2."),
    )  # fmt: skip
    assert hindsight_skill("find two mug and put them in shelf.", observations, actions, True) == (
        "one mug is in cabinet 2 , one is in desk 1 . take both and move them to shelf 2 ."
    )


def test_a_goal_of_another_environment_is_refused():
    with pytest.raises(ValueError, match="buy a red shirt"):
        hindsight_skill("buy a red shirt", [INTRO], [], True)


def test_facts_read_back_what_was_written():
    assert skill_facts(hindsight_skill(HEAT, *transcript(*DELIVERED), True)) == SkillFacts(
        object="mug", item="mug 1", locations=("cabinet 2",), target="shelf 2",
        workflow=("take", "heat microwave 1", "move shelf 2"),
    )  # fmt: skip
    light = skill_facts("the mug is in cabinet 2 . take mug 1 from cabinet 2 , then use desklamp 1 in desk 1 .")
    assert (light.lamp, light.lamp_location, light.workflow) == ("desklamp", "desk 1", ("take", "use desklamp 1"))
    assert skill_facts("the mug is not in desk 1 , bed 1 or shelf 2 . look in other places .") == SkillFacts(
        object="mug", excluded=("desk 1", "bed 1", "shelf 2")
    )
    assert skill_facts("open the fridge, then rest") == SkillFacts()


RIGHT = "the mug is in cabinet 2 . take mug 1 from cabinet 2 , heat it with microwave 1 , then move it to shelf 2 ."


@pytest.mark.parametrize(
    ("own", "scripted", "agreement"),
    [
        (RIGHT, RIGHT, (True, True, True)),
        ("  The mug is in cabinet 2. Take mug 1 from cabinet 2, heat it with microwave 1, then move it to shelf 2.", RIGHT,
         (True, True, True)),
        (RIGHT.replace("cabinet 2", "cabinet 1"), RIGHT, (False, False, True)),
        (RIGHT.replace("heat", "cool"), RIGHT, (False, True, False)),
        (RIGHT.replace("the mug", "the cup"), RIGHT, (False, False, True)),
        ("", RIGHT, (False, False, False)),
        ("the mug is not in bed 1 or desk 1 . look in other places .",
         "the mug is not in desk 1 or bed 1 . look in other places .", (False, True, True)),
    ],
)  # fmt: skip
def test_agreement(own, scripted, agreement):
    assert skill_agreement(own, scripted) == SkillAgreement(*agreement)


def test_skills_stay_within_their_length_and_vocabulary_and_are_true():
    family = make_family(EnvConfig())
    words = set(family.vocabulary())
    rng = np.random.default_rng(0)
    for task_id in family.panels()["train"].task_ids[:240]:
        d = family.demonstrate(family.make(task_id), rng, float(rng.uniform(0, 1)))
        skill = family.hindsight_skill(d.goal, d.observations, d.actions, d.success)
        assert 5 <= len(skill.split()) <= 30
        assert set(skill.split()) <= words and skill == skill.lower()
        facts, world = family.skill_facts(skill), family.make(task_id).world
        holds = {
            name: {world.objects[o].split()[0] for o in inside}
            for name, inside in zip(world.receptacles, world.start_contents)
        }
        assert all(facts.object in holds[place] for place in facts.locations)
        assert all(facts.object not in holds[place] for place in facts.excluded)
        if d.success:
            assert facts.locations and facts.workflow
