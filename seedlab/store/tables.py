"""Parquet files whose schema is declared and versioned."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from seedlab.store.errors import RunError
from seedlab.store.files import SCHEMA_VERSION, check_version, disk_error
from seedlab.store.schemas import TABLES

_VERSION_KEY = b"seedlab_schema"


def write_table(path: Path, name: str, frame: pd.DataFrame) -> None:
    """`frame` as table `name` of `schemas.TABLES`; raises ValueError for a missing, unknown or unfit column."""
    schema = TABLES[name]
    missing = [c for c in schema.names if c not in frame.columns]
    unknown = [c for c in frame.columns if c not in schema.names]
    if missing or unknown:
        raise ValueError(f"table {name!r}: missing columns {missing}, unknown columns {unknown}; see seedlab/store/schemas.py")
    try:
        table = pa.Table.from_pandas(frame[schema.names], schema=schema, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"table {name!r}: {'; '.join(str(part) for part in error.args)}") from error
    # pandas' own metadata would take half of a small file, and the declared schema says all of it.
    table = table.replace_schema_metadata({_VERSION_KEY: str(SCHEMA_VERSION).encode()})
    try:
        pq.write_table(table, path, **_encoding(schema))
        with open(path, "rb") as handle:
            os.fsync(handle.fileno())
    except OSError as error:
        raise disk_error(path, error) from error


def _encoding(schema: pa.Schema) -> dict:
    """Bytes of floats apart from each other, which makes tokens and steps about a third smaller; a table has one row
    group, so that statistics would never spare a reader anything."""
    floats = [path for path, kind in _leaves(schema) if pa.types.is_floating(kind)]
    texts = [path for path, kind in _leaves(schema) if pa.types.is_string(kind)]
    return {
        "compression": "zstd", "compression_level": 9, "use_dictionary": texts, "use_byte_stream_split": floats, "write_statistics": False,
    }  # fmt: skip


def _leaves(schema: pa.Schema) -> list[tuple[str, pa.DataType]]:
    """(path as parquet spells it, type) of every column; a list's is that of its elements."""
    return [(f"{f.name}.list.element", f.type.value_type) if pa.types.is_list(f.type) else (f.name, f.type) for f in schema]


def read_table(path: Path, **selection) -> pd.DataFrame:
    """`selection` goes to pyarrow (`columns`, `filters`).  Raises RunError for a missing, truncated or foreign file."""
    try:
        version = (pq.read_schema(path).metadata or {}).get(_VERSION_KEY)
        check_version(None if version is None else int(version), path)
        return pq.read_table(path, partitioning=None, **selection).to_pandas()
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it from a copy, or remove {path.parent} to go without it") from error
