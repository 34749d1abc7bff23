"""Texts, admissible commands and state of the engine on small hand-made rooms; tests/conformance has the official answers."""

import pytest

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.household.engine import Household
from seedlab.envs.household.goals import Goal
from seedlab.envs.household.texts import describe, listing
from seedlab.envs.household.world import Facts, build_world, display_names

HEAT_TASK = "household/pick_heat_then_place_in_recep-Apple-CounterTop-0001"


def room(**changes):
    """A kitchen corner: fridge (closed), sink basin and countertop; the last two share a place."""
    parts = dict(
        sentence="put a cool apple in countertop.",
        goal=Goal("pick_cool_then_place_in_recep", "apple", "countertop"),
        receptacle_types={
            "fridge_bar_1": "fridge", "countertop_bar_1": "countertop", "sink_bar_1_bar_sinkbasin": "sinkbasin"
        },
        receptacle_places={"fridge_bar_1": "l1", "countertop_bar_1": "l2", "sink_bar_1_bar_sinkbasin": "l2"},
        openable={"fridge_bar_1"},
        object_types={"apple_bar_1": "apple", "apple_bar_2": "apple", "knife_bar_1": "knife", "bowl_bar_1": "bowl"},
        inside=[
            ("apple_bar_1", "fridge_bar_1"), ("apple_bar_2", "sink_bar_1_bar_sinkbasin"),
            ("knife_bar_1", "countertop_bar_1"), ("bowl_bar_1", "countertop_bar_1"),
        ],
        object_places=[("apple_bar_1", "l1"), ("apple_bar_2", "l2"), ("knife_bar_1", "l2"), ("bowl_bar_1", "l2")],
        abilities={
            "pickupable": {"apple_bar_1", "apple_bar_2", "knife_bar_1", "bowl_bar_1"},
            "coolable": {"apple_bar_1", "apple_bar_2"}, "cleanable": {"apple_bar_1", "apple_bar_2"},
            "sliceable": {"apple_bar_1", "apple_bar_2"}, "isreceptacleobject": {"bowl_bar_1"},
        },
        can_contain={(r, o) for r in ("fridge", "countertop", "sinkbasin") for o in ("apple", "knife")},
        start="l0",
    )  # fmt: skip
    parts |= changes
    ids = {*parts["receptacle_types"], *parts["object_types"], "l0", "l1", "l2"}
    return Household(build_world(Facts(**parts, ids=ids)), "room", 50, 10.0)


def play(env, *commands):
    return [env.step(command).observation for command in commands]


def test_numbers_fall_in_id_order_and_basins_get_their_name():
    ids = ["mug_bar_a", "mug_bar_b", "sink_bar_1_bar_sinkbasin", "mug"]
    assert display_names(ids) == {
        "mug_bar_a": "mug 2", "mug_bar_b": "mug 1", "sink_bar_1_bar_sinkbasin": "sinkbasin 1", "mug": "mug "
    }  # fmt: skip


def test_listing_puts_a_comma_before_and_even_between_two():
    assert listing([]) == "nothing"
    assert listing(["a x 1"]) == "a x 1"
    assert listing(["a x 1", "a y 1"]) == "a x 1, and a y 1"


def test_intro_lists_receptacles_and_the_task():
    assert room().reset() == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, "
        "you see a countertop 1, a fridge 1, and a sinkbasin 1.\n\nYour task is to: put a cool apple in countertop."
    )


def test_the_only_put_command_is_move():  # case D1
    env = room()
    play(env, "go to countertop 1", "take knife 1 from countertop 1")
    assert "move knife 1 to countertop 1" in env.admissible()
    result = env.step("put knife 1 in/on countertop 1")
    assert (result.observation, result.info.admissible, result.reward) == ("Nothing happens.", False, 0.0)
    assert env.holding() == "knife 1"
    assert env.step("move knife 1 to countertop 1").observation == "You move the knife 1 to the countertop 1."
    assert env.holding() is None


@pytest.mark.parametrize(
    "junk",
    ["", "   ", "go", "go to", "GO TO FRIDGE 1", "go  to fridge 1", "take apple 1", "open fridge 1", "fly", "look around",
     "take apple 1 from fridge 1", "examine bowl 1", "examine apple 1", "help me", "inventory\nlook"],
)  # fmt: skip
def test_junk_does_nothing(junk):
    env = room()
    before = env.admissible()
    result = env.step(junk)
    assert (result.observation, result.info.admissible, result.done) == ("Nothing happens.", False, False)
    assert env.admissible() == before


