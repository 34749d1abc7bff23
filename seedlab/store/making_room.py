"""Settings that a resumed run may take anew, since they change memory and time alone: after memory ran out.

The run's config.json stays what it began with, and so do its hash and its cell; `room.json` beside it holds the changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from seedlab.config.names import flatten
from seedlab.config.preset_values import merge
from seedlab.config.presets import from_json, parse_overrides, to_json
from seedlab.config.schema import Config
from seedlab.errors import ConfigError
from seedlab.store.errors import RunError
from seedlab.store.files import read_json, write_json
from seedlab.store.layout import configuration_of

FILE = "room.json"
KEYS = (
    "stage2.micro_batch_tokens", "model.gradient_checkpointing", "cluster.max_cache_tokens", "cluster.gpu_memory_utilization",
    "cluster.max_sequences", "cluster.max_prefill_tokens", "cluster.sleep", "cluster.offload_parameters", "cluster.offload_optimizer",
    "cluster.offload_reference", "cluster.sft_pack_tokens", "cluster.sft_offload_optimizer",
)  # fmt: skip


def make_room(run: Path, overrides: Iterable[str] | Mapping) -> None:
    """Every later start of `run` takes `overrides`, on top of earlier ones.  Raises ConfigError for a key that is not in
    KEYS, or a value that does not fit; RunError where the folder holds no run."""
    given = parse_overrides(overrides)
    other = sorted(set(flatten(given)) - set(KEYS))
    if other:
        raise ConfigError(f"{other[0]} changes more than memory: choose it for a new run; a resumed one takes only {', '.join(KEYS)}")
    if not given:
        return
    values = merge(_changes(run), given)
    _with(configuration_of(run), values, "these overrides")
    write_json(run / FILE, values)


def with_room(cfg: Config, run: Path) -> Config:
    """`cfg` with the changes that the run folder holds."""
    changes = _changes(run)
    return _with(cfg, changes, str(run / FILE)) if changes else cfg


def _changes(run: Path) -> dict:
    file = run / FILE
    changes = read_json(file) if file.exists() else {}
    other = sorted(set(flatten(changes)) - set(KEYS)) if isinstance(changes, dict) else ["its content"]
    if other:
        raise RunError(f"{file}: {other[0]} is none of the keys that a resumed run may take anew ({', '.join(KEYS)}); mend or remove the file")
    return changes


def _with(cfg: Config, changes: dict, source: str) -> Config:
    return from_json(json.dumps(merge(json.loads(to_json(cfg)), changes)), source)
