"""Files that a command is asked to write."""

from __future__ import annotations

from pathlib import Path

from seedlab.errors import UserError


def output_file(name: str | Path | None, option: str = "", default: str = "", make_parent: bool = False) -> Path | None:
    """The file of `option`, tried out: refused before any work is done where it cannot be written.

    `default` is the file name that is proposed where a folder was given; with `make_parent` its folder is made.  What
    is there stays as it is.
    """
    if name is None:
        return None
    path, what = Path(name), f"{option} {name}".strip()
    if path.is_dir():
        raise UserError(f"{what} is a folder; give a file" + (f", such as {path / default}" if default else ""))
    try:
        if make_parent:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.parent.is_dir():
            raise UserError(f"cannot write {what}: there is no folder {path.parent}; make it, or choose another place")
        new = not path.exists()
        with open(path, "ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise UserError(f"cannot write {what}: {error.strerror}; choose another place") from error
    return path


def write_output(path: Path, text: str) -> None:
    """The file that `output_file` has tried out; UserError where it cannot be written after all."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} could not be written: {error.strerror}") from error
