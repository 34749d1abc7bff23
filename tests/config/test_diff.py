"""The difference from the paper: complete, explained, and failing where a reason is missing."""

import pytest

from seedlab.config.diff import code_questions, diff_against, diff_against_paper, values_of
from seedlab.config.names import schema_fields
from seedlab.config.presets import PRESETS, load_config
from seedlab.config.reasons import REASONS, reason_for
from seedlab.config.reference import PAPER, PUBLIC_CODE
from seedlab.config.schema import Config
from seedlab.errors import ConfigError
from seedlab.methods import METHODS


def keys(preset, overrides=()):
    return {row.key for row in diff_against_paper(load_config(preset, overrides))}


@pytest.mark.parametrize("preset", PRESETS)
def test_every_difference_of_every_preset_and_method_has_a_reason(preset):
    for method in (name for name, bundle in METHODS.items() if bundle.available):
        rows = diff_against_paper(load_config(preset, {"method": method}))
        assert [row.key for row in rows if not row.reason] == []


def test_the_paper_presets_differ_only_where_the_paper_is_not_followed_on_purpose():
    expected = {
        "objective.kl_estimator", "objective.dual_clip", "analyzer.drop_unusable", "analyzer.min_words",
        "analyzer.max_copied_fraction",
    }  # fmt: skip
    for preset in PRESETS:
        if preset.startswith("paper/"):
            assert keys(preset) == expected


def test_the_known_differences_of_paper_and_code_show():
    search = {row.key: (row.paper, row.this) for row in diff_against_paper(load_config("authors/search-qwen2.5-3b"))}
    assert search["objective.kl_coef"] == ("0.01", 0.001)
    assert "stage2.updates" not in search
    alfworld = {row.key: (row.paper, row.this) for row in diff_against_paper(load_config("authors/alfworld-qwen2.5-3b"))}
    assert alfworld["stage2.updates"] == ("150", 160)
    assert alfworld["objective.group_statistics"] == ("trajectories", "steps")


def test_a_value_set_on_top_is_unexplained_even_where_the_preset_has_a_reason():
    rows = {row.key: row.reason for row in diff_against_paper(load_config("tiny", ["stage2.updates=7", "objective.beta=10"]))}
    assert rows["stage2.updates"] is None
    assert rows["objective.beta"] is None
    assert rows["rollout.max_response_tokens"]


def test_an_override_back_to_the_paper_is_no_difference():
    assert "objective.kl_estimator" not in keys("tiny", ["objective.kl_estimator=k2"])


def test_the_method_explains_its_own_settings_only():
    rows = {row.key: row.reason for row in diff_against_paper(load_config("tiny", ["method=grpo", "objective.rl_coef=2"]))}
    assert rows["objective.opd_coef"].startswith("method grpo:")
    assert rows["initial"].startswith("method grpo:")
    assert rows["objective.rl_coef"] is None


def test_an_environment_without_a_column_is_named():
    config = load_config("tiny").model_copy(update={"env": load_config("tiny").env.model_copy(update={"name": "maze"})})
    with pytest.raises(ConfigError, match="no column for env.name='maze'"):
        diff_against_paper(config)


def test_references_and_reasons_name_real_keys():
    known = {key for key, _ in schema_fields(Config)} | set(values_of(load_config("paper/alfworld-qwen2.5-3b")))
    assert {key for column in PAPER.values() for key in column} <= known
    assert {key for question in PUBLIC_CODE for key in question.keys} <= known
    assert {key for _, key, _ in REASONS if "*" not in key} <= known


def test_no_reason_is_idle():
    used = set()
    for preset in PRESETS:
        for row in diff_against_paper(load_config(preset)):
            used.add(reason_for(preset, row.key))
    assert {reason for _, _, reason in REASONS} <= used


def test_code_questions_show_this_configurations_answers():
    answers = {question.question: values for question, values in code_questions(load_config("authors/webshop-qwen2.5-3b"))}
    assert answers["WebShop's advantage"] == {"objective.advantage_scale": "mean"}
    assert answers["place of the skill"] == {}


def test_between_presets_only_what_differs():
    rows = diff_against(load_config("tiny", ["seed=4"]), load_config("tiny"))
    assert [(row.key, row.this, row.paper) for row in rows] == [("seed", 4, 0)]
