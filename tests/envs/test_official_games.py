"""Official game files: reading, refusing, task ids and panels; on real games where SEEDLAB_DATA names them."""

import json
import random
import shutil
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.household.engine import Household
from seedlab.envs.household.games import GameFileError, load_game, read_facts
from seedlab.envs.household.goals import TASK_TYPES, Goal
from seedlab.envs.household.oracle import NoPlan, oracle_distance, oracle_plan
from seedlab.envs.household.world import build_world

SIZES = {"stage1": 6, "train": 12, "dev": 6, "seen": 1, "unseen": 1}  # seen and unseen are whole splits whatever is said

PROBLEM = """
(define (problem p) (:domain alfred)
(:objects agent1 - agent Mug - object Mug_bar_1 - object)
(:init
  (receptacleType Shelf_bar_1 ShelfType) (receptacleType Sink_bar_2_bar_SinkBasin SinkBasinType)
  (receptacleAtLocation Shelf_bar_1 loc_bar_1) (receptacleAtLocation Sink_bar_2_bar_SinkBasin loc_bar_2)
  (objectType Mug_bar_1 MugType) (objectType Mug_bar_2 MugType)
  (pickupable Mug_bar_1) (pickupable Mug_bar_2) (cleanable Mug_bar_1) (cleanable Mug_bar_2)
  (isReceptacleObject Mug_bar_1) (inReceptacleObject Pen_bar_1 Mug_bar_1) (objectType Pen_bar_1 PenType)
  (inReceptacle Mug_bar_1 Shelf_bar_1) (inReceptacle Mug_bar_2 Shelf_bar_1)
  (objectAtLocation Mug_bar_1 loc_bar_1) (objectAtLocation Mug_bar_2 loc_bar_1)
  (canContain ShelfType MugType)
  (= (total-cost) 0)
  (atLocation agent1 loc_bar_0)
)
(:goal (and (exists (?r - receptacle) (exists (?o - object) (and
  (cleanable ?o) (objectType ?o MugType) (receptacleType ?r ShelfType) (isClean ?o) (inReceptacle ?o ?r)))))))
"""
CLEAN_GOAL = "(cleanable ?o) (objectType ?o MugType) (receptacleType ?r ShelfType) (isClean ?o) (inReceptacle ?o ?r)"


def layout(root: Path, split: str, task: str, trial: str = "trial_1", text: str = '{"solvable": true}') -> Path:
    folder = root / "json_2.1.1" / split / task / trial
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "game.tw-pddl").write_text(text)
    return folder / "game.tw-pddl"


def small_release(root: Path, train_per_type: int = 8) -> Path:
    for task_type in TASK_TYPES:
        for number in range(train_per_type):
            layout(root, "train", f"{task_type}-Mug-None-Shelf-{number}")
        for split, count in (("valid_seen", 3), ("valid_unseen", 2)):
            for number in range(count):
                layout(root, split, f"{task_type}-Mug-None-Shelf-{number}")
    return root


def family(data, **settings):
    return make_family(EnvConfig(data=str(data), **({"panel_sizes": SIZES, "incomplete": True} | settings)))


