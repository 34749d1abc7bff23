"""Files that are whole or absent: atomic JSON, whole lines of JSON, versioned parquet."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Iterable

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from seedlab.store.errors import RunError

SCHEMA_VERSION = 1
_VERSION_KEY = b"seedlab_schema"


def write_json(path: Path, value: Any) -> None:
    """Atomic: a reader sees the old file or the new one, never half of one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(partial, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=1, ensure_ascii=False, default=str)
        out.flush()
        os.fsync(out.fileno())
    os.replace(partial, path)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing; is this a run folder?") from error
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def append_line(path: Path, row: dict) -> None:
    """One whole line, on disk before this returns."""
    data = (json.dumps(row, ensure_ascii=False, default=str) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(handle, data)
        os.fsync(handle)
    finally:
        os.close(handle)


def repair_lines(path: Path) -> int:
    """Cut a half-written last line, which a killed writer may leave; returns the bytes that were cut."""
    if not path.exists():
        return 0
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        with open(path, "r+b") as out:
            out.truncate(end)
    return len(data) - end


def tail_rows(path: Path, offset: int = 0) -> tuple[list[dict], int]:
    """Rows from byte `offset` on, and the offset behind the last whole line: a half-written one waits."""
    if not path.exists():
        return [], offset
    with open(path, "rb") as source:
        source.seek(offset)
        data = source.read()
    end = data.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(data[:end].splitlines()):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise RunError(f"{path}: line {number + 1} after byte {offset} is damaged: {error}") from error
    return rows, offset + end


def write_lines(path: Path, rows: Iterable[dict]) -> None:
    partial = path.with_name(f".{path.name}.tmp")
    with open(partial, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(partial, path)


def write_parquet(path: Path, frame: pd.DataFrame) -> None:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _VERSION_KEY: str(SCHEMA_VERSION).encode()})
    pq.write_table(table, path, compression="zstd")


def read_parquet(path: Path) -> pd.DataFrame:
    """Raises RunError for a missing, truncated or foreign file."""
    if not path.exists():
        raise RunError(f"{path} is missing; the run did not store it (store.tokens) or did not get that far")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
    version = (table.schema.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if version != str(SCHEMA_VERSION):
        raise RunError(f"{path} has schema version {version}; this seedlab reads version {SCHEMA_VERSION}")
    return table.to_pandas()
