"""What a configuration does differently from the paper, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seedlab.config.names import flatten
from seedlab.config.presets import load_config
from seedlab.config.reasons import reason_for
from seedlab.config.reference import PAPER, PUBLIC_CODE, CodeDifference
from seedlab.config.schema import Config
from seedlab.errors import ConfigError
from seedlab.methods import get_method


@dataclass(frozen=True)
class Difference:
    """`paper` and `this` are the two values; `reason` is None where nothing is recorded for this value."""

    key: str
    paper: Any
    this: Any
    reason: str | None
    source: str


def values_of(config: Config) -> dict[str, Any]:
    """{dotted key: JSON value}; an empty dictionary stays a value of its own key."""
    return flatten(config.model_dump(mode="json"))


def diff_against_paper(config: Config) -> list[Difference]:
    """Every key of the paper's Tables 3 and 5 and of its method on which `config` differs, in their order.

    A reason is recorded for the preset's own value or for the method's; a value set on top of both is unexplained.
    Raises ConfigError where the paper has no column for the environment.
    """
    if config.env.name not in PAPER:
        raise ConfigError(f"the paper has no column for env.name={config.env.name!r}; it has {', '.join(PAPER)}")
    this = values_of(config)
    rows = []
    for key, reference in PAPER[config.env.name].items():
        value = _value(this, key)
        if not reference.agrees(value):
            rows.append(Difference(key, str(reference), value, _reason(config, key, value), reference.source))
    return rows


def _value(values: dict[str, Any], key: str) -> Any:
    """A leaf, a whole dictionary such as env.panel_limits, or None for a panel that the preset does not have."""
    if key in values:
        return values[key]
    inside = {name.removeprefix(f"{key}."): value for name, value in values.items() if name.startswith(f"{key}.")}
    return inside or None


def _reason(config: Config, key: str, value: Any) -> str | None:
    bundle = get_method(config.method)
    chosen = flatten(bundle.settings)
    if config.method != "seed" and key in chosen and chosen[key] == value:
        return f"method {config.method}: {bundle.reason}"
    if _value(values_of(load_config(config.preset, {"method": config.method})), key) == value:
        return reason_for(config.preset, key)
    return None


def diff_against(config: Config, other: Config) -> list[Difference]:
    """Every key on which two configurations differ; no reasons are recorded between presets."""
    left, right = values_of(config), values_of(other)
    keys = [*left, *(key for key in right if key not in left)]
    return [
        Difference(key, right.get(key), left.get(key), None, other.preset)
        for key in keys
        if left.get(key) != right.get(key) and key != "preset"
    ]


def code_questions(config: Config) -> list[tuple[CodeDifference, dict[str, Any]]]:
    """Each question on which paper and public code part, with this configuration's answers {key: value}."""
    this = values_of(config)
    return [(question, {key: this[key] for key in question.keys}) for question in PUBLIC_CODE]