def panels(data, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return family(data, **settings).panels()


def test_facts_of_a_problem_become_a_world_that_plays():
    env = Household(build_world(read_facts(Path("g"), PROBLEM, "put a clean mug in shelf.")), "t", 9, 1.0)
    assert env.task_type == "pick_clean_then_place_in_recep"
    assert "you see a shelf 1, and a sinkbasin 1." in env.reset()
    commands = ["go to shelf 1", "take mug 2 from shelf 1", "examine mug 2", "go to sinkbasin 1",
                "clean mug 2 with sinkbasin 1", "go to shelf 1", "move mug 2 to shelf 1"]  # fmt: skip
    results = [env.step(c) for c in commands]
    assert results[0].observation == "You arrive at shelf 1. On the shelf 1, you see a mug 2, and a mug 1."
    assert results[2].observation == "This is a normal mug 2. In it, you see a pen 1."
    assert [r.info.won for r in results] == [False] * 6 + [True]


def test_a_thing_that_fits_nowhere_is_a_step_back_for_the_oracle():
    facts = "(objectType Roll_bar_1 RollType) (pickupable Roll_bar_1) (inReceptacle Roll_bar_1 Shelf_bar_1) (objectAtLocation Roll_bar_1 loc_bar_1)"
    problem = PROBLEM.replace("(= (total-cost) 0)", facts)
    env = Household(build_world(read_facts(Path("g"), problem, "put a clean mug in shelf.")), "t", 99, 1.0)
    assert oracle_distance(env) == 6
    distances = []
    for command in ("go to shelf 1", "take roll 1 from shelf 1", "go to sinkbasin 1", "look"):
        assert env.step(command).info.admissible
        distances.append(oracle_distance(env))
    assert distances == [5, 6, 7, 7]
    with pytest.raises(NoPlan, match="no plan reaches the goal 'put a clean mug in shelf.'"):
        oracle_plan(env)


def test_a_light_goal_names_its_lamp_first():
    goal = """(:goal (and
      (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType) (toggleable ?ot)
        (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r)))
      (exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))))"""
    problem = PROBLEM[: PROBLEM.index("(:goal")] + goal
    facts = read_facts(Path("g"), problem, "look at mug under the desklamp.")
    assert facts.goal == Goal("look_at_obj_in_light", "mug", "desklamp")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(canContain ShelfType MugType)", "(isHaunted Mug_bar_1)", "not supported: ishaunted"),
        ("(atLocation agent1 loc_bar_0)", "", "one agent location"),
        ("(canContain ShelfType MugType)", "(canContain ShelfType)", "malformed initial facts .cancontain"),
        (CLEAN_GOAL, "(holds agent1 ?o)", "none of the six task types"),
        ("(:goal", "(:wish", "no :init before its :goal"),
    ],
)  # fmt: skip
def test_a_problem_of_another_kind_is_refused_by_file(old, new, message):
    assert old in PROBLEM
    with pytest.raises(GameFileError, match=message) as error:
        read_facts(Path("some/game.tw-pddl"), PROBLEM.replace(old, new), "put a clean mug in shelf.")
    assert "some/game.tw-pddl" in str(error.value)


OLD_GRAMMAR = 'action PutObject { template :: "put {o} in/on {r}"; } "Your task is to: x."'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON game file"),
        ("[]", "lacks pddl_domain, grammar, pddl_problem"),
        (json.dumps({"pddl_domain": "", "grammar": "", "pddl_problem": 3}), "lacks pddl_problem"),
        (json.dumps({"pddl_domain": "", "grammar": OLD_GRAMMAR, "pddl_problem": ""}), "before ALFWorld 0.4"),
        (json.dumps({"pddl_domain": "", "grammar": "x", "pddl_problem": ""}), "no line 'Your task is to"),
        (json.dumps({"pddl_domain": "", "grammar": '"Your task is to: x."', "pddl_problem": ""}), "unknown text grammar"),
    ],
)  # fmt: skip
def test_a_game_file_of_another_kind_is_refused_by_name(tmp_path, text, message):  # case D1: old grammar
    path = layout(tmp_path, "train", "pick_and_place_simple-Mug-None-Shelf-1", text=text)
    with pytest.raises(GameFileError, match=message) as error:
        load_game(path)
    assert str(path) in str(error.value)