def test_white_space_around_a_command_is_ignored():
    assert room().step("  inventory \n").observation == "You are not carrying anything."


def test_receptacles_that_share_a_place_cannot_be_left_for_one_another():
    env = room()
    assert play(env, "go to sinkbasin 1", "go to countertop 1", "look") == [
        "You arrive at sinkbasin 1. On the sinkbasin 1, you see a apple 1.",
        "Nothing happens.",
        "You are facing the countertop 1, and sinkbasin 1. Next to it, you see nothing.",
    ]
    assert "go to countertop 1" not in env.admissible()
    # Moved between them, the knife lies "next to" the place that it left, as officially.
    assert play(env, "take knife 1 from countertop 1", "move knife 1 to sinkbasin 1", "look")[-1] == (
        "You are facing the countertop 1, and sinkbasin 1. Next to it, you see a knife 1."
    )


def test_closed_receptacles_hide_their_contents_until_opened():
    env = room()
    assert play(env, "go to fridge 1", "take apple 2 from fridge 1", "open fridge 1", "open fridge 1") == [
        "You arrive at fridge 1. The fridge 1 is closed.",
        "Nothing happens.",
        "You open the fridge 1. The fridge 1 is open. In it, you see a apple 2.",
        "Nothing happens.",
    ]
    assert play(env, "take apple 2 from fridge 1", "close fridge 1", "move apple 2 to fridge 1") == [
        "You pick up the apple 2 from the fridge 1.", "You close the fridge 1.", "Nothing happens."
    ]  # fmt: skip


def test_one_object_at_a_time_and_only_the_held_one_can_be_examined():
    env = room()
    play(env, "go to countertop 1", "take bowl 1 from countertop 1")
    assert play(env, "take knife 1 from countertop 1", "examine knife 1", "examine bowl 1", "inventory") == [
        "Nothing happens.", "Nothing happens.", "This is a normal bowl 1. In it, you see nothing.",
        "You are carrying: a bowl 1.",
    ]  # fmt: skip


def test_treatments_change_what_examine_says_and_win_the_task():
    env = room()
    play(env, "go to sinkbasin 1", "take apple 1 from sinkbasin 1")
    assert play(env, "examine apple 1", "clean apple 1 with sinkbasin 1", "examine apple 1") == [
        "There's nothing special about apple 1.", "You clean the apple 1 using the sinkbasin 1.",
        "This is a clean apple 1.",
    ]  # fmt: skip
    assert play(env, "go to fridge 1", "cool apple 1 with fridge 1", "examine apple 1")[1:] == [
        "You cool the apple 1 using the fridge 1.", "This is a cool and clean apple 1."
    ]  # fmt: skip
    env.step("go to countertop 1")
    result = env.step("move apple 1 to countertop 1")
    assert (result.reward, result.done, result.info.won, result.info.score, result.info.truncated) == (10.0, True, True, 1.0, False)
    with pytest.raises(RuntimeError, match="room"):
        env.step("look")


def test_heat_and_cold_undo_each_other():
    env = room(
        receptacle_types={"fridge_bar_1": "fridge", "microwave_bar_1": "microwave", "countertop_bar_1": "countertop"},
        receptacle_places={"fridge_bar_1": "l1", "microwave_bar_1": "l1", "countertop_bar_1": "l2"},
        inside=[("apple_bar_1", "countertop_bar_1")],
        abilities={k: {"apple_bar_1"} for k in ("pickupable", "heatable", "coolable")},
    )
    play(env, "go to countertop 1", "take apple 2 from countertop 1", "go to fridge 1")
    said = []
    for command in ("cool apple 2 with fridge 1", "heat apple 2 with microwave 1", "cool apple 2 with fridge 1"):
        said.append(play(env, command, "examine apple 2")[1])
        assert env.treated(env.held) == command.startswith("cool")
    assert said == ["This is a cold apple 2.", "This is a hot apple 2.", "This is a cold apple 2."]


def test_an_untreated_object_does_not_win():
    env = room()
    play(env, "go to sinkbasin 1", "take apple 1 from sinkbasin 1")
    assert env.step("move apple 1 to countertop 1").info.won is False


