"""Files that are whole or absent: atomic JSON, whole lines of JSON, folders that appear complete."""

from __future__ import annotations

import errno
import json
import math
import numbers
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any

from seedlab.store.errors import RunError
from seedlab.store.process import process_start

SCHEMA_VERSION = 1
NUMBER = re.compile(r"\d{6,}")  # names of the folders that belong to an update
# JSON has no infinity; a reader that wants numbers turns these texts back.
INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}


def shown_path(path: str | Path) -> Path:
    """`path` as messages name it: relative where it lies below the present folder, which is what one types next."""
    path = Path(path)
    return path.relative_to(Path.cwd()) if path != Path.cwd() and path.is_relative_to(Path.cwd()) else path


class Rewritten(RunError):
    """A file that was read up to an offset is another one now (rows were discarded on resume); read it from 0."""


def plain(value: Any) -> Any:
    """`value` as JSON can carry it: NaN becomes null, an infinity its name, NumPy's numbers plain ones.

    Raises TypeError for anything else: an object must not end up in a file as the text of its repr.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if math.isnan(number):
            return None
        return number if math.isfinite(number) else ("Infinity" if number > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    import numpy as np  # only here: jobs write JSON without loading NumPy

    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: {value!r}")


def disk_error(path: Path, error: OSError) -> RunError:
    """What to do about a write that failed; the run folder stays as it was after the last complete write."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = "the disk is full" if full else str(error)
    return RunError(f"{path} could not be written: {why}; {'free some space' if full else 'mend that'}, then `seedlab resume` goes on")


def sync_folder(path: Path) -> None:
    """Make renames in `path` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Atomic: a reader sees the old file or the new one, never half of one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(partial, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise disk_error(path, error) from error


def sweep_partials(folder: Path) -> None:
    """Remove what killed processes left of `write_text`; a living process may still be at its own."""
    for partial in folder.glob(".*.tmp"):
        writer = re.fullmatch(r"\..*\.(\d+)-\d+\.tmp", partial.name)
        if writer and process_start(int(writer[1])) is None:
            partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Atomic, see `write_text`; raises TypeError for what JSON cannot carry."""
    write_text(path, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Raises RunError naming the file where it is missing or is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing; is {path.parent} a run folder?") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it from a copy") from error


def read_versioned(path: Path) -> dict:
    """A JSON object with a `schema_version` that this seedlab knows; RunError naming the file otherwise."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise RunError(f"{path} is damaged: it holds a {type(value).__name__}, not an object")
    check_version(value.get("schema_version"), path)
    return value


def check_version(version: object, where: object) -> None:
    if version != SCHEMA_VERSION:
        found = "no schema version" if version is None else f"schema version {version}"
        raise RunError(f"{where} has {found}; this seedlab reads version {SCHEMA_VERSION}: use the seedlab that wrote it")


def append_line(path: Path, row: dict) -> None:
    """One whole line, on disk before this returns.  Where the disk is full, the file stays as it was (RunError)."""
    data = (json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n").encode()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            before = os.fstat(handle).st_size
            try:
                written = 0
                while written < len(data):
                    written += os.write(handle, data[written:])
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)
    except OSError as error:
        raise disk_error(path, error) from error


def repair_lines(path: Path) -> int:
    """Cut a half-written last line, which a killed writer may leave; returns the bytes that were cut."""
    cut = half_line(path)
    if cut:
        with open(path, "r+b") as out:
            out.truncate(path.stat().st_size - cut)
    return cut


def tail_rows(path: Path, offset: int = 0, check: Callable[[dict, str], None] = lambda row, where: None) -> tuple[list[dict], int]:
    """Rows from byte `offset` on, and the offset behind the last whole line: a half-written one waits.

    Raises Rewritten where the file was rewritten since `offset` was returned, RunError for a damaged line, an
    unknown schema version, or a row that `check(row, where)` refuses.
    """
    path = Path(path)
    try:
        source = open(path, "rb")
    except FileNotFoundError as error:
        if offset:
            raise Rewritten(f"{path} is gone; read again from 0") from error
        return [], 0
    with source:
        if offset:
            source.seek(offset - 1)
            # An offset always stands behind the end of a line.
            if source.read(1) != b"\n":
                raise Rewritten(f"{path} was rewritten since byte {offset} was read; read again from 0")
        data = source.read()
    end = data.rfind(b"\n") + 1
    return [_row(path, offset, number, line, check) for number, line in enumerate(data[:end].split(b"\n")[:-1], 1)], offset + end


def half_line(path: Path) -> int:
    """Bytes behind the last whole line: what a killed writer leaves, and a cut copy."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    return len(data) - (data.rfind(b"\n") + 1)


def _row(path: Path, offset: int, number: int, line: bytes, check: Callable[[dict, str], None]) -> dict:
    where = f"{path}, line {number}" + (f" after byte {offset}" if offset else "")
    try:
        row = json.loads(line)
    except ValueError as error:
        raise RunError(f"{where} is damaged: {error}; repair or remove that line") from error
    if not isinstance(row, dict):
        raise RunError(f"{where} is damaged: it holds a {type(row).__name__}, not an object; repair or remove that line")
    check_version(row.get("schema_version"), where)
    check(row, where)
    return row


def write_lines(path: Path, rows: Iterable[dict]) -> None:
    """The whole file, atomically."""
    write_text(path, "".join(json.dumps(plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def write_folder(final: Path, fill: Callable[[Path], None]) -> Path:
    """A folder that is complete or absent, whenever the process dies: filled under another name, synced, renamed.

    `final` must not exist yet.  What an earlier, killed attempt left is removed first.  Where `fill` fails, nothing is left behind.
    """
    partial = final.with_name(f".tmp-{final.name}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()
        fill(partial)
        sync_tree(partial)
        os.rename(partial, final)
        sync_folder(final.parent)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        # other errors of the operating system are the caller's own, such as a file that `fill` did not find
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
            raise disk_error(final, error) from error
        raise
    return final


def sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            with open(Path(root) / name, "rb") as handle:
                os.fsync(handle.fileno())
        sync_folder(Path(root))
