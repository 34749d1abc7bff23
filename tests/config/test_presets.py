"""Presets, overrides, the exact JSON form and the hash."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedlab.config.names import schema_fields
from seedlab.config.preset_values import merge
from seedlab.config.presets import (
    PRESETS, QUICK_OVERRIDES, config_hash, from_json, load_config, own_assembly, parse_overrides, to_json,
)  # fmt: skip
from seedlab.config.schema import Config
from seedlab.errors import ConfigError

DESIGN_NAMES = (
    ["tiny", "micro", "alfworld-tiny", "gpu1/alfworld-qwen3-1.7b"]
    + [f"{who}/{env}-{model}" for who in ("paper", "authors") for env in ("alfworld", "webshop", "search")
       for model in ("qwen2.5-3b", "qwen2.5-7b", "qwen3-1.7b")]
    + [f"{who}/{env}-qwen2.5-vl-3b" for who in ("paper", "authors") for env in ("sokoban", "ezpoints")]
)  # fmt: skip


def error_of(preset, overrides=()):
    with pytest.raises(ConfigError) as caught:
        load_config(preset, overrides)
    return str(caught.value)


def test_presets_are_exactly_those_of_the_design():
    assert sorted(PRESETS) == sorted(DESIGN_NAMES)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_resolves_and_survives_json_exactly(name):
    config = load_config(name)
    assert config.preset == name
    assert from_json(to_json(config)) == config
    assert to_json(from_json(to_json(config))) == to_json(config)


@pytest.mark.parametrize("name", PRESETS)
def test_contexts_have_room_for_what_a_preset_asks(name):
    config = load_config(name)
    assert config.analyzer.max_prompt_tokens + config.analyzer.max_tokens <= config.model.context
    assert config.rollout.max_prompt_tokens + config.rollout.max_response_tokens <= config.model.context
    assert config.stage1.tasks <= config.env.panel_sizes["stage1"]
    assert config.stage2.tasks_per_update <= config.env.panel_sizes["train"]


# Table 5 of the paper: (updates, tasks, N, steps, response, prompt)
@pytest.mark.parametrize(
    "env, expected",
    [("alfworld", (150, 16, 8, 30, 512, 2048)), ("webshop", (150, 16, 8, 15, 512, 4096)), ("search", (150, 128, 8, 4, 512, 4096))],
)
def test_table_5(env, expected):
    for model in ("qwen2.5-3b", "qwen2.5-7b", "qwen3-1.7b"):
        c = load_config(f"paper/{env}-{model}")
        got = (
            c.stage2.updates, c.stage2.tasks_per_update, c.stage2.group_size, c.env.max_steps,
            c.rollout.max_response_tokens, c.rollout.max_prompt_tokens,
        )  # fmt: skip
        assert got == expected
        assert (c.stage2.learning_rate, c.objective.clip_low, c.objective.clip_high) == (1e-6, 0.2, 0.2)
        assert (c.objective.beta, c.objective.opd_coef, c.objective.kl_coef) == (5.0, 0.01, 0.01)
        assert (c.stage1.tasks, c.stage1.rollouts_per_task, c.stage1.epochs) == (180, 8, 3)
        # one pass over the training tasks of Table 3
        assert c.env.panel_sizes["train"] == c.stage2.updates * c.stage2.tasks_per_update


# Values of the public code: (updates, entropy, KL, invalid penalty, scale of the advantage, minibatch rows, return)
@pytest.mark.parametrize(
    "name, expected",
    [
        ("alfworld-qwen2.5-3b", (160, 0.001, 0.01, 0.1, "std", 256, 10.0)),
        ("webshop-qwen2.5-7b", (160, 0.001, 0.01, 0.1, "mean", 64, 10.0)),
        ("search-qwen3-1.7b", (150, 0.0, 0.001, 0.01, "std", 512, 1.0)),
        ("sokoban-qwen2.5-vl-3b", (150, 0.001, 0.01, 0.1, "std", 64, 10.0)),
        ("ezpoints-qwen2.5-vl-3b", (100, 0.001, 0.01, 0.1, "std", 128, 10.0)),
    ],
)
def test_values_of_the_public_code(name, expected):
    c = load_config(f"authors/{name}")
    o = c.objective
    got = (
        c.stage2.updates, o.entropy_coef, o.kl_coef, o.invalid_penalty, o.advantage_scale, c.stage2.minibatch_rows,
        c.env.success_reward,
    )  # fmt: skip
    assert got == expected
    assert (o.teacher, o.group_statistics, o.advantage_ddof, o.group_of_one) == ("once", "steps", 1, "identity")
    assert c.external.max_tokens == 1024


def test_tiny_adds_replay_and_the_paper_does_not():
    tiny, paper = load_config("tiny").stage1, load_config("paper/alfworld-qwen2.5-3b").stage1
    assert (tiny.transcript_weight, tiny.replay_ratio, tiny.replay_skill_fraction) == (0.3, 0.4, 0.7)
    assert (paper.transcript_weight, paper.replay_ratio) == (0.0, 0.0)


def test_quick_and_micro_are_as_small_as_promised():
    quick = load_config("tiny", QUICK_OVERRIDES)
    assert (quick.stage1.tasks, quick.stage1.rollouts_per_task, quick.stage2.updates) == (24, 4, 6)
    micro = load_config("micro")
    assert (micro.stage2.tasks_per_update, micro.stage2.group_size, micro.stage2.updates) == (2, 4, 2)
    assert (micro.stage1.tasks, micro.stage1.rollouts_per_task, micro.stage1.epochs) == (4, 2, 1)


def test_presets_are_not_shared_between_configurations():
    before = json.dumps(PRESETS, sort_keys=True)
    load_config("micro", ["env.panel_limits.seen=1", "stage2.updates=9"])
    assert json.dumps(PRESETS, sort_keys=True) == before


def test_overrides_win_over_the_method_wherever_the_method_stands():
    for overrides in (["objective.opd_coef=0.5", "method=grpo"], ["method=grpo", "objective.opd_coef=0.5"]):
        config = load_config("tiny", overrides)
        assert (config.method, config.initial, config.objective.opd_coef) == ("grpo", "base", 0.5)
        assert own_assembly(config) == {"objective.opd_coef": (0.0, 0.5)}


def test_own_assembly_is_empty_without_changes_to_the_method():
    assert own_assembly(load_config("authors/search-qwen2.5-3b", ["seed=3", "stage2.updates=2"])) == {}


def test_dictionaries_and_dotlists_mean_the_same():
    dotlist = load_config("tiny", ["stage2.updates=3", "env.panel_limits.seen=5", "evaluation.panels=[seen]"])
    assert dotlist == load_config("tiny", {"stage2.updates": 3, "env": {"panel_limits": {"seen": 5}}, "evaluation.panels": ["seen"]})
    assert (dotlist.stage2.updates, dotlist.env.panel_limits, dotlist.evaluation.panels) == (3, {"seen": 5}, ("seen",))


def test_one_rule_for_minibatches_replaces_the_other():
    assert load_config("tiny", ["stage2.minibatch_rows=8"]).stage2.minibatches is None
    assert load_config("paper/search-qwen2.5-3b", ["stage2.minibatches=4"]).stage2.minibatch_rows is None
    assert "exactly one" in error_of("tiny", ["stage2.minibatch_rows=8", "stage2.minibatches=2"])


@pytest.mark.parametrize(
    "overrides, expected",
    [
        (["stage2.update=6"], "unknown key 'stage2.update'; did you mean 'stage2.updates'?"),
        (["group_size=4"], "unknown key 'group_size'; did you mean 'stage2.group_size'?"),
        (["objective.lambda_opd=1"], "unknown key 'objective.lambda_opd'"),
        (["method=grpoo"], "unknown method 'grpoo'; did you mean 'grpo'?"),
        (["method=react"], "method 'react' is known but not built yet"),
        (["stage2.updates=many"], "stage2.updates='many': input should be a valid integer"),
        (["stage2.updates=true"], "stage2.updates=True: input should be a valid integer"),
        (["stage2.updates=2.5"], "stage2.updates=2.5: input should be a valid integer"),
        (["stage2.group_size=0"], "stage2.group_size=0: input should be greater than 0"),
        (["env.receptacles=[6,many]"], "env.receptacles[1]='many': input should be a valid integer"),
        (["store.tokens=some"], "store.tokens='some': input should be 'all' or 'none', or input should be a valid integer"),
        (["objective.beta=.inf"], "objective.beta=inf: input should be a finite number"),
        (["stage2=3"], "stage2 is a section, not a value"),
        (["rollout.top_p=0.9"], "rollout.top_p and rollout.top_k renormalise probabilities"),
        (["objective.kl_estimator=k1"], "k1 has zero expected gradient"),
        (["stage2.updates"], "'stage2.updates' is not an override"),
        (["env.data=["], "'env.data=[' cannot be read"),
        (["preset=micro"], "preset cannot be overridden"),
        (["cluster.gpus=8", "cluster.tensor_parallel=3"], "cluster.tensor_parallel=3 does not divide the 8 GPUs"),
        (["method=3"], "method=3: a method is a name"),
    ],
)
def test_the_error_names_the_key(overrides, expected):
    assert expected in error_of("tiny", overrides)


def test_an_unknown_preset_gets_a_suggestion():
    assert "did you mean 'paper/alfworld-qwen2.5-3b'?" in error_of("paper/alfworld-qwen2.5-3B")


def test_text_instead_of_a_list_is_refused():
    assert "a list of key=value" in error_of("tiny", "stage2.updates=3")


def test_from_json_names_its_source():
    good = json.loads(to_json(load_config("tiny")))
    with pytest.raises(ConfigError, match="runs/a/config.json is not JSON"):
        from_json("{", "runs/a/config.json")
    with pytest.raises(ConfigError, match="schema_version 7; this seedlab reads version 1"):
        from_json(json.dumps(good | {"schema_version": 7}), "x")
    with pytest.raises(ConfigError, match="x: unknown key 'nonsense'"):
        from_json(json.dumps(good | {"nonsense": 1}), "x")
    with pytest.raises(ConfigError, match="x holds list"):
        from_json("[]", "x")


def test_the_hash_names_a_cell():
    base = load_config("tiny")
    assert re.fullmatch(r"[0-9a-f]{16}", config_hash(base))
    assert config_hash(base) == config_hash(from_json(to_json(base)))
    assert config_hash(base) != config_hash(load_config("tiny", ["seed=1"]))
    assert config_hash(base, exclude_seed=True) == config_hash(load_config("tiny", ["seed=1"]), exclude_seed=True)
    assert config_hash(base, True) != config_hash(load_config("tiny", ["objective.beta=10"]), True)


def test_the_hash_leaves_out_where_a_run_computes():
    assert config_hash(load_config("tiny", ["cluster.gpus=8", "cluster.sft_zero_stage=3"])) == config_hash(load_config("tiny"))
    # another sampler draws other trajectories
    assert config_hash(load_config("tiny", ["cluster.generator=vllm"])) != config_hash(load_config("tiny"))


@pytest.mark.parametrize("name", PRESETS)
def test_cluster_presets_use_all_eight_gpus_in_both_stages(name):
    config = load_config(name)
    cluster = config.cluster
    if config.engine == "verl":
        assert (cluster.world_size, cluster.gpus, cluster.gpu_memory_gb, cluster.sleep) == (8, 8, 80.0, True)
        assert cluster.sft_zero_stage >= 2 and cluster.generator == "vllm"
        assert (config.model.device, config.model.attention, config.model.dtype) == ("cuda", "sdpa", "bfloat16")
        assert config.stage1.batch_size % cluster.world_size == 0
        # every GPU gets the same number of episodes, and every minibatch the same number of rows
        assert config.stage2.tasks_per_update * config.stage2.group_size % cluster.world_size == 0
        assert config.stage2.minibatch_rows % cluster.world_size == 0
    else:
        assert (cluster.world_size, cluster.sft_zero_stage, cluster.generator) == (1, 0, "local")


@given(st.floats(1e-12, 1e3), st.integers(1, 10**9), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_value_survives_json(rate, updates, path):
    config = load_config("tiny", {"stage2.learning_rate": rate, "stage2.updates": updates, "model.path": path})
    again = from_json(to_json(config))
    assert again == config
    assert (again.stage2.learning_rate, again.model.path) == (rate, path)


def test_merge_leaves_its_arguments_alone_and_the_later_one_wins():
    left, right = {"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4}
    assert merge(left, right) == {"a": {"b": 1, "c": 3}, "d": 4}
    assert (left, right) == ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}, "d": 4})


def test_overrides_may_be_repeated_but_not_contradict_each_other():
    assert parse_overrides(["seed=1", "stage2.updates=2", "seed=1"]) == {"seed": 1, "stage2": {"updates": 2}}
    with pytest.raises(ConfigError, match="seed is given twice with different values: seed=1 and seed=3"):
        parse_overrides(["seed=1", "stage2.updates=2", "seed=3"])
    with pytest.raises(ConfigError, match="stage2.updates is given twice"):
        parse_overrides(["stage2.updates=2", "stage2={updates: 3}"])


def test_every_key_has_its_sentence():
    assert [key for key, field in schema_fields(Config) if not field.description] == []


def test_committed_results_are_known_by_their_hash():
    """A key that came later, at a default that changes nothing, is in no hash: else each finished cell would be run again."""
    rows = [json.loads(line) for file in (Path(__file__).parents[2] / "results").glob("*.jsonl") for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if "config" in row]
    assert len(rows) > 10
    for row in rows:
        config = from_json(json.dumps(row["config"]))
        assert config_hash(config) == row["config_hash"], "a new key of the schema has to stand in _LATER of config/presets.py"
        assert config_hash(config, exclude_seed=True) == row["cell_hash"]
    told, plain = (load_config("tiny", ["method=grpo", f"rollout.skill={skill}"]) for skill in ("library", "none"))
    assert config_hash(told) != config_hash(plain)
