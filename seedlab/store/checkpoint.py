"""Checkpoints that are complete or absent, whenever the process dies."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from seedlab.store.errors import RunError
from seedlab.store.files import NUMBER, SCHEMA_VERSION, read_versioned, sweep_partials, sync_folder, write_folder, write_text
from seedlab.store.shapes import COMPLETE_FIELDS, check_fields

COMPLETE = "COMPLETE"  # names every file with its size; written last


def save_checkpoint(run: Path, update: int, write: Callable[[Path], None], *, keep: int, min_free_gb: float) -> Path:
    """Write checkpoints/NNNNNN: into a temporary folder, to disk, renamed, then `latest` moves; old ones go last.

    At every moment of this a complete checkpoint is there, if there ever was one (E4).  Raises RunError where less than
    `min_free_gb`, or than the last checkpoint's size, is free, or where the disk fills up: nothing half-written stays
    behind, the run stops and can be resumed from the last checkpoint.
    """
    if keep < 1:
        raise ValueError(f"keep={keep}: at least one checkpoint has to stay")
    run, root = Path(run), Path(run) / "checkpoints"
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    before = latest_checkpoint(run)
    _refuse_full_disk(run, before, min_free_gb)
    final = root / f"{update:06d}"
    old = root / f".old-{update:06d}"

    def fill(folder: Path) -> None:
        try:
            write(folder)
        except Exception as error:
            if _out_of_space(error, root):
                raise RunError(f"{final}: the disk filled up while saving; {_resumable(run, before)}") from error
            raise
        sizes = {str(p.relative_to(folder)): p.stat().st_size for p in sorted(folder.rglob("*")) if p.is_file()}
        write_text(folder / COMPLETE, json.dumps({"schema_version": SCHEMA_VERSION, "update": update, "files": sizes}, indent=1))
        if final.exists():
            # The same update again: the first one stays findable under `.old-` until the new one has its name.
            os.rename(final, old)

    write_folder(final, fill)
    write_text(root / "latest", f"{final.name}\n")
    sync_folder(root)
    if old.exists():
        _remove(old)
    for number in complete_checkpoints(run)[:-keep]:
        if number != update:
            _remove(root / f"{number:06d}")
    return final


def complete_checkpoints(run: Path) -> list[int]:
    """Updates with a complete checkpoint, oldest first."""
    return sorted(_complete(Path(run)))


def latest_checkpoint(run: Path) -> tuple[int, Path] | None:
    """The newest complete checkpoint, or None; what a dying process left half-written is never taken for one.

    Raises RunError naming the file where that checkpoint was damaged afterwards (a file cut or gone).
    """
    found = _complete(Path(run))
    if not found:
        return None
    newest = max(found)
    verify_checkpoint(found[newest])
    return newest, found[newest]


def verify_checkpoint(folder: Path) -> None:
    """Every file of the checkpoint is there, with its size; RunError naming the first that is not."""
    content = check_fields(read_versioned(folder / COMPLETE), COMPLETE_FIELDS, folder / COMPLETE, advice=f"remove {folder} to resume from the one before it")
    for name, size in content["files"].items():
        file = folder / name
        actual = file.stat().st_size if file.is_file() else None
        if actual != size:
            what = "is missing" if actual is None else f"has {actual} bytes instead of {size}"
            raise RunError(f"{file} {what}: this checkpoint is damaged; remove {folder} to resume from the one before it")


def _complete(run: Path) -> dict[int, Path]:
    root = run / "checkpoints"
    if not root.is_dir():
        return {}
    # `.old-` first: where both are there, the checkpoint under its own name wins.
    places = sorted(root.iterdir(), key=lambda p: not p.name.startswith(".old-"))
    named = {p: p.name.removeprefix(".old-") for p in places}
    return {int(name): p for p, name in named.items() if NUMBER.fullmatch(name) and (p / COMPLETE).is_file()}


def _sweep(root: Path) -> None:
    """Remove what killed saves left: `.tmp-` is never complete, `.old-` has had its successor (or gets its name back)."""
    sweep_partials(root)
    for stale in root.glob(".tmp-*"):
        shutil.rmtree(stale)
    for old in root.glob(".old-*"):
        final = root / old.name.removeprefix(".old-")
        if (old / COMPLETE).is_file() and not (final / COMPLETE).is_file():
            if final.exists():
                shutil.rmtree(final)
            os.rename(old, final)
        else:
            _remove(old)
    for half in list(root.iterdir()):
        if NUMBER.fullmatch(half.name) and not (half / COMPLETE).is_file():
            shutil.rmtree(half)


def _remove(folder: Path) -> None:
    # Without the marker first, a removal that is cut off would leave a checkpoint that looks complete.
    (folder / COMPLETE).unlink(missing_ok=True)
    shutil.rmtree(folder)


def _refuse_full_disk(run: Path, before: tuple[int, Path] | None, min_free_gb: float) -> None:
    root = run / "checkpoints"
    free = shutil.disk_usage(root).free / 1e9
    size = sum(p.stat().st_size for p in before[1].rglob("*") if p.is_file()) / 1e9 if before else 0.0
    needed = max(min_free_gb, size)
    if free < needed:
        why = f"store.min_free_gb={min_free_gb}" if min_free_gb >= size else f"the last checkpoint took {size:.2f} GB"
        raise RunError(f"{root}: {free:.2f} GB free, but {why}; {_resumable(run, before)}")


def _resumable(run: Path, before: tuple[int, Path] | None) -> str:
    start = f"from update {before[0]}" if before else "from the start"
    return f"free some space, then `seedlab resume {run}` goes on {start}"


def _out_of_space(error: Exception, root: Path) -> bool:
    """Libraries report a full disk in their own ways, so the disk itself is asked too."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return "no space left" in str(error).lower() or shutil.disk_usage(root).free < 1_000_000
