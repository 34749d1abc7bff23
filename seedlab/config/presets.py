"""From a preset, a method and overrides to one resolved :class:`Config`.

Order, later wins: schema defaults, preset, method bundle, explicit overrides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from seedlab.config.names import flatten, is_section, schema_fields, suggestion
from seedlab.config.preset_values import PRESETS, QUICK_OVERRIDES, merge
from seedlab.config.schema import Config
from seedlab.errors import ConfigError
from seedlab.methods import get_method

__all__ = [
    "PRESETS", "QUICK_OVERRIDES", "config_hash", "from_json", "hash_of_values", "load_config", "own_assembly", "parse_overrides", "to_json",
]  # fmt: skip

# What a method's bundle decides about; a change here on top of a bundle makes it the user's own assembly.
_METHOD_KEYS = ("objective.", "initial", "stage1.enabled", "rollout.skill", "evaluation.skill", "skills.")
# Keys that came after the first rows of results; their defaults change nothing, so that a configuration from before them
# keeps its hash, and a finished cell of a sweep is known again.
_LATER = (
    "rollout.skill", "evaluation.skill", "skills.library", "skills.retrieve", "skills.snapshot_tries", "objective.opd_form", "objective.ratio",
    "objective.step_weight", "objective.step_discount", "objective.schedule", "objective.schedule_updates", "objective.skill_advantage",
    "objective.scale_share", "objective.scale_updates", "objective.scale_low", "objective.scale_high", "objective.episode_coef", "objective.step_coef",
    "objective.critical_steps", "objective.support", "objective.support_k", "objective.average_skills", "objective.baseline",
)  # fmt: skip
# Complaints of pydantic that a key's meaning makes clear.
_OUT_OF_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "string_pattern_mismatch")


def load_config(preset: str, overrides: Iterable[str] | Mapping[str, Any] = ()) -> Config:
    """The resolved configuration of `preset` with `overrides` on top.

    `overrides` is a list of ``dotted.key=value`` (values are read as YAML) or a dictionary, nested or with dotted keys.
    ``method=NAME`` applies that method's bundle below the other overrides, wherever it stands.  Raises ConfigError for
    an unknown preset, method or key and for a value that does not fit; the message names it.
    """
    if preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}{suggestion(preset, PRESETS)} (known: {', '.join(PRESETS)})")
    explicit = parse_overrides(overrides)
    for fixed in ("preset", "schema_version"):
        if fixed in explicit:
            raise ConfigError(f"{fixed} cannot be overridden; name another preset instead")
    method = explicit.get("method", "seed")
    if not isinstance(method, str):
        raise ConfigError(f"method={method!r}: a method is a name, such as method=grpo")
    return _resolve(preset, method, explicit)


def parse_overrides(overrides: Iterable[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Overrides as a nested dictionary.  Raises ConfigError for ``key`` without a value or with invalid YAML."""
    if isinstance(overrides, Mapping):
        return _nest(overrides)
    if isinstance(overrides, str):
        raise ConfigError(f"overrides are a list of key=value; got the text {overrides!r}")
    # imported here: `seedlab --help` has no use for it
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    out: dict[str, Any] = {}
    given: dict[str, tuple[Any, str]] = {}
    for item in overrides:
        key, equals, _ = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{item!r} is not an override; write dotted.key=value")
        try:
            parsed = OmegaConf.to_container(OmegaConf.from_dotlist([item]), resolve=False)
        except (OmegaConfBaseException, YAMLError, ValueError) as error:
            raise ConfigError(f"{item!r} cannot be read: {str(error).splitlines()[0]}") from error
        for name, value in flatten(parsed).items():
            before, text = given.setdefault(name, (value, item))
            if before is not value and (before != value or type(before) is not type(value)):
                raise ConfigError(f"{name} is given twice with different values: {text} and {item}; leave one of them out")
        out = merge(out, parsed)
    return out


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in values.items():
        nested = _nest(value) if isinstance(value, Mapping) else value
        for part in reversed(str(key).split(".")):
            nested = {part: nested}
        out = merge(out, nested)
    return out


def _resolve(preset: str, method: str, explicit: dict[str, Any]) -> Config:
    bundle = get_method(method)
    values = merge(PRESETS[preset], bundle.settings, _one_minibatch_rule(explicit), {"preset": preset, "method": method})
    return validated(values)


def _one_minibatch_rule(explicit: dict[str, Any]) -> dict[str, Any]:
    # The two ways of counting minibatches exclude each other: naming one leaves the preset's other one behind.
    stage2 = explicit.get("stage2")
    for chosen, other in (("minibatches", "minibatch_rows"), ("minibatch_rows", "minibatches")):
        if isinstance(stage2, dict) and stage2.get(chosen) is not None and other not in stage2:
            return merge(explicit, {"stage2": {other: None}})
    return explicit