def test_panels_of_a_folder_or_its_parent(tmp_path):
    made = panels(small_release(tmp_path))
    assert {name: len(p.task_ids) for name, p in made.items()} == {
        "stage1": 6, "train": 12, "dev": 6, "seen": 18, "unseen": 12
    }  # fmt: skip
    assert panels(tmp_path / "json_2.1.1") == made
    ids = [i for p in made.values() for i in p.task_ids]
    assert len(ids) == len(set(ids))
    for panel in made.values():
        kinds = [i.split("/")[2].split("-")[0] for i in panel.task_ids]
        assert kinds == [TASK_TYPES[i % 6] for i in range(len(kinds))]
    assert made["seen"].task_ids[0] == "alfworld/valid_seen/pick_and_place_simple-Mug-None-Shelf-0/trial_1"
    assert panels(tmp_path, panel_seed=1)["train"] != made["train"]
    assert panels(tmp_path, panel_seed=1)["seen"] == made["seen"]
    assert len(panels(tmp_path, panel_limits={"seen": 4})["seen"].task_ids) == 4


def test_demonstrations_are_further_train_games(tmp_path):
    plain = panels(small_release(tmp_path))
    more = panels(tmp_path, panel_sizes=SIZES | {"demonstrations": 24})
    shown = more.pop("demonstrations")
    assert more == plain and len(shown.task_ids) == 24
    assert len({i for p in plain.values() for i in p.task_ids} | set(shown.task_ids)) == 24 + 24 + 18 + 12
    with pytest.raises(GameFileError, match="dev 6 . demonstrations 25 = 49"):
        panels(tmp_path, panel_sizes=SIZES | {"demonstrations": 25})


def test_the_data_hash_names_the_contents_that_are_trained_on(tmp_path):
    (tmp_path / "a").mkdir()
    before = family(small_release(tmp_path / "a")).data_hash()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert family(tmp_path / "b").data_hash() == before  # the place does not matter
    evaluated = panels(tmp_path / "b")["seen"].task_ids[0]
    layout(tmp_path / "b", *evaluated.split("/")[1:], text='{"solvable": true, "walkthrough": []}')
    assert family(tmp_path / "b").data_hash() == before
    for name in ("stage1", "train", "dev"):
        changed = panels(tmp_path / "b")[name].task_ids[0]
        layout(tmp_path / "b", *changed.split("/")[1:], text='{"solvable": true, "walkthrough": []}')
        assert family(tmp_path / "b").data_hash() != before
        layout(tmp_path / "b", *changed.split("/")[1:])


def test_what_the_official_loader_skips_is_skipped(tmp_path):
    before = panels(small_release(tmp_path))["seen"]
    layout(tmp_path, "valid_seen", "pick_and_place_with_movable_recep-Mug-None-Shelf-1")
    layout(tmp_path, "valid_seen", "pick_and_place_simple-AppleSliced-None-Shelf-1")
    layout(tmp_path, "valid_seen", "pick_and_place_simple-Cup-None-Shelf-1", text='{"solvable": false}')
    layout(tmp_path, "valid_seen", "pick_and_place_simple-Pan-None-Shelf-1", text="{}")
    assert panels(tmp_path)["seen"] == before


def test_missing_games_are_said_plainly(tmp_path):  # case D4
    path = layout(small_release(tmp_path), "train", "pick_and_place_simple-Pot-None-Shelf-7")
    path.unlink()
    with pytest.warns(UserWarning) as caught:
        made = family(tmp_path)
        made.panels()
    assert [str(w.message) for w in caught] == list(made.notes)
    assert any("valid_seen: 0 of 140 official games; it lacks look_at_obj_in_light-AlarmClock-None-DeskLamp-" in n for n in made.notes)
    assert any("it has, beyond the official ones, look_at_obj_in_light-Mug-None-Shelf-0/trial_1" in n for n in made.notes)
    assert any("1 trial folders have no game.tw-pddl: pick_and_place_simple-Pot-None-Shelf-7/trial_1" in n for n in made.notes)
    task_id = "alfworld/train/pick_and_place_simple-Pot-None-Shelf-7/trial_1"
    with pytest.raises(GameFileError, match=task_id):
        made.make(task_id)


