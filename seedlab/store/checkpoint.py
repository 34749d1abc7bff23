"""Checkpoints that are complete or absent, whenever the process dies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Callable

from seedlab.store.errors import RunError

COMPLETE = "COMPLETE"


def save_checkpoint(run: Path, update: int, write: Callable[[Path], None], *, keep: int, min_free_gb: float) -> Path:
    """Write checkpoints/NNNNNN: into a temporary folder, to disk, renamed, then `latest` moves; old ones go last.

    Raises RunError where less than `min_free_gb` is free: the run stops and can be resumed from the last checkpoint.
    """
    root = run / "checkpoints"
    root.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(root).free / 1e9
    if free < min_free_gb:
        raise RunError(
            f"{root}: {free:.2f} GB free, store.min_free_gb={min_free_gb}; free some space, then `seedlab resume {run}` goes on"
        )
    for stale in root.glob(".tmp-*"):
        shutil.rmtree(stale)
    partial, final = root / f".tmp-{update:06d}", root / f"{update:06d}"
    partial.mkdir()
    write(partial)
    (partial / COMPLETE).write_text(f"{update}\n")
    for path in partial.rglob("*"):
        if path.is_file():
            with open(path, "rb") as handle:
                os.fsync(handle.fileno())
    if final.exists():  # the same update saved again after a resume
        shutil.rmtree(final)
    os.replace(partial, final)
    pointer = root / ".latest.tmp"
    pointer.write_text(f"{update:06d}\n")
    os.replace(pointer, root / "latest")
    for old in complete_checkpoints(run)[:-keep]:
        shutil.rmtree(root / f"{old:06d}")
    return final


def complete_checkpoints(run: Path) -> list[int]:
    root = run / "checkpoints"
    return sorted(int(p.name) for p in root.glob("[0-9]*") if (p / COMPLETE).is_file()) if root.is_dir() else []


def latest_checkpoint(run: Path) -> tuple[int, Path] | None:
    """The newest complete checkpoint; a folder that a dying process left half-written is never taken for one."""
    found = complete_checkpoints(run)
    return (found[-1], run / "checkpoints" / f"{found[-1]:06d}") if found else None
