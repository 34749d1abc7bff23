"""The five panels: disjoint, balanced, with held-out combinations, and cut as the configuration says."""

from collections import Counter
from itertools import combinations

import pytest

from seedlab.config.schema import EnvConfig
from seedlab.envs import FamilyBase, NoScriptedAnalyzer, make_family
from seedlab.envs.base import EnvironmentSettingsError
from seedlab.envs.household.goals import TASK_TYPES
from seedlab.envs.household.tasks import PANELS, parse_task_id, split_combinations
from seedlab.errors import UserError


def panels(**settings):
    return make_family(EnvConfig(**settings)).panels()


def combos(panel):
    return {parse_task_id(task_id) for task_id in panel.task_ids}


def test_sizes_and_pairwise_disjoint_ids_and_rooms():
    family = make_family(EnvConfig())
    made = family.panels()
    assert {name: len(p.task_ids) for name, p in made.items()} == EnvConfig().panel_sizes
    for a, b in combinations(made.values(), 2):
        assert not set(a.task_ids) & set(b.task_ids)
    rooms = {}
    for name in ("train", "seen"):
        worlds = (family.make(i).world for i in made[name].task_ids)
        rooms[name] = {(w.intro, w.objects, w.start_contents) for w in worlds}
    assert not rooms["train"] & rooms["seen"]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_unseen_holds_out_combinations_of_every_type(seed):
    made = panels(panel_seed=seed)
    elsewhere = set().union(*(combos(made[name]) for name in ("stage1", "train", "dev", "seen")))
    assert not combos(made["unseen"]) & elsewhere
    assert {kind for kind, _, _ in combos(made["unseen"])} == set(TASK_TYPES)
    assert combos(made["seen"]) <= combos(made["train"])
    for task_type, (kept, held) in split_combinations(seed).items():
        assert held and not set(kept) & set(held)
        assert 0.15 <= len(held) / (len(kept) + len(held)) <= 0.25
        if task_type != "look_at_obj_in_light":  # there each object occurs once: with the lamp
            assert {o for o, _ in held} <= {o for o, _ in kept} and {r for _, r in held} <= {r for _, r in kept}


def test_types_alternate_in_every_panel():
    for panel in panels().values():
        kinds = [parse_task_id(i)[0] for i in panel.task_ids]
        assert kinds == [TASK_TYPES[i % 6] for i in range(len(kinds))]


def test_growing_one_panel_changes_no_other_and_keeps_its_start():
    small = panels()
    large = panels(panel_sizes={"stage1": 180, "train": 900, "dev": 96, "seen": 96, "unseen": 96})
    assert large["train"].task_ids[:600] == small["train"].task_ids
    assert large["dev"] == small["dev"]


def test_limits_and_train_fraction_keep_the_first_ids():
    full = panels()
    cut = panels(panel_limits={"dev": 7, "train": 200}, train_fraction=0.25)
    assert cut["dev"].task_ids == full["dev"].task_ids[:7]
    assert cut["train"].task_ids == full["train"].task_ids[:150]
    assert cut["seen"] == full["seen"]
    assert cut["dev"].hash != full["dev"].hash


def test_demonstrations_are_a_panel_of_their_own_where_they_have_a_size():
    plain, more = panels(), panels(panel_sizes=EnvConfig().panel_sizes | {"demonstrations": 60})
    shown = more.pop("demonstrations")
    assert more == plain and len(shown.task_ids) == 60
    assert not set(shown.task_ids) & {i for p in plain.values() for i in p.task_ids}
    assert combos(shown) <= combos(plain["train"])


def test_demonstrations_show_whole_panels_whatever_is_cut():
    cut = dict(panel_limits={"train": 7}, train_fraction=0.25)
    assert make_family(EnvConfig(**cut)).demonstration_tasks() == panels()["train"].task_ids
    sizes = EnvConfig().panel_sizes | {"demonstrations": 9}
    apart = make_family(EnvConfig(panel_sizes=sizes, **cut))
    assert apart.demonstration_tasks() == panels(panel_sizes=sizes)["demonstrations"].task_ids
    assert apart.data_hash() is None  # settings alone make generated rooms


def test_panel_seed_changes_the_panels():
    assert panels(panel_seed=1)["train"].hash != panels()["train"].hash


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(panel_sizes={"train": 3}), "missing: stage1, dev, seen, unseen"),
        (dict(panel_sizes=dict.fromkeys(PANELS, 1) | {"test": 3}), "may give demonstrations; unknown: test"),
        (dict(panel_sizes=dict.fromkeys(PANELS, 1) | {"demonstrations": -1}), "env.panel_sizes.demonstrations"),
        (dict(panel_sizes=dict.fromkeys(PANELS, 1) | {"dev": -1}), "env.panel_sizes.dev"),
        (dict(panel_limits={"test": 3}), "env.panel_limits names 'test'"),
        (dict(panel_limits={"dev": -3}), "env.panel_limits.dev"),
    ],
)
def test_bad_panel_settings_are_named(settings, message):
    with pytest.raises(EnvironmentSettingsError, match=message):
        panels(**settings)


def test_an_unknown_environment_gets_a_suggestion():
    with pytest.raises(ValueError, match="did you mean 'household'.*known: household") as error:
        make_family(EnvConfig(name="houshold"))
    assert isinstance(error.value, UserError)


def test_a_family_without_scripted_helpers_says_so():
    family = FamilyBase()
    assert family.has_scripted_analyzer is False and make_family(EnvConfig()).has_scripted_analyzer is True
    for call in (
        lambda: family.hindsight_skill("", [], [], True), lambda: family.skill_agreement("", ""),
        lambda: family.demonstrate(None, None, 0.0), lambda: family.demonstration_tasks(), lambda: family.oracle_plan(None),
        lambda: family.oracle_distance(None), lambda: family.progress(None, ""), lambda: family.vocabulary(),
    ):  # fmt: skip
        with pytest.raises(NoScriptedAnalyzer, match="environment 'unnamed' has no"):
            call()


def test_counts_per_type_are_even():
    assert set(Counter(parse_task_id(i)[0] for i in panels()["unseen"].task_ids).values()) == {16}