def test_missing_folders_and_too_few_games_are_named(tmp_path):
    with pytest.raises(GameFileError, match="nowhere.*json_2.1.1"):
        family(tmp_path / "nowhere")
    layout(tmp_path, "train", "pick_and_place_simple-Mug-None-Shelf-1")
    with pytest.raises(GameFileError, match="has 1 games, but .* stage1 6 . train 12 . dev 6 = 24"):
        panels(tmp_path)
    with pytest.raises(GameFileError, match="the split valid_seen is missing"):
        panels(tmp_path, panel_sizes=SIZES | {"stage1": 0, "train": 0, "dev": 0})


@pytest.mark.parametrize("task_id", ["household/pick_and_place_simple-Mug-Shelf-0001", "alfworld/valid_seen/../x", "alfworld/test/a/b"])
def test_a_wrong_task_id_is_named_with_official_games(tmp_path, task_id):
    with pytest.raises(GameFileError, match="is not a task id") as error:
        family(small_release(tmp_path)).make(task_id)
    assert task_id in str(error.value)


def test_real_splits_have_their_official_counts(real_games):  # case D4
    made = panels(real_games)
    kinds = {name: Counter(i.split("/")[2].split("-")[0] for i in made[name].task_ids) for name in ("seen", "unseen")}
    assert [kinds["seen"][t] for t in TASK_TYPES] == [35, 13, 27, 16, 25, 24]
    assert [kinds["unseen"][t] for t in TASK_TYPES] == [24, 18, 31, 23, 21, 17]
    assert (len(made["seen"].task_ids), len(made["unseen"].task_ids)) == (140, 134)


def test_real_walkthroughs_and_oracle_plans_win_and_types_agree(real_games):
    made = family(real_games, max_steps=100)
    ids = panels(real_games)
    for task_id in (*ids["seen"].task_ids, *ids["unseen"].task_ids, *ids["train"].task_ids):
        env = made.make(task_id)
        assert env.task_type == task_id.split("/")[2].split("-")[0]
        assert env.reset().endswith(f"Your task is to: {env.goal}")
        walkthrough = load_game(made.root.joinpath(*task_id.split("/")[1:], "game.tw-pddl")).walkthrough
        plan = made.oracle_plan(env)
        assert len(plan) <= len(walkthrough)
        for commands in (walkthrough, plan):
            env.reset()
            results = [env.step(c) for c in commands]
            assert all(r.info.admissible for r in results), task_id
            assert [r.info.won for r in results] == [False] * (len(results) - 1) + [True], task_id


def test_real_games_random_walks_list_what_works(real_games):
    made = family(real_games, max_steps=10**6)
    rng = random.Random(0)
    shared = 0
    for task_id in panels(real_games)["unseen"].task_ids[:12]:
        env = made.make(task_id)
        shared += any(len(here) > 1 for here in env.world.at_place)
        for _ in range(60):
            commands = env.admissible()
            assert all(env.clone().step(c).info.admissible for c in rng.sample(commands, min(8, len(commands))))
            env.step(rng.choice(commands))
            if env.done:
                break
    assert shared >= 6  # receptacles that share a place occur in most real rooms


def test_real_games_the_expert_and_its_skills(real_games):
    made = family(real_games, max_steps=50)
    rng = np.random.default_rng(0)
    words = set(made.vocabulary())
    wins, lengths = [], []
    for task_id in panels(real_games)["unseen"].task_ids[:60]:
        first = made.demonstrate(made.make(task_id), rng, 0.0)
        skill = made.hindsight_skill(first.goal, first.observations, first.actions, first.success)
        assert len(skill.split()) <= 30 and set(skill.split()) <= words
        second = made.demonstrate(made.make(task_id), rng, 0.0, skill)
        wins.append(second.success)
        lengths.append(len(first.actions) - len(second.actions))
    assert np.mean(wins) > 0.95 and np.mean(lengths) > 3
