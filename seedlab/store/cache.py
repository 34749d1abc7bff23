"""Where results that runs share lie, and whether a folder can be written: asked before any work is done."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from seedlab.store.errors import RunError

CACHE_VARIABLE = "SEEDLAB_CACHE"


def cache_folder() -> Path:
    """`SEEDLAB_CACHE`, or `~/.cache/seedlab`."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "seedlab")


def usable_folder(path: Path, what: str, setting: str = CACHE_VARIABLE) -> Path:
    """`path`, made where it is not there, in which a file can be made.  Raises RunError naming it, what it is for, and the
    environment variable that puts it elsewhere."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".try-"):
            pass
    except OSError as error:
        advice = f"set {setting} to a folder that can be written" if setting else "choose another folder"
        raise RunError(f"{what}, {path}, cannot be used: {error.strerror}; {advice}") from error
    return path
