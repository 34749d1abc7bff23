"""Reads a sweep file and checks everything in it before anything starts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedlab.config.names import flatten, suggestion
from seedlab.config.presets import config_hash, load_config
from seedlab.config.starting import refuse_to_start
from seedlab.envs import check_settings
from seedlab.errors import ConfigError, UserError
from seedlab.jobs.notebooks import check_parameters
from seedlab.jobs.schedulers import BACKENDS, scheduler
from seedlab.sweep.cells import Cell, Sweep, cell_name, short_keys

# key of the file: type of its value
KEYS = {
    "name": str, "preset": str, "notebook": str, "parameters": dict, "out": str, "set": dict, "grid": dict, "list": list, "results": str,
    "at_most": int, "backend": str, "slurm": dict, "ray": dict,
}  # fmt: skip


def read_sweep(path: str | Path) -> Sweep:
    """The sweep of a YAML file.

    Raises ConfigError naming the file and the key or cell at fault: an unknown key, an empty grid, a setting or a
    notebook parameter that does not exist or does not fit, two cells that are the same.
    """
    path = Path(path)
    values = _read(path)
    try:
        return _sweep(path, values)
    except UserError as error:
        raise ConfigError(f"{path}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    # OmegaConf's reader, as for overrides: 1e-4 is a number, and a key that stands twice is an error
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; sweeps/ has examples") from error
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict) or not values:
        raise ConfigError(f"{path} holds no sweep: it needs `preset` and `grid` or `list`")
    return values


def _sweep(path: Path, values: Mapping[str, Any]) -> Sweep:
    for key, value in values.items():
        if key not in KEYS:
            raise ConfigError(f"unknown key {key!r}{suggestion(str(key), KEYS)} (known: {', '.join(KEYS)})")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            raise ConfigError(f"{key}={value!r} has to be a {KEYS[key].__name__}")
    preset, notebook = values.get("preset"), values.get("notebook")
    if preset is None and notebook is None:
        raise ConfigError("it needs `preset` (each cell is a run) or `notebook` (each cell executes it)")
    if "parameters" in values and (preset is None or notebook is None):
        raise ConfigError("`parameters` are those of the notebook that follows each run of a preset; without a preset use `set` and `grid`")
    if values.get("at_most", 1) < 1:
        raise ConfigError(f"at_most={values['at_most']}: at least one job has to run")
    name = values.get("name", path.stem)
    out = Path(values.get("out", Path("runs") / name))
    cells = _cells(values, preset, notebook, out)
    parameters = values.get("parameters", {"run": "{run}"} if preset is not None and notebook is not None else {})
    if preset is not None and notebook is not None:
        check_parameters(notebook, parameters)
    backend = values.get("backend", "local")
    return Sweep(
        name=name, out=out, cells=cells, preset=preset, notebook=None if notebook is None else Path(notebook), parameters=parameters,
        results=Path(values["results"]) if "results" in values else None, at_most=values.get("at_most"), backend=backend,
        scheduler_options=_scheduler_options(values, backend),
    )  # fmt: skip


def _scheduler_options(values: Mapping[str, Any], backend: str) -> dict[str, Any]:
    if backend not in BACKENDS:
        raise ConfigError(f"backend={backend!r}{suggestion(backend, BACKENDS)} (known: {', '.join(BACKENDS)})")
    for other in ("slurm", "ray"):
        if other in values and other != backend:
            raise ConfigError(f"`{other}` is for backend: {other}, but the backend is {backend}")
    options = values.get(backend, {}) if backend != "local" else {}
    if backend != "local":
        scheduler(backend).check(options)
    return options


def _cells(values: Mapping[str, Any], preset: str | None, notebook: str | None, out: Path) -> list[Cell]:
    """Every entry of `list` with every point of `grid`, the last key of the grid changing fastest."""
    grid = _grid(values.get("grid", {}), preset)
    entries = values.get("list", [{}])
    if "grid" not in values and "list" not in values:
        raise ConfigError("it needs `grid` or `list`")
    if not entries:
        raise ConfigError("`list` is empty")
    common = _flat(values.get("set", {}), "set", preset)
    points = [
        _joined(_flat(entry, f"entry {number} of `list`", preset), dict(zip(grid, choice, strict=True)), number)
        for number, entry in enumerate(entries, 1)
        for choice in itertools.product(*grid.values())
    ]
    short = short_keys(list(dict.fromkeys(key for point in points for key in point)))
    cells = []
    for point in points:
        clash = sorted(set(point) & set(common))
        if clash:
            raise ConfigError(f"{clash[0]} is both in `set` and swept; leave it out of one")
        cells.append(_cell(cell_name(point, short), point, {**common, **point}, preset, notebook, out))
    _refuse_twins(cells)
    return cells


def _grid(grid: Mapping[str, Any], preset: str | None) -> dict[str, list]:
    # a nested section (stage2: {updates: [1, 2]}) means the same as a dotted key
    flat = flatten(dict(grid)) if preset is not None else dict(grid)
    for key, choices in flat.items():
        if not isinstance(choices, list):
            raise ConfigError(f"grid.{key}={choices!r} has to be a list of values")
        if not choices:
            raise ConfigError(f"grid.{key} has no values")
    return flat


def _flat(values: Any, where: str, preset: str | None) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is {values!r}; it has to be a mapping of keys to values")
    return flatten(dict(values)) if preset is not None else dict(values)


def _joined(entry: dict[str, Any], choice: dict[str, Any], number: int) -> dict[str, Any]:
    clash = sorted(set(entry) & set(choice))
    if clash:
        raise ConfigError(f"{clash[0]} is both in `grid` and in entry {number} of `list`; leave it out of one")
    return {**entry, **choice}


def _cell(name: str, point: dict, overrides: dict, preset: str | None, notebook: str | None, out: Path) -> Cell:
    try:
        if preset is None:
            check_parameters(notebook, overrides)
            return Cell(name, point, overrides, None, out / name)
        config = load_config(preset, overrides)
        refuse_to_start(config)
        check_settings(config.env)
        return Cell(name, point, overrides, config, out / name)
    except UserError as error:
        raise ConfigError(f"cell {name}: {error}") from error


def _refuse_twins(cells: list[Cell]) -> None:
    """Two cells with one name would share a folder; two with one configuration would count one result twice."""
    seen: dict[str, str] = {}
    for cell in cells:
        what = repr(sorted(cell.overrides.items())) if cell.config is None else config_hash(cell.config)
        for key, why in ((f"name {cell.name.lower()}", "have the same name"), (what, "are the same run")):
            if key in seen:
                raise ConfigError(f"cells {seen[key]} and {cell.name} {why}; each cell has to differ in a setting")
        seen |= {f"name {cell.name.lower()}": cell.name, what: cell.name}
