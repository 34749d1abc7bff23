"""A sweep and its cells: plain data, and what a cell is called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seedlab.config.schema import Config

LONGEST = 120


@dataclass(frozen=True)
class Cell:
    """One point of a sweep.  `values` are the swept keys alone; `config` is None where cells execute a notebook."""

    name: str
    values: Mapping[str, Any]
    overrides: Mapping[str, Any]
    config: Config | None
    folder: Path


@dataclass(frozen=True)
class Sweep:
    """`parameters` are those of the report notebook that follows each run; a sweep without `preset` runs `notebook`."""

    name: str
    out: Path
    cells: Sequence[Cell]
    preset: str | None
    notebook: Path | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    results: Path | None = None
    at_most: int | None = None
    backend: str = "local"
    scheduler_options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def keys(self) -> list[str]:
        """Every swept key, in order of first appearance."""
        return list(dict.fromkeys(key for cell in self.cells for key in cell.values))

    def notebook_out(self, cell: Cell) -> Path:
        """Where the cell's executed notebook is kept."""
        folder = cell.folder / "notebook" if self.preset is not None else cell.folder
        return folder / self.notebook.name

    def notebook_parameters(self, cell: Cell) -> dict[str, Any]:
        """The parameters of the cell's notebook; {run}, {name} and {seed} in texts are those of the cell."""
        if self.preset is None:
            return dict(cell.overrides)
        known = {"run": str(cell.folder), "name": cell.name, "seed": cell.config.seed}
        return {key: filled(value, known) for key, value in self.parameters.items()}


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """`value` with {name} replaced where it is a text, or a list of texts; other braces stay."""
    if isinstance(value, list):
        return [filled(v, known) for v in value]
    if not isinstance(value, str):
        return value
    return re.sub(r"\{(\w+)\}", lambda m: str(known.get(m[1], m[0])), value)


def cell_name(values: Mapping[str, Any], short: Mapping[str, str]) -> str:
    """A folder name such as method=grpo,seed=0; `short` maps each key to what is shown of it.  Long names end in a hash."""
    name = ",".join(f"{short[key]}={_shown(value)}" for key, value in values.items()) or "only"
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _shown(value: Any) -> str:
    text = {True: "true", False: "false", None: "none"}.get(value, value) if isinstance(value, bool) or value is None else value
    text = "+".join(map(_shown, text)) if isinstance(text, list) else str(text)
    return re.sub(r"[^\w.+-]", "-", text)


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each dotted key, or all of it where two end alike."""
    last = [key.rsplit(".", 1)[-1] for key in keys]
    return {key: end if last.count(end) == 1 else key for key, end in zip(keys, last, strict=True)}
