"""Method bundles: the names of the paper, and what each sets."""

import pytest

from seedlab.config.presets import PRESETS, load_config, own_assembly
from seedlab.errors import ConfigError
from seedlab.methods import METHODS, get_method

PAPER_NAMES = {
    "vanilla", "skill-prompt", "grpo", "skill-grpo", "skill-grpo*", "opsd", "grpo+opsd", "opsd-kl", "grpo+opsd-kl",
    "skill-sd", "rlsd", "sdar", "opid", "react", "gigpo", "seed", "seed/no-stage1", "seed/no-opd", "seed/static",
    "seed/shuffled", "seed/scripted",
}  # fmt: skip
AVAILABLE = [name for name, bundle in METHODS.items() if bundle.available]


def switches(method):
    o = (c := load_config("tiny", {"method": method})).objective
    return (c.initial, c.stage1.enabled, o.rl_coef, o.opd_coef, o.beta, o.skill_from)


def test_every_method_of_the_paper_has_a_name():
    assert set(METHODS) == PAPER_NAMES
    assert all(name == bundle.name for name, bundle in METHODS.items())


def test_switches_of_the_available_methods():
    assert {name: switches(name) for name in AVAILABLE} == {
        "vanilla": ("base", False, 1.0, 0.0, 5.0, "own"),
        "grpo": ("base", False, 1.0, 0.0, 5.0, "own"),
        "seed": ("stage1", True, 1.0, 0.01, 5.0, "own"),
        "seed/no-stage1": ("base", False, 1.0, 0.01, 5.0, "own"),
        "seed/no-opd": ("stage1", True, 1.0, 0.0, 5.0, "own"),
        "seed/shuffled": ("stage1", True, 1.0, 0.01, 5.0, "shuffled"),
        "seed/scripted": ("stage1", True, 1.0, 0.01, 5.0, "scripted"),
    }
    assert load_config("tiny", ["method=vanilla"]).stage2.updates == 0


@pytest.mark.parametrize("name", sorted(PAPER_NAMES - set(AVAILABLE)))
def test_a_method_that_is_not_built_says_what_it_needs(name):
    with pytest.raises(ConfigError, match="is known but not built yet: it needs .+"):
        get_method(name)


@pytest.mark.parametrize("name", AVAILABLE)
def test_a_method_applies_to_every_preset_without_becoming_an_own_assembly(name):
    for preset in PRESETS:
        config = load_config(preset, {"method": name})
        assert config.method == name
        assert own_assembly(config) == {}


def test_the_method_seed_changes_nothing_in_a_preset():
    # Presets are written for seed: naming it must not undo what a preset says, such as the public code's values.
    for preset in PRESETS:
        assert load_config(preset, ["method=seed"]) == load_config(preset)
    assert load_config("authors/search-qwen2.5-3b").objective.kl_coef == 0.001
