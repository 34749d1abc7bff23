"""docs/configuration.md carries the current table of keys."""

from pathlib import Path

from seedlab.config.explain import BEGIN, END, explain
from seedlab.config.names import schema_fields
from seedlab.config.schema import Config

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_current():
    text = PAGE.read_text(encoding="utf-8")
    inside = text.split(BEGIN)[1].split(END)[0].strip()
    assert inside == explain().strip(), "docs/configuration.md is stale: python -m seedlab config --explain --write docs/configuration.md"


def test_every_key_is_a_row():
    rows = [line.split("|")[1].strip() for line in explain().splitlines() if line.startswith("| `")]
    assert rows == [f"`{key}`" for key, _ in sorted_by_section()]


def sorted_by_section():
    fields = list(schema_fields(Config))
    return [f for f in fields if "." not in f[0]] + [f for f in fields if "." in f[0]]


def test_a_row_in_full():
    assert "| `store.tokens` | all · none or integer | `\"all\"` | `all`, `none`, or k: every k updates |" in explain()
