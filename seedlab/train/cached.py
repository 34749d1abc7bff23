"""Results that many runs share (base policy, Stage 1), each in a folder named by the hash of all that made it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Callable

from seedlab.store.cache import cache_folder, usable_folder

# Raise it when the code that makes a cached result changes what it makes.
RECIPE_VERSION = 5


def cache_root() -> Path:
    """`SEEDLAB_CACHE`, or `~/.cache/seedlab`."""
    return cache_folder()


def usable_cache() -> Path:
    """`cache_root`, made where it is not there and tried out; UserError says what is wrong with it."""
    return usable_folder(cache_root(), "the cache of base policies and Stage 1")


def content_key(kind: str, **parts: object) -> str:
    """`kind` and a hash over the JSON of everything the result depends on."""
    payload = json.dumps({"recipe": RECIPE_VERSION, **parts}, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(payload.encode()).hexdigest()[:16]}"


def is_built(key: str) -> bool:
    """Whether the result of `key` is in the cache, complete."""
    return (cache_root() / key).is_dir()


def build_once(key: str, build: Callable[[Path], None]) -> Path:
    """The folder of `key`, built by `build(folder)` where it does not exist yet.

    Two processes that want the same result wait for one another (file lock, freed when a process dies).  The folder
    appears under its name only when it is complete, so that a killed build leaves nothing half-done behind.
    """
    root = usable_cache()
    final = root / key
    if final.is_dir():
        return final
    with open(root / f"{key}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.is_dir():
            return final
        partial = root / f"{key}.partial"
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        build(partial)
        os.replace(partial, final)
    return final
