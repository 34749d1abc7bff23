"""Columns and types of the tables in a run folder: the interface that every reader relies on."""

from __future__ import annotations

import pyarrow as pa

_text, _flag, _count, _real, _float32 = pa.string(), pa.bool_(), pa.int32(), pa.float64(), pa.float32()

_SKILL = pa.schema([
    ("id", _text), ("trajectory", _text), ("text", _text), ("accepted", _flag), ("reason", _text), ("analyzer", _text),
    ("snapshot", _count), ("tokens", _count), ("raw", _text),
])  # fmt: skip

TABLES: dict[str, pa.Schema] = {
    # one row per trajectory of an update
    "trajectories": pa.schema([
        ("id", _text), ("update", _count), ("task", _text), ("task_type", _text), ("goal", _text), ("n", _count),
        ("seed", pa.int64()), ("return", _real), ("success", _flag), ("steps", _count), ("truncated", _flag),
        ("infra_failure", _text),  # empty where there was none
        ("skill", _text),  # id of its hindsight skill, empty where it has none
        ("tied", _flag), ("advantage", _real), ("final_observation", _text), ("prompt_skill", _text),
    ]),
    # one row per environment step
    "steps": pa.schema([
        ("trajectory", _text), ("step", _count), ("observation", _text), ("response", _text), ("action", _text),
        ("valid", _flag),  # had the required form and was a command that the environment listed
        ("parsed", _flag), ("admissible", _flag), ("finish", _text), ("reward", _real), ("kept_from", _count),
        ("holding", _text), ("progress", _real), ("admissible_commands", pa.list_(_text)),
        ("prompt_ids", pa.list_(_count)), ("response_ids", pa.list_(_count)),
        ("logprobs", pa.list_(_float32)), ("entropies", pa.list_(_float32)),
    ]),
    "skills": _SKILL,
    # further skills that a teacher read apart (objective.average_skills), under the trajectory that was taught
    "more_skills": _SKILL,
    # one row per critical step that an analyzer told (objective.critical_steps); `accepted`: its teacher read it
    "step_skills": pa.schema([("trajectory", _text), ("step", _count), ("text", _text), ("accepted", _flag), ("reason", _text)]),
    # one row per trajectory and place: the skill that stood in its prompts (`prompt`) or in its teacher's (`teacher`, `teacher of step 3`)
    "prompt_skills": pa.schema([
        ("trajectory", _text), ("task_type", _text), ("place", _text), ("source", _text), ("hash", _text), ("text", _text),
        ("prompts", _count), ("found", _count),  # prompts, and those whose ids really hold the text
    ]),
    # one row per sampled token, values at its first visit; NaN where a term does not apply
    "tokens": pa.schema([
        ("trajectory", _text), ("step", _count), ("position", _count), ("token_id", _count), ("text", _text),
        ("mask_policy", _flag), ("mask_opd", _flag), ("logp_rollout", _float32), ("logp_old", _float32),
        ("logp_student", _float32), ("logp_teacher", _float32), ("logp_ref", _float32), ("entropy", _float32),
        ("delta", _float32), ("gate", _float32), ("advantage", _float32), ("ratio", _float32), ("clipped", _flag),
        ("kl", _float32), ("net_coefficient", _float32), ("minibatch", _count),
    ]),
    # one row per evaluated episode
    "episodes": pa.schema([
        ("panel", _text), ("task", _text), ("task_type", _text), ("n", _count), ("return", _real), ("success", _flag),
        ("steps", _count), ("truncated", _flag), ("infra_failure", _text), ("inadmissible", _count),
    ]),
}  # fmt: skip
