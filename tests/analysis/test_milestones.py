"""The learning path's steps, verified on the example that ships and broken one by one."""

import json
import shutil

import pandas as pd
import pytest
from example_runs import EXAMPLE

from seedlab.analysis.milestones import PATH, _all_updates, _hardware, _panel_sizes, _tables, milestones
from seedlab.cli.main import main
from seedlab.config.presets import load_config
from seedlab.store.reader import open_run
from seedlab.store.tables import write_table

RUN = EXAMPLE / "seed-s0"


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    return tmp_path / "run"


def states(path):
    return {m.name: m.state for m in milestones(path)}


def test_the_example_has_all_of_levels_one_and_two(capsys):
    found = milestones(RUN)
    assert [m.name for m in found] == [name for _, name, _ in PATH]
    assert {m.level: m.state for m in found if m.level < 3} == {1: "passed", 2: "passed"}
    assert all(m.state == "passed" for m in found if m.level < 3) and all(m.state == "not checked" for m in found if m.level == 3)
    assert main(["milestones", str(RUN)]) == 0
    out = capsys.readouterr().out
    assert "1. understand: 6 of 6" in out and "2. minimal reproduction: 6 of 6" in out and "3. full reproduction on 8 GPUs: 0 of 4" in out


def test_a_rollout_that_does_not_repeat_fails(copy, capsys):
    update = open_run(copy).updates[0]
    steps = open_run(copy).steps(update)
    steps.loc[1, "observation"] = "You see a unicorn."
    write_table(copy / "updates" / f"{update:06d}" / "steps.parquet", "steps", steps)
    assert states(copy)["one rollout replayed"] == "failed"
    assert main(["milestones", str(copy)]) == 1
    assert "record has 'You see a unicorn.'" in capsys.readouterr().out


def test_a_wrong_outcome_fails(copy):
    update = open_run(copy).updates[0]
    played = open_run(copy).trajectories(update)
    played.loc[0, "success"] = not played.loc[0, "success"]
    write_table(copy / "updates" / f"{update:06d}" / "trajectories.parquet", "trajectories", played)
    assert states(copy)["one rollout replayed"] == "failed"


def test_without_stage_1_its_steps_are_not_checked(copy):
    shutil.rmtree(copy / "stage1")
    found = states(copy)
    assert found["both stages are in the run"] == found["one SFT sample traced"] == "not checked"


def test_a_method_without_distillation_has_no_signal():
    found = states(EXAMPLE / "grpo-s0")
    assert found["a non-zero, stable OPD signal"] == found["the gate is sigmoid(beta Δ)"] == "not checked"
    assert found["advantages recomputed, 0 in tied groups"] == "passed"


class PaperRun:
    """What the third level asks a run: a stand-in at the paper's scale, which no test machine can make."""

    def __init__(self, preset="paper/alfworld-qwen2.5-3b", rows=150, state="succeeded", gpus=8, **changes):
        self.config = load_config(preset, changes)
        self.status, self.metrics = {"state": state}, pd.DataFrame({"update": range(rows)})
        panels = {name: {"tasks": size} for name, size in self.config.env.panel_sizes.items()}
        self.manifest = {"panels": panels, "hardware": {"gpus": ["A800"] * gpus}}


def test_the_paper_preset_is_the_papers_tables():
    run = PaperRun()
    assert _tables(run).startswith("all ") and "train 2400" in _panel_sizes(run)
    assert _hardware(run).count("A800") == 8 and _all_updates(run) == "150 updates, succeeded"


@pytest.mark.parametrize(
    "verify, run, complaint",
    [
        (_tables, PaperRun(**{"stage2.learning_rate": 1e-5}), r"1 of \d+ values .*stage2.learning_rate"),
        (_all_updates, PaperRun(rows=40, state="interrupted"), "40 of 150 updates, interrupted"),
        (_hardware, PaperRun(gpus=1), "1 GPUs"),
    ],
)
def test_what_is_not_the_papers_is_said(verify, run, complaint):
    with pytest.raises(Exception, match=complaint):
        verify(run)


def test_a_panel_of_another_size_fails():
    run = PaperRun()
    run.manifest = json.loads(json.dumps(run.manifest))
    run.manifest["panels"]["seen"]["tasks"] = 96
    with pytest.raises(Exception, match="manifest"):
        _panel_sizes(run)
