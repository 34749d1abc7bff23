"""The table of every configuration key, for ``seedlab config --explain`` and docs/configuration.md."""

from __future__ import annotations

import json
import types
import typing
from typing import Any

from seedlab.config.names import is_section
from seedlab.config.schema import Config
from seedlab.errors import ConfigError

BEGIN, END = "<!-- begin: seedlab config --explain -->", "<!-- end: seedlab config --explain -->"


def explain() -> str:
    """Markdown: one table per section, each key with its type, its default in the schema and its sentence."""
    top = [(name, field) for name, field in Config.model_fields.items() if not is_section(field)]
    blocks = [_table("Run", Config.__doc__, top, "")]
    for name, field in Config.model_fields.items():
        if is_section(field):
            section = field.annotation
            blocks.append(_table(f"`{name}`", section.__doc__, list(section.model_fields.items()), f"{name}."))
    return "\n\n".join(blocks) + "\n"


def with_current_table(page: str, source: str = "the page") -> str:
    """`page` with the tables between its markers renewed."""
    return replaced_between(page, BEGIN, END, explain(), source)


def replaced_between(page: str, begin: str, end: str, content: str, source: str = "the page") -> str:
    """`page` with `content` between the lines `begin` and `end`; ConfigError where one is not there exactly once."""
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ConfigError(f"{source} needs the lines {begin!r} and {end!r}, each once")
    before, rest = page.split(begin)
    return f"{before}{begin}\n\n{content}\n{end}{rest.split(end)[1]}"


def _table(title: str, doc: str | None, fields: list[tuple[str, Any]], prefix: str) -> str:
    lines = [f"### {title}", "", (doc or "").strip().splitlines()[0], "", "| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in fields:
        default = field.get_default(call_default_factory=True)
        cells = [f"`{prefix}{name}`", _type(field.annotation), f"`{json.dumps(default)}`", field.description or ""]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _type(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return " · ".join(str(value) for value in typing.get_args(annotation))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(arm) for arm in typing.get_args(annotation))
    if origin is tuple:
        arms = typing.get_args(annotation)
        return f"list of {_type(arms[0])}" if arms[-1] is Ellipsis else f"{len(arms)} × {_type(arms[0])}"
    if origin is typing.Annotated:
        return _type(typing.get_args(annotation)[0])
    if origin is dict:
        return "mapping of {} to {}".format(*(_type(arm) for arm in typing.get_args(annotation)))
    return {type(None): "null", str: "text", float: "number", int: "integer", bool: "true or false"}[annotation]
