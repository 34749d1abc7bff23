"""Rows of finished runs: one per configuration and code, whoever appends it and however often."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from seedlab.store import RunError, results
from seedlab.store.files import tail_rows
from seedlab.store.results import append_result

ROW = {"schema_version": 1, "config_hash": "c1", "code": {"source_hash": "s1"}, "seed": 0}


def test_the_same_run_is_appended_once(tmp_path):
    file = tmp_path / "results" / "demo.jsonl"
    assert append_result(file, ROW)
    assert not append_result(file, ROW | {"seconds": 3.0})  # measured again, but nothing new
    assert append_result(file, ROW | {"config_hash": "c2"})
    assert append_result(file, ROW | {"code": {"source_hash": "s2"}})  # other code may give another result
    rows = [(row["config_hash"], row["code"]["source_hash"]) for row in tail_rows(file)[0]]
    assert rows == [("c1", "s1"), ("c2", "s1"), ("c1", "s2")]


def test_runs_that_end_at_the_same_moment_append_one_row_each(tmp_path, monkeypatch):
    def slow(path):
        found = tail_rows(path)
        time.sleep(0.01)  # time for another one to append
        return found

    monkeypatch.setattr(results, "tail_rows", slow)
    file = tmp_path / "demo.jsonl"
    rows = [ROW | {"config_hash": f"c{number % 4}"} for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        appended = list(pool.map(lambda row: append_result(file, row), rows))
    assert sum(appended) == 4
    assert sorted(row["config_hash"] for row in tail_rows(file)[0]) == ["c0", "c1", "c2", "c3"]


def test_a_file_of_another_version_is_named_and_left_alone(tmp_path):
    file = tmp_path / "demo.jsonl"
    file.write_text(json.dumps(ROW | {"schema_version": 2}) + "\n")
    before = file.read_bytes()
    with pytest.raises(RunError, match="demo.jsonl, line 1 has schema version 2"):
        append_result(file, ROW)
    assert file.read_bytes() == before
