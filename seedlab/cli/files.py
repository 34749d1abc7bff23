"""Files that a command is asked to write."""

from __future__ import annotations

from pathlib import Path

from seedlab.errors import UserError


def output_file(name: str | None) -> Path | None:
    """Refused before any work is done, where its folder does not exist."""
    if name is None:
        return None
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"cannot write {path}: {'it is a folder' if path.is_dir() else f'there is no folder {path.parent}'}")
    return path
