"""Method bundles: the names of the paper, and what each sets."""

import re
from pathlib import Path

import pytest

from seedlab.config.diff import diff_against_paper
from seedlab.config.presets import PRESETS, load_config, own_assembly
from seedlab.errors import ConfigError
from seedlab.methods import METHODS, Bundle, get_method, register

PAPER_NAMES = {
    "vanilla", "skill-prompt", "grpo", "skill-grpo", "skill-grpo*", "opsd", "grpo+opsd", "opsd-kl", "grpo+opsd-kl",
    "skill-sd", "skill-sd/own", "rlsd", "sdar", "opid", "react", "gigpo", "seed", "seed/no-stage1", "seed/no-opd", "seed/static",
    "seed/shuffled", "seed/scripted",
}  # fmt: skip
OWN_NAMES = {"rloo", "gspo"}  # estimators that the paper does not compare
AVAILABLE = [name for name, bundle in METHODS.items() if bundle.available]


def switches(method):
    o = (c := load_config("tiny", {"method": method})).objective
    return (c.initial, c.stage1.enabled, o.rl_coef, o.opd_coef, o.beta, o.skill_from, o.opd_form, c.rollout.skill, c.evaluation.skill)


def test_every_method_of_the_paper_has_a_name():
    assert set(METHODS) == PAPER_NAMES | OWN_NAMES
    assert all(name == bundle.name for name, bundle in METHODS.items())


def test_switches_of_the_available_methods():
    table = {
        "vanilla": ("base", False, 1.0, 0.0, 5.0, "own"),
        "skill-prompt": ("base", False, 1.0, 0.0, 5.0, "own", "gate", "none", "library"),
        "grpo": ("base", False, 1.0, 0.0, 5.0, "own"),
        **dict.fromkeys(("gigpo", "rloo", "gspo"), ("base", False, 1.0, 0.0, 5.0, "own")),
        "opid": ("base", False, 1.0, 0.0, 5.0, "external"),
        "skill-grpo": ("base", False, 1.0, 0.0, 5.0, "own", "gate", "library", "none"),
        "skill-grpo*": ("base", False, 1.0, 0.0, 5.0, "own", "gate", "library", "library"),
        "opsd": ("base", False, 0.0, 0.01, 5.0, "static"),
        "grpo+opsd": ("base", False, 1.0, 0.01, 0.0, "static"),
        "opsd-kl": ("base", False, 0.0, 0.01, 5.0, "static", "log_ratio", "none", "none"),
        "grpo+opsd-kl": ("base", False, 1.0, 0.01, 5.0, "static", "log_ratio", "none", "none"),
        "skill-sd": ("base", False, 1.0, 0.001, 5.0, "static", "ratio_k3", "none", "none"),
        "skill-sd/own": ("base", False, 1.0, 0.001, 5.0, "own", "ratio_k3", "none", "none"),
        "rlsd": ("base", False, 1.0, 0.0, 5.0, "static"),
        "sdar": ("base", False, 1.0, 0.01, 5.0, "static"),
        "seed": ("stage1", True, 1.0, 0.01, 5.0, "own"),
        "seed/no-stage1": ("base", False, 1.0, 0.01, 5.0, "own"),
        "seed/no-opd": ("stage1", True, 1.0, 0.0, 5.0, "own"),
        "seed/static": ("stage1", True, 1.0, 0.01, 5.0, "static"),
        "seed/shuffled": ("stage1", True, 1.0, 0.01, 5.0, "shuffled"),
        "seed/scripted": ("stage1", True, 1.0, 0.01, 5.0, "scripted"),
    }
    usual = ("gate", "none", "none")  # form of distillation, skill in training prompts, skill in evaluation prompts
    assert {name: switches(name) for name in AVAILABLE} == {name: row if len(row) == 9 else row + usual for name, row in table.items()}
    assert [name for name in AVAILABLE if not load_config("tiny", {"method": name}).stage2.updates] == ["vanilla", "skill-prompt"]
    assert load_config("tiny", {"method": "seed/static"}).skills.library == "snapshot"


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


@pytest.fixture
def own_methods():
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def test_the_example_of_the_page_runs_as_printed(own_methods, capsys):
    page = (Path(__file__).parents[2] / "docs" / "extending_method.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "extending_method.md", "exec"), {})
    assert capsys.readouterr().out == re.search(r"# (seed/tied-only .*)\n", example).group(1) + "\n"
    config = load_config("paper/search-qwen2.5-3b", ["method=seed/tied-only"])
    assert (config.objective.where, config.initial) == ("tied", "stage1")
    assert own_assembly(config) == {}
    row = next(row for row in diff_against_paper(config) if row.key == "objective.where")
    assert row.reason == "method seed/tied-only: isolates what distillation adds where all outcomes of a group agree"


def test_a_bundle_that_does_not_fit_is_refused_and_forgotten(own_methods):
    with pytest.raises(ConfigError, match="method 'mine': unknown key 'objective.wher'; did you mean 'objective.where'?"):
        register(Bundle("mine", "", {"objective": {"wher": "tied"}}, ""))
    assert "mine" not in METHODS
    with pytest.raises(ConfigError, match="method 'grpo' exists already"):
        register(Bundle("grpo", "", {}, ""))


def test_the_page_of_methods_has_a_row_for_each_that_can_run():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \| (?:base|\$\\theta_\{sft\}\$) \|", page, re.M)
    assert sorted(name for row in rows for name in re.findall(r"`([^`]+)`", row)) == sorted(AVAILABLE)
