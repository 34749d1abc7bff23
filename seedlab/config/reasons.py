"""Why a preset differs from the paper, key by key; data only.

A reason speaks for the preset's own value.  A value that a user sets on top has none until it is written here.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

_TINY = ("tiny", "micro", "alfworld-tiny")
_LAPTOP_SIZE = "sized for minutes on two CPU cores"
_MICRO_SIZE = "a test of faults: every phase in seconds"
_MICRO_TERM = "a test of faults: every term of the loss has a gradient in every update"
_CODE = "value of the public code"

# (preset patterns, key, reason); the first match counts.
REASONS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    # micro: before the patterns of every preset, as its reasons differ
    (("micro",), "analyzer.drop_unusable", _MICRO_TERM),
    (("micro",), "objective.entropy_coef", _MICRO_TERM),
    (("micro",), "objective.invalid_penalty", _MICRO_TERM),
    (("micro",), "stage2.learning_rate", _MICRO_TERM),
    # every preset
    (("*",), "objective.kl_estimator",
     "k3 in the loss, as in the public code: it descends KL(reference, policy); k2 is offered, k1 has no gradient"),
    (("*",), "objective.dual_clip", "3.0 as in the public code: bounds the loss of a negative advantage at a large ratio"),
    (("*",), "analyzer.drop_unusable",
     "a missing or broken skill teaches nothing; its trajectory leaves the OPD term and is counted, as in the public code"),
    (("*",), "analyzer.min_words", "fewer than five words is no skill, as in the public code"),
    (("*",), "analyzer.max_copied_fraction", "a skill copied from the transcript would teach the policy its own trajectory"),
    # micro
    (("micro",), "env.max_steps", _MICRO_SIZE),
    (("micro",), "env.panel_sizes.*", _MICRO_SIZE),
    (("micro",), "env.panel_limits", _MICRO_SIZE),
    (("micro",), "stage1.*", _MICRO_SIZE),
    (("micro",), "stage2.updates", _MICRO_SIZE),
    (("micro",), "stage2.tasks_per_update", _MICRO_SIZE),
    (("micro",), "stage2.group_size", _MICRO_SIZE),
    # the tiny policy on official games
    (("alfworld-tiny",), "env.max_steps",
     "the scripted expert needs nine steps on average and 19 in nine games of ten with a fifth of stray commands; longer episodes only repeat a mistake"),
    (("alfworld-tiny",), "env.panel_sizes.*", "1,200 train games suffice, 600 of them for demonstrations alone"),
    (("alfworld-tiny",), "stage1.tasks", _LAPTOP_SIZE),
    (("alfworld-tiny",), "stage1.rollouts_per_task", _LAPTOP_SIZE),
    # the from-scratch policy
    (_TINY, "model.path", "a from-scratch policy of under a million parameters needs no GPU and no model hub"),
    (_TINY, "env.data", "generated rooms need no download"),
    (_TINY, "env.max_steps", "rooms of six to nine receptacles: most successes need fewer than ten steps"),
    (_TINY, "env.layout", "one row per trajectory: a single forward pass scores all its steps"),
    (_TINY, "env.history_window", "the whole conversation fits into the context"),
    (_TINY, "env.panel_sizes.*", _LAPTOP_SIZE),
    (_TINY, "stage2.updates", _LAPTOP_SIZE),
    (_TINY, "stage2.tasks_per_update", _LAPTOP_SIZE),
    (_TINY, "stage2.learning_rate", "from-scratch weights of this size learn at 3e-4; 1e-3 was worse"),
    (_TINY, "rollout.max_response_tokens", "a response is the bare command, one token per word"),
    (_TINY, "rollout.max_prompt_tokens", "one token per word and short observations"),
    (_TINY, "external.kind", "the scripted analyzer needs neither key nor network"),
    (_TINY, "stage1.transcript_weight", "from-scratch weights forget how to act while they learn to write skills"),
    (_TINY, "stage1.replay_ratio", "without replay the policy stops following skills; an instruct model brings that along"),
    # one GPU
    (("gpu1/*",), "stage2.tasks_per_update", "a quarter of the paper's batch, on one GPU instead of eight"),
    # the public code
    (("authors/*",), "stage2.updates", _CODE),
    (("authors/*",), "env.success_reward", f"{_CODE}; it matters only where the advantage is not divided by its deviation"),
    (("authors/*",), "external.max_tokens", _CODE),
    (("authors/*",), "objective.entropy_coef", _CODE),
    (("authors/*",), "objective.kl_coef", _CODE),
    (("authors/*",), "objective.advantage_scale", _CODE),
    (("authors/*",), "objective.advantage_ddof", _CODE),
    (("authors/*",), "objective.group_statistics", f"{_CODE}: a long failure weighs more than a short success"),
    (("authors/*",), "objective.group_of_one", _CODE),
    (("authors/*",), "objective.invalid_penalty", _CODE),
    (("authors/*",), "objective.teacher", f"{_CODE}: one scoring per update"),
)  # fmt: skip


def reason_for(preset: str, key: str) -> str | None:
    """The recorded reason of `preset` for its own value of `key`, or None."""
    for patterns, pattern, reason in REASONS:
        if fnmatchcase(key, pattern) and any(fnmatchcase(preset, p) for p in patterns):
            return reason
    return None
