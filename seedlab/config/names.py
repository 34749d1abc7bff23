"""Dotted names of configuration keys, and the closest known name to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def suggestion(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the closest of `known`, or an empty string.

    A name that only lacks its section (``group_size``) or has a wrong one finds its key too.
    """
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.75)
    if not close:
        last = {choice.rsplit(".", 1)[-1]: choice for choice in choices}
        close = [last[found] for found in difflib.get_close_matches(name.rsplit(".", 1)[-1], list(last), n=1, cutoff=0.8)]
    if not close:
        close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def schema_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """(dotted key, field) of every leaf of a schema, in order of declaration."""
    for name, field in model.model_fields.items():
        if is_section(field):
            yield from schema_fields(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary as {dotted key: leaf}; lists are leaves, and an empty dictionary is one too."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict) and value:
            out |= flatten(value, f"{prefix}{name}.")
        else:
            out[prefix + name] = value
    return out
