"""The runs that ship: made by the documented command, small, sound, and the same settings but for the method."""

import shutil
import subprocess

import pytest
from example_runs import EXAMPLE, ROOT

from seedlab.analysis.checks import check_run
from seedlab.analysis.compare import differing_settings
from seedlab.analysis.frames import load
from seedlab.config.diff import values_of
from seedlab.config.names import flatten
from seedlab.errors import UserError
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.store.reader import Run
from seedlab.train import example
from seedlab.train.example import SETTINGS, cells, drop_weights, make_example

LIMIT = 3_000_000  # bytes


def test_it_has_the_settings_of_the_documented_command():
    made = cells()
    assert sorted(p.name for p in EXAMPLE.iterdir()) == sorted(made)
    own = [*flatten(SETTINGS), "preset", "method", "seed"]  # the preset's other values may move on; what was made stays as it was
    for name, config in made.items():
        there, wanted = values_of(Run(EXAMPLE / name).config), values_of(config)
        assert {k: there[k] for k in own} == {k: wanted[k] for k in own}
        assert Run(EXAMPLE / name).status["state"] == "succeeded"


def test_the_arms_differ_in_the_distillation_term_alone():
    arms = load(EXAMPLE)
    assert list(differing_settings(arms).index) == ["method", "objective.opd_coef"]
    assert all(sorted(arm.runs) == [0, 1, 2] and not arm.problems for arm in arms)
    reference = {(run.manifest["initial"], run.manifest["model"]["hash"]) for arm in arms for run in arm.runs.values()}
    assert len(reference) == 1  # the same theta_sft


def test_it_is_small_and_ships_whole():
    files = [p for p in EXAMPLE.rglob("*") if p.is_file()]
    assert sum(p.stat().st_size for p in files) < LIMIT
    assert not [p for p in files if p.suffix in (".safetensors", ".pt") or p.name == ".writer.lock"]
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout, so that nothing says what is tracked")
    tracked = subprocess.run(["git", "ls-files", "runs/example"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert sorted(tracked) == sorted(str(p.relative_to(ROOT)) for p in files)


@pytest.mark.parametrize("name", sorted(cells()))
def test_it_is_sound(name):
    results = check_run(EXAMPLE / name)
    assert [r for r in results if r.state == "failed"] == [] and sum(r.state == "passed" for r in results) >= 8


def test_weights_go_and_tokenizers_stay(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    drop_weights(tmp_path / "run")
    assert latest_checkpoint(tmp_path / "run") is None and not list((tmp_path / "run").rglob("*.safetensors"))
    assert [r for r in check_run(tmp_path / "run") if r.state == "failed"] == []
    drop_weights(tmp_path / "run")  # again, as an interrupted one is


def test_a_folder_with_other_settings_is_refused(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "seed-s0")
    with pytest.raises(UserError, match="seed-s0 holds a run with other settings"):
        make_example(tmp_path)


def test_finished_runs_are_kept(monkeypatch):
    made = {name: Run(EXAMPLE / name).config for name in cells()}
    monkeypatch.setattr(example, "cells", lambda: made)
    before = {p: p.stat().st_mtime_ns for p in EXAMPLE.rglob("*")}
    assert [run.path.name for run in make_example(EXAMPLE)] == list(made)
    assert {p: p.stat().st_mtime_ns for p in EXAMPLE.rglob("*")} == before