def validated(values: dict[str, Any]) -> Config:
    """`values` as a Config; unknown keys, wrong types and contradictions become a ConfigError that names the key."""
    known = {key for key, _ in schema_fields(Config)}
    _refuse_unknown(Config, values, "", known)
    try:
        # Through JSON, strictly: "8" is not a number and true is not 1, as a file on disk would have it.
        return Config.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ConfigError("; ".join(_explanations(error.errors(), known))) from error
    except TypeError as error:
        raise ConfigError(f"a value cannot be written as JSON: {error}") from error


def _refuse_unknown(model, values: dict[str, Any], prefix: str, known: set[str]) -> None:
    for name, value in values.items():
        key = f"{prefix}{name}"
        field = model.model_fields.get(name)
        if field is None:
            # of {"stage2": {"update": 6}} the whole mistyped path is shown
            typed = next(iter(flatten({key: value})), key) if isinstance(value, dict) else key
            raise ConfigError(f"unknown key {typed!r}{suggestion(typed, known)}")
        if is_section(field):
            if not isinstance(value, dict):
                raise ConfigError(f"{key} is a section, not a value; set one of its keys, such as {key}.{next(iter(field.annotation.model_fields))}")
            _refuse_unknown(field.annotation, value, f"{key}.", known)


def _explanations(problems: list[Any], known: set[str]) -> list[str]:
    """One sentence per key at fault: a union reports each of its types, and a list each of its places."""
    texts: dict[str, str] = {}
    meanings = {key: field.description for key, field in schema_fields(Config)}
    for problem in problems:
        key = _key_of(problem["loc"], known)
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "value_error":  # a contradiction between keys; its text names them
            texts[message] = message
            continue
        message = message[0].lower() + message[1:]
        texts[key] = f"{texts[key]}, or {message}" if key in texts else f"{key}={problem['input']!r}: {message}"
        if problem["type"] in _OUT_OF_BOUNDS and key in meanings:
            texts[key] += f" ({meanings[key]})"
    return list(texts.values())


def _key_of(place: tuple[str | int, ...], known: set[str]) -> str:
    """The dotted key of a problem's place, with its position in a list but without the arm of a union."""
    parts = [str(part) for part in place]
    for length in range(len(parts), 0, -1):
        key = ".".join(parts[:length])
        if key in known:
            return key + "".join(f"[{part}]" for part in place[length:] if isinstance(part, int))
    return ".".join(parts)


def own_assembly(config: Config) -> dict[str, tuple[Any, Any]]:
    """{key: (value of the vetted bundle, value of this run)} for each switch of the method that was set on top.

    Empty means that the run is exactly the named method on the named preset.
    """
    vetted = flatten(load_config(config.preset, {"method": config.method}).model_dump(mode="json"))
    this = flatten(config.model_dump(mode="json"))
    return {
        key: (vetted[key], value)
        for key, value in this.items()
        if key.startswith(_METHOD_KEYS) and vetted[key] != value
    }


def to_json(config: Config) -> str:
    """The exact JSON form: reading it back with `from_json` gives an equal configuration."""
    return json.dumps(config.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def from_json(text: str, source: str = "the configuration") -> Config:
    """A configuration from its JSON form; `source` (a file name) stands in the error message.

    Raises ConfigError for broken JSON, an unknown schema version, unknown keys and unfit values.
    """
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{source} holds {type(values).__name__}, not a configuration")
    version = values.get("schema_version")
    if version != 1:
        raise ConfigError(f"{source} has schema_version {version!r}; this seedlab reads version 1")
    try:
        return validated(values)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from error


def config_hash(config: Config, exclude_seed: bool = False) -> str:
    """16 hexadecimal digits over the resolved settings; without the seed, the same for all seeds of one cell.

    `cluster` says where a run computes, not what: it is left out, but for vLLM as the sampler, whose draws are others.
    """
    return hash_of_values(config.model_dump(mode="json"), exclude_seed)


def _without_later_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` without the later keys at their defaults; a section that holds no other key goes with them."""
    fields = dict(schema_fields(Config))
    later = {key: json.loads(json.dumps(fields[key].get_default(call_default_factory=True))) for key in _LATER}
    out: dict[str, Any] = {}
    for section, inside in values.items():
        if isinstance(inside, dict) and any(key.startswith(f"{section}.") for key in later):
            inside = {name: value for name, value in inside.items() if f"{section}.{name}" not in later or later[f"{section}.{name}"] != value}
            if not inside:
                continue
        out[section] = inside
    return out


def hash_of_values(stored: Mapping[str, Any], exclude_seed: bool = False) -> str:
    """`config_hash` of the JSON form itself, as it lies in a run folder: a key that a later schema adds is not in it."""
    values = {key: value for key, value in _without_later_defaults(stored).items() if key != "cluster" and not (exclude_seed and key == "seed")}
    generator = stored.get("cluster", {}).get("generator", "local")
    if generator != "local":
        values["generator"] = generator
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