def test_slicing_needs_a_knife_in_hand():
    env = room()
    play(env, "go to countertop 1")
    assert "slice apple 1 with knife 1" not in env.admissible()
    play(env, "take knife 1 from countertop 1")
    assert env.step("slice apple 1 with knife 1").observation == "You sliced the apple 1 with the knife 1."


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (dict(clean=True, hot=True, sliced=True), "This is a hot and clean sliced egg 1."),
        (dict(clean=True, sliced=True), "This is a clean sliced egg 1."),
        (dict(cool=True, sliced=True), "This is a cool sliced egg 1."),
        (dict(clean=True, hot=True), "This is a hot and clean egg 1."),
        (dict(cool=True), "This is a cold egg 1."),
        (dict(hot=True), "This is a hot egg 1."),
        (dict(sliced=True), "This is a sliced egg 1."),
        (dict(on=True), "This egg 1 is on."),
        (dict(), "There's nothing special about egg 1."),
        (dict(carried="a pen 1", clean=True), "This is a normal egg 1. In it, you see a pen 1."),
    ],
)
def test_descriptions(state, text):
    plain = dict(carried=None, clean=False, hot=False, cool=False, sliced=False, on=False)
    assert describe("egg 1", **(plain | state)) == text


def test_lamps_say_on_each_time_and_light_wins_at_their_place():
    env = make_family(EnvConfig()).make("household/look_at_obj_in_light-Book-DeskLamp-0001")
    plan = make_family(EnvConfig()).oracle_plan(env)
    lamp = next(name for name in env.world.objects if name.startswith("desklamp"))
    assert plan[-1] == f"use {lamp}" or plan[-1].startswith("take book")
    lamp_place = env.world.receptacles[next(r for r, c in enumerate(env.contents) if env.world.object_index[lamp] in c)]
    play(env, f"go to {lamp_place}")
    assert play(env, f"use {lamp}", f"use {lamp}") == [f"You turn on the {lamp}."] * 2
    assert env.won is False


def test_the_step_limit_truncates_without_reward():
    env = make_family(EnvConfig(max_steps=3)).make(HEAT_TASK)
    results = [env.step("look") for _ in range(3)]
    assert [r.done for r in results] == [False, False, True]
    assert (results[-1].info.truncated, results[-1].info.won, results[-1].reward) == (True, False, 0.0)


def test_a_win_on_the_last_step_is_not_truncated():
    family = make_family(EnvConfig(max_steps=50))
    plan = family.oracle_plan(family.make(HEAT_TASK))
    env = make_family(EnvConfig(max_steps=len(plan))).make(HEAT_TASK)
    last = [env.step(command) for command in plan][-1]
    assert (last.info.won, last.info.truncated) == (True, False)


def test_admissible_is_exactly_what_works():
    """Every listed command is admissible; every other combination of known names is not."""
    family = make_family(EnvConfig(max_steps=10**6))
    for task_id in family.panels()["train"].task_ids[:6]:
        env = family.make(task_id)
        for command in ["look", *family.oracle_plan(env)[:-1]]:
            env.step(command)
            listed = env.admissible()
            assert listed == sorted(set(listed))
            world = env.world
            things, places = world.objects, world.receptacles
            possible = {f"{v} {x}" for v in ("go to", "open", "close", "examine", "use") for x in (*things, *places)}
            possible |= {f"{v} {o} {w} {r}" for v, w in (("take", "from"), ("move", "to")) for o in things for r in places}
            possible |= {f"{v} {o} with {r}" for v in ("heat", "clean", "cool") for o in things for r in places}
            possible |= {f"slice {o} with {k}" for o in things for k in things} | {"look", "inventory", "help"}
            works = {c for c in possible if env.clone().step(c).info.admissible}
            assert works == set(listed)


def test_a_clone_lives_its_own_life():
    family = make_family(EnvConfig())
    env = family.make(HEAT_TASK)
    plan = family.oracle_plan(env)
    play(env, *plan[:2])
    before = (env.admissible(), env.holding(), env.steps)
    copy = env.clone()
    assert [copy.step(command).info.won for command in plan[2:]][-1] is True
    assert (env.admissible(), env.holding(), env.steps) == before
    assert [env.step(command).info.won for command in plan[2:]][-1] is True


def test_episodes_side_by_side_do_not_touch_each_other():  # case D3
    family = make_family(EnvConfig())
    envs = [family.make(HEAT_TASK) for _ in range(4)]
    for command in family.oracle_plan(envs[2]):
        envs[2].step(command)
    assert [int(env.won) for env in envs] == [0, 0, 1, 0]
    assert envs[2].reset() == envs[0].reset() and envs[2].won is False
