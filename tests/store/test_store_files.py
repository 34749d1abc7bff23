"""Whole or absent: JSON, lines, folders."""

import errno
import math
import os
from pathlib import Path

import numpy as np
import pytest

from seedlab.store import files
from seedlab.store.errors import RunError
from seedlab.store.files import Rewritten, append_line, plain, read_json, repair_lines, tail_rows, write_folder, write_json, write_lines

ROW = {"schema_version": 1}


def test_numbers_reach_json_as_numbers_and_objects_do_not_reach_it_at_all():
    value = {"a": np.float32(0.5), "b": np.int64(3), "c": math.nan, "d": -math.inf, "e": (np.bool_(True), Path("x")), 1: np.arange(2)}
    assert plain(value) == {"a": 0.5, "b": 3, "c": None, "d": "-Infinity", "e": [True, "x"], "1": [0, 1]}
    with pytest.raises(TypeError, match="a object cannot be written as JSON"):
        plain({"a": object()})


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "status.json"
    write_json(file, {"state": "running"})

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RunError, match="status.json could not be written: the disk is full; free some space, then `seedlab resume`"):
        write_json(file, {"state": "failed"})
    assert read_json(file) == {"state": "running"}
    assert os.listdir(tmp_path) == ["status.json"]


def test_a_line_that_does_not_fit_on_the_disk_leaves_no_half(tmp_path, monkeypatch):
    file = tmp_path / "rows.jsonl"
    append_line(file, ROW | {"n": 1})
    real = os.write
    calls = []

    def half_then_full(handle, data):
        calls.append(data)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[:5])

    monkeypatch.setattr(files.os, "write", half_then_full)
    with pytest.raises(RunError, match="disk is full"):
        append_line(file, ROW | {"n": 2})
    monkeypatch.undo()
    append_line(file, ROW | {"n": 3})
    assert [row["n"] for row in tail_rows(file)[0]] == [1, 3]


def test_tail_waits_for_whole_lines_and_goes_on_behind_them(tmp_path):
    file = tmp_path / "rows.jsonl"
    assert tail_rows(file) == ([], 0)
    append_line(file, ROW | {"text": "größer\u2028\r"})
    rows, offset = tail_rows(file)
    assert rows == [ROW | {"text": "größer\u2028\r"}] and offset == file.stat().st_size
    with open(file, "a") as out:
        out.write('{"schema_version": 1, "n"')
    assert tail_rows(file, offset) == ([], offset)
    with open(file, "a") as out:
        out.write(": 2}\n")
    assert tail_rows(file, offset) == ([ROW | {"n": 2}], file.stat().st_size)


def test_tail_notices_a_file_that_was_rewritten(tmp_path):
    file = tmp_path / "rows.jsonl"
    for n in range(3):
        append_line(file, ROW | {"n": n})
    _, offset = tail_rows(file)
    write_lines(file, [ROW | {"n": 0}])
    with pytest.raises(Rewritten, match="rows.jsonl was rewritten since byte"):
        tail_rows(file, offset)
    file.unlink()
    with pytest.raises(Rewritten, match="is gone"):
        tail_rows(file, offset)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "rows.jsonl, line 2 is damaged"),
        ("[1]", "line 2 is damaged: it holds a list, not an object"),
        ('{"schema_version": 2}', "line 2 has schema version 2; this seedlab reads version 1"),
        ('{"n": 2}', "line 2 has no schema version"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, line, message):
    file = tmp_path / "rows.jsonl"
    append_line(file, ROW)
    file.write_text(file.read_text() + line + "\n")
    append_line(file, ROW)
    with pytest.raises(RunError, match=message):
        tail_rows(file)


def test_repair_cuts_only_a_half_written_last_line(tmp_path):
    file = tmp_path / "rows.jsonl"
    assert repair_lines(file) == 0
    append_line(file, ROW)
    whole = file.read_bytes()
    assert repair_lines(file) == 0 and file.read_bytes() == whole
    file.write_bytes(whole + b'{"schema_v')
    assert repair_lines(file) == 10 and file.read_bytes() == whole


def test_what_a_killed_process_left_is_swept_and_a_living_one_is_let_finish(tmp_path):
    for name in (".status.json.4194305-7.tmp", f".status.json.{os.getpid()}-7.tmp", ".mine.tmp"):
        (tmp_path / name).touch()
    files.sweep_partials(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".mine.tmp", f".status.json.{os.getpid()}-7.tmp"]


def test_a_folder_appears_complete_or_not_at_all(tmp_path):
    def fail(folder):
        (folder / "a").write_text("half")
        raise FileNotFoundError("the caller's own mistake")

    with pytest.raises(FileNotFoundError, match="own mistake"):
        write_folder(tmp_path / "x" / "000001", fail)
    assert os.listdir(tmp_path / "x") == []

    def full(folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunError, match="000001 could not be written: the disk is full"):
        write_folder(tmp_path / "x" / "000001", full)
    (tmp_path / "x" / ".tmp-000001").mkdir()  # left by a killed process
    write_folder(tmp_path / "x" / "000001", lambda folder: (folder / "a").write_text("whole"))
    assert os.listdir(tmp_path / "x") == ["000001"]
    assert (tmp_path / "x" / "000001" / "a").read_text() == "whole"
