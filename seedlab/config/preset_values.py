"""Presets as data: what each differs in from the schema's defaults, which are nearly the embedded default `tiny`.

``paper/…`` follows the paper, and where the paper is silent the family's common launchers; ``authors/…`` takes the
values of the public code.  :mod:`seedlab.config.reasons` has a reason for every difference from the paper.
"""

from __future__ import annotations

from typing import Any

Settings = dict[str, Any]


def merge(*layers: Settings) -> Settings:
    """A new nested dictionary; later layers win, key by key."""
    out: Settings = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, dict) and isinstance(out.get(key), dict)
            out[key] = merge(out[key], value) if both else (merge(value) if isinstance(value, dict) else value)
    return out


# --- the laptop -------------------------------------------------------------------------------------------------------

# From-scratch weights forget how to act while they learn to write skills; replay keeps it (zero in the paper).
_TINY: Settings = {
    "env": {"panel_sizes": {"stage1": 180, "train": 2400, "dev": 96, "seen": 96, "unseen": 96}},
    "stage1": {"transcript_weight": 0.3, "replay_ratio": 0.4},
    # small micro-batches keep two processes at once under 4 GB, and the tensors of a layer in the processor's cache
    "stage2": {"micro_batch_tokens": 4096, "log_gradient_terms_every": 12},
}
# Fewer tokens for the same tasks and a smaller policy, so that the demo's ten trainings fit into a quarter of an hour; the
# batches are smaller too, so that the base policy sees as many steps.  docs/results.md compares recipes.
_SHORT: Settings = {
    "tiny": {"layers": 2, "documents": 4400, "batch_tokens": 1280, "sort_window": 64},
    "env": {"prompt": "brief", "max_steps": 12},
}

# The whole method in seconds, for tests of faults.  Its policy never wins and writes no usable skill; the penalty, the
# kept skills and the entropy term give every term of the loss a gradient in every update, so that a run which
# repeats exactly has something to repeat.
_MICRO: Settings = {
    "tiny": {"hidden": 32, "layers": 2, "heads": 2, "kv_heads": 1, "intermediate": 64, "documents": 80, "batch_tokens": 4096},
    "env": {
        "max_steps": 6,
        "panel_sizes": {"stage1": 8, "train": 24, "dev": 6, "seen": 6, "unseen": 6},
        "panel_limits": {"dev": 4, "seen": 4, "unseen": 4},
    },
    "stage1": {"tasks": 4, "rollouts_per_task": 2, "epochs": 1, "batch_size": 4},
    "stage2": {
        "updates": 2, "tasks_per_update": 2, "group_size": 4, "checkpoint_every": 1, "log_gradient_terms_every": 1,
        "learning_rate": 3e-3,
    },
    "analyzer": {"drop_unusable": False},
    "objective": {"invalid_penalty": 0.5, "entropy_coef": 0.01},
    "evaluation": {"batch": 8},
}  # fmt: skip

# The tiny policy on official games: long lists want terse prompts, and copying from them as many key-value heads as
# queries.  The panels that are cut from the train split take 1,200 games, so that a part of the release is enough.
_ALFWORLD_TINY: Settings = {
    "model": {"context": 1536},
    "tiny": {"kv_heads": 4, "documents": 4600, "sort_window": 64},
    "env": {
        "data": "$ALFWORLD_DATA",
        "max_steps": 20,
        "prompt": "terse",
        "panel_sizes": {"stage1": 180, "train": 324, "dev": 96, "demonstrations": 600, "seen": 140, "unseen": 134},
    },
    "rollout": {"max_prompt_tokens": 1280},
    "analyzer": {"max_prompt_tokens": 1472},
    "stage1": {"tasks": 90, "rollouts_per_task": 4},
    "stage2": {"updates": 12, "checkpoint_every": 2, "log_gradient_terms_every": 0},
}

# `seedlab demo --quick`: the whole path in a short time, one seed, no claim on learning.
QUICK_OVERRIDES: Settings = {
    "tiny": {"documents": 1500},
    "env": {"panel_limits": {"dev": 24, "seen": 24, "unseen": 24}},
    "stage1": {"tasks": 24, "rollouts_per_task": 4},
    "stage2": {"updates": 6},
}


# --- real models ------------------------------------------------------------------------------------------------------

# What every preset with an instruct model shares: the paper's values, or those common to the family's launchers.
_INSTRUCT: Settings = {
    "threads": 8,
    "model": {"dtype": "bfloat16", "device": "cuda", "gradient_checkpointing": True, "context": 32768},
    "env": {"layout": "step", "prompt": "instruct", "show_admissible": True, "restate": False},
    "rollout": {"max_response_tokens": 512},
    # the length check is the 4,096 tokens of the decoding: a limit in words would be a filter that the paper lacks
    "analyzer": {"contract": "json", "max_tokens": 4096, "max_words": 4096, "max_prompt_tokens": 28160},
    "external": {"kind": "openai"},
    "stage1": {
        "rollout_temperature": 0.4, "learning_rate": 5e-6, "min_learning_rate_ratio": 0.0, "batch_size": 8,
    },
    "stage2": {"updates": 150, "tasks_per_update": 16, "minibatches": None, "learning_rate": 1e-6, "checkpoint_every": 10},
    "evaluation": {"batch": 128},
}  # fmt: skip
# Eight 80 GB GPUs in both stages; docs/plan.md has the arithmetic behind each of these.
_CLUSTER: Settings = {
    "engine": "verl",
    "stage2": {"micro_batch_tokens": 16384},
    "cluster": {"gpus": 8, "generator": "vllm", "sft_zero_stage": 2},
}

