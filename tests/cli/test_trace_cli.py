"""trace and envs from the command line: a sample's way through Stage 1, panels with their tasks."""

import shutil

import pytest

from seedlab.store.stage1_files import SFT_ROWS, read_rows


# ---- trace


def test_a_sample_is_traced_to_its_trajectory(seedlab, finished):
    rows = read_rows(finished.path, SFT_ROWS)
    code, out, _ = seedlab("trace", finished.path, "1")
    assert code == 0
    assert f"1. trajectory {rows[1]['trajectory']}:" in out
    assert "2. label by scripted:" in out
    assert "3. verdict: accepted (ok)" in out
    assert f"4. SFT row: split {rows[1]['split']}, {rows[1]['target_tokens']} target tokens of {rows[1]['tokens']}" in out
    assert rows[1]["skill"] in out
    assert seedlab("trace", finished.path, rows[1]["trajectory"])[1] == out


@pytest.mark.parametrize("sample, complaint", [("999", "there is no row 999"), ("s1-/nowhere/n0", "no trajectory 's1-/nowhere/n0'")])
def test_a_sample_that_is_not_there_is_named(seedlab, finished, sample, complaint):
    code, _, err = seedlab("trace", finished.path, sample)
    assert code == 2
    assert complaint in err


def test_a_trace_needs_the_run_alone(seedlab, finished, tmp_path, monkeypatch):
    _, before, _ = seedlab("trace", finished.path)
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path))
    code, out, _ = seedlab("trace", finished.path)
    assert code == 0
    assert out == before


def test_a_run_without_stage_1_has_nothing_to_trace(seedlab, finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "stage1")
    code, _, err = seedlab("trace", tmp_path / "run")
    assert code == 2
    assert "has no Stage 1" in err


# ---- envs


def test_the_ids_of_a_panel_are_printed(seedlab, finished):
    code, out, _ = seedlab("envs", "list", "micro", "--tasks", "dev")
    assert code == 0 and out.split() == finished.manifest["panel_tasks"]["dev"]
    code, _, err = seedlab("envs", "list", "micro", "--tasks", "def")
    assert code == 2 and "did you mean 'dev'" in err


def test_envs_lists_panels_with_their_hashes(seedlab, finished):
    code, out, _ = seedlab("envs", "micro")
    assert code == 0
    for name, panel in finished.manifest["panels"].items():
        assert f"  {name:8s} {panel['tasks']:5d} tasks  hash {panel['hash']}" in out
