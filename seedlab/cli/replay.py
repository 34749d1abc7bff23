"""A rollout as a file, and what differs when it is played again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from seedlab.episodes.records import Trajectory
from seedlab.errors import UserError
from seedlab.store.shapes import COUNT, FLAG, NUMBER, OBJECT, TEXT, check_fields, maybe, several, shown

_RECORD = {"preset": TEXT, "overrides": several(TEXT), "model": TEXT, "temperature": NUMBER, "trajectory": OBJECT}
_HASHES = {"config_hash": TEXT, "weights_hash": TEXT, "content_hash": TEXT}
_TRAJECTORY = {
    "id": TEXT, "task_id": TEXT, "task_type": TEXT, "goal": TEXT, "update": COUNT, "n": COUNT, "seed": COUNT, "steps": several(OBJECT),
    "final_observation": TEXT, "returned": NUMBER, "success": FLAG, "truncated": FLAG, "infra_failure": maybe(TEXT), "skill": maybe(OBJECT),
    "prompt_skill": TEXT,
}  # fmt: skip
_STEP = {
    "observation": TEXT, "response": TEXT, "action": TEXT, "prompt_ids": several(COUNT), "response_ids": several(COUNT), "logprobs": several(NUMBER),
    "entropies": several(NUMBER), "finish": TEXT, "parsed": FLAG, "admissible": FLAG, "reward": NUMBER, "kept_from": COUNT, "holding": TEXT,
    "admissible_commands": several(TEXT), "progress": maybe(NUMBER),
}  # fmt: skip
ADVICE = "save the rollout again with `seedlab rollout TASK --save FILE`"


@dataclass(frozen=True)
class SavedRollout:
    """What was played, and the trajectory as plain data.  The hashes are None in a file from before they were kept."""

    preset: str
    overrides: list[str]
    model: str
    temperature: float
    trajectory: dict
    config_hash: str | None
    weights_hash: str | None
    untouched: bool  # the content has the hash that was written with it


def record_of(preset: str, overrides: list[str], model: str, temperature: float, trajectory: Trajectory, config_hash: str, weights_hash: str) -> str:
    """The text of a saved rollout."""
    record = {
        "preset": preset, "overrides": overrides, "model": model, "temperature": temperature, "config_hash": config_hash,
        "weights_hash": weights_hash, "trajectory": asdict(trajectory),
    }  # fmt: skip
    return json.dumps(record | {"content_hash": _content_hash(json.loads(json.dumps(record)))})


def _content_hash(record: dict) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]


def read_rollout(file: str | Path) -> SavedRollout:
    """A saved rollout; UserError naming the file and the field that is missing or of a wrong type."""
    try:
        record = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{file} is not a saved rollout: it is no JSON ({error}); {ADVICE}") from error
    check_fields(record, _RECORD, file, optional=_HASHES, advice=ADVICE)
    trajectory = check_fields(record["trajectory"], _TRAJECTORY, f"{file}, trajectory", advice=ADVICE)
    for number, step in enumerate(trajectory["steps"]):
        check_fields(step, _STEP, f"{file}, trajectory.steps[{number}]", advice=ADVICE)
    if not 0 <= record["temperature"] <= 1e12:
        raise UserError(f"{file} is damaged: temperature is {record['temperature']}, and must be 0 or more; {ADVICE}")
    content = {key: value for key, value in record.items() if key != "content_hash"}
    untouched = record.get("content_hash") in (None, _content_hash(content))
    fields = ("preset", "overrides", "model", "temperature", "trajectory")
    return SavedRollout(*(record[key] for key in fields), record.get("config_hash"), record.get("weights_hash"), untouched)


def first_difference(saved: SavedRollout, trajectory: Trajectory, config_hash: str, weights_hash: str) -> str | None:
    """The first field in which the file and the replay differ, with both values; None where they are the same."""
    for name, before, now, what in (
        ("config_hash", saved.config_hash, config_hash, "preset and overrides give another configuration than the one that was saved"),
        ("weights_hash", saved.weights_hash, weights_hash, f"{saved.model} holds other weights than those that were saved"),
    ):
        if before is not None and before != now:
            return f"{name}: {before} before, {now} now; {what}"
    found = next(_differences("", saved.trajectory, json.loads(json.dumps(asdict(trajectory)))), None)
    if found is None and not saved.untouched:
        return "content_hash: every field of the trajectory is the same, but another field of the file was edited"
    return found


def _differences(place: str, before: object, now: object) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in {**now, **before}:
            inner = f"{place}.{key}" if place else key
            if key not in before or key not in now:
                yield f"{inner}: {'missing' if key not in before else 'there'} before, {'missing' if key not in now else 'there'} now"
            else:
                yield from _differences(inner, before[key], now[key])
    elif isinstance(before, list) and isinstance(now, list):
        for number, (a, b) in enumerate(zip(before, now)):
            yield from _differences(f"{place}[{number}]", a, b)
        if len(before) != len(now):
            yield f"{place}: {len(before)} before, {len(now)} now"
    elif before != now or isinstance(before, bool) != isinstance(now, bool):
        yield f"{place}: {shown(before)} before, {shown(now)} now"