_MODELS: dict[str, Settings] = {
    "qwen2.5-3b": {"model": {"path": "Qwen/Qwen2.5-3B-Instruct"}},
    "qwen2.5-7b": {"model": {"path": "Qwen/Qwen2.5-7B-Instruct"}},
    # our prompt asks for its own think tags, so the template's thinking mode stays off
    "qwen3-1.7b": {"model": {"path": "Qwen/Qwen3-1.7B", "enable_thinking": False}},
    "qwen2.5-vl-3b": {"model": {"path": "Qwen/Qwen2.5-VL-3B-Instruct"}},
}

_ENVIRONMENTS: dict[str, Settings] = {
    "alfworld": {
        "env": {
            "name": "household",
            "data": "$ALFWORLD_DATA",
            "max_steps": 30,
            "history_window": 5,
            "panel_sizes": {"stage1": 180, "train": 2400, "dev": 96, "seen": 140, "unseen": 134},
        },
        "rollout": {"max_prompt_tokens": 2048},
        "stage2": {"minibatch_rows": 256},
    },
    "webshop": {
        "env": {
            "name": "webshop",
            "max_steps": 15,
            "history_window": 2,
            "panel_sizes": {"stage1": 180, "train": 2400, "dev": 128, "seen": 0, "unseen": 128},
        },
        "rollout": {"max_prompt_tokens": 4096},
        "stage2": {"minibatch_rows": 64},
        "evaluation": {"panels": ["unseen"]},
    },
    "search": {
        "env": {
            "name": "search",
            "max_steps": 4,
            "history_window": 4,
            "show_admissible": False,
            "panel_sizes": {"stage1": 180, "train": 19200, "dev": 512, "seen": 0, "unseen": 51713},
        },
        "rollout": {"max_prompt_tokens": 4096},
        "stage2": {"tasks_per_update": 128, "minibatch_rows": 512},
        "evaluation": {"panels": ["unseen"], "batch": 512},
    },
    "sokoban": {
        "env": {
            "name": "sokoban",
            "max_steps": 15,
            "history_window": 0,
            "show_admissible": False,
            "panel_sizes": {"stage1": 180, "train": 4800, "dev": 128, "seen": 0, "unseen": 128},
        },
        "rollout": {"max_prompt_tokens": 1024},
        "analyzer": {"max_tokens": 2048, "max_words": 2048},
        "stage1": {"learning_rate": 2e-6},
        "stage2": {"tasks_per_update": 32, "minibatch_rows": 64},
        "evaluation": {"panels": ["unseen"]},
    },
    "ezpoints": {
        "env": {
            "name": "ezpoints",
            "max_steps": 8,
            "history_window": 0,
            "show_admissible": False,
            "panel_sizes": {"stage1": 180, "train": 2400, "dev": 128, "seen": 0, "unseen": 128},
        },
        "rollout": {"max_prompt_tokens": 1024},
        "analyzer": {"max_tokens": 2048, "max_words": 2048},
        "stage1": {"learning_rate": 2e-6},
        "stage2": {"minibatch_rows": 128},
        "evaluation": {"panels": ["unseen"]},
    },
}

# --- the public code --------------------------------------------------------------------------------------------------

_AUTHORS: Settings = {
    "env": {"success_reward": 10.0, "history_lines": "bracketed"},
    "analyzer": {"max_copied_fraction": 1.0},
    "external": {"max_tokens": 1024},
    "stage2": {"updates": 160},
    "objective": {
        "entropy_coef": 0.001,
        "advantage_ddof": 1,
        "group_statistics": "steps",
        "group_of_one": "identity",
        "invalid_penalty": 0.1,
        "teacher": "once",
    },
}
_AUTHORS_BY_ENVIRONMENT: dict[str, Settings] = {
    "alfworld": {"env": {"task_line": "unless_stated", "list_help": False}},
    "webshop": {"env": {"fallback_characters": 20}, "objective": {"advantage_scale": "mean"}},
    "search": {
        "env": {"success_reward": 1.0},
        "stage2": {"updates": 150},
        "objective": {"entropy_coef": 0.0, "kl_coef": 0.001, "invalid_penalty": 0.01},
    },
    "sokoban": {"stage2": {"updates": 150}},
    "ezpoints": {"stage2": {"updates": 100}},
}

_PAIRS = [(env, model) for env in ("alfworld", "webshop", "search") for model in ("qwen2.5-3b", "qwen2.5-7b", "qwen3-1.7b")]
_PAIRS += [(env, "qwen2.5-vl-3b") for env in ("sokoban", "ezpoints")]


def _build() -> dict[str, Settings]:
    presets: dict[str, Settings] = {
        "tiny": merge(_TINY, _SHORT),
        "micro": merge(_TINY, _MICRO),
        "alfworld-tiny": merge(_TINY, _ALFWORLD_TINY),
        # One 80 GB device: the paper's setting with a quarter of its tasks and of its minibatch.
        "gpu1/alfworld-qwen3-1.7b": merge(
            _INSTRUCT, _MODELS["qwen3-1.7b"], _ENVIRONMENTS["alfworld"],
            # 32 analyses at their limits would ask for 120 GB of keys and values
            {"stage2": {"tasks_per_update": 4, "minibatch_rows": 64}, "cluster": {"max_cache_tokens": 262144}},
        ),
    }  # fmt: skip
    for env, model in _PAIRS:
        presets[f"paper/{env}-{model}"] = merge(_INSTRUCT, _CLUSTER, _MODELS[model], _ENVIRONMENTS[env])
    for env, model in _PAIRS:
        paper = presets[f"paper/{env}-{model}"]
        presets[f"authors/{env}-{model}"] = merge(paper, _AUTHORS, _AUTHORS_BY_ENVIRONMENT[env])
    return presets


PRESETS: dict[str, Settings] = _build()
