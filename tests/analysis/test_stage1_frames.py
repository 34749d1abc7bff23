"""Stage 1's frames on the example that ships: real labels, real verdicts, every sample traceable in the run folder."""

import gzip
import json
import shutil

import pytest
from example_runs import EXAMPLE

from seedlab import analysis
from seedlab.cli.main import main
from seedlab.errors import UserError
from seedlab.store import RunError, open_run
from seedlab.store.stage1_files import LABELS, SFT_ROWS, TRAJECTORIES, read_rows

RUN = EXAMPLE / "seed-s0"


@pytest.fixture
def rejecting(tmp_path):
    """A copy of the run in which the label of SFT row 2 was rejected as too long."""
    copy = tmp_path / "rejecting"
    shutil.copytree(RUN, copy)
    rows, labels = read_rows(copy, SFT_ROWS), read_rows(copy, LABELS)
    name = rows.pop(2)["trajectory"]
    label = next(s for s in labels if s["trajectory_id"] == name)
    label |= {"accepted": False, "reason": "too_long"}
    for file, content in ((SFT_ROWS, rows), (LABELS, labels)):
        with gzip.open(copy / "stage1" / file, "wt") as out:
            out.writelines(json.dumps(row) + "\n" for row in content)
    return copy, name


def test_every_label_has_its_trajectory_and_its_fate():
    frame, record = analysis.labels(RUN), open_run(RUN).stage1
    assert len(frame) == record["labels"] and frame["accepted"].sum() == record["accepted"]
    assert frame["reason"].value_counts().to_dict() == record["reasons"]
    assert (frame["split"] == "train").sum() == record["train_rows"] and (frame["split"] == "held_out").sum() == record["held_out_rows"]
    assert (frame.loc[~frame["accepted"], "split"] == "").all()
    assert frame["success"].sum() == record["successes"]


def test_base_rollouts_are_counted_by_type():
    frame, record = analysis.collected(RUN), open_run(RUN).stage1
    assert frame["trajectories"].sum() == record["trajectories"] and frame["successes"].sum() == record["successes"]
    assert frame["tasks"].sum() == record["tasks"] and (frame["success"] == frame["successes"] / frame["trajectories"]).all()


def test_verdicts_are_shares_of_each_analyzer():
    frame = analysis.verdicts(RUN)
    assert frame.groupby("analyzer")["share"].sum().tolist() == pytest.approx([1.0] * 3)
    external = frame[frame["analyzer"] == "external (scripted)"].set_index("reason")["skills"]
    assert external.to_dict() == open_run(RUN).stage1["reasons"]


def test_before_and_after_are_shares_of_what_was_measured():
    frame, record = analysis.before_after(RUN).set_index("measure"), open_run(RUN).stage1
    accepted = frame.loc["own skills that pass validation"]
    assert accepted["after"] == record["after"]["own_skills_accepted"] / record["after"]["own_skills"] and accepted["of"] == record["after"]["own_skills"]
    assert frame.loc["loss on held-out skill tokens, nats", "after"] == record["after"]["held_out_loss"]
    assert frame.drop("loss on held-out skill tokens, nats")[["before", "after"]].stack().between(0, 1).all()


def test_the_loss_has_a_value_per_step():
    frame, record = analysis.sft_losses(RUN), open_run(RUN).stage1
    assert frame["step"].tolist() == list(range(1, record["sft_steps"] + 1))
    assert frame["loss"].iloc[0] == pytest.approx(record["first_loss"], abs=1e-4)
    assert frame["loss"].iloc[-10:].mean() == pytest.approx(record["last_loss"], abs=1e-4)


def test_a_sample_is_the_chain_that_the_command_prints(capsys):
    rows = read_rows(RUN, SFT_ROWS)
    found = analysis.sample(RUN, 3)
    assert found.row == rows[3] and found.trajectory["id"] == found.label["trajectory_id"] == rows[3]["trajectory"]
    assert found.label["accepted"] and found.label["text"] == rows[3]["skill"]
    assert main(["trace", str(RUN), "3"]) == 0
    assert capsys.readouterr().out == f"{found}\n"
    assert str(analysis.sample(RUN, rows[3]["trajectory"])) == str(found)


def test_a_rejected_label_is_traced_without_a_row(rejecting):
    run, name = rejecting
    frame = analysis.labels(run)
    assert frame.set_index("trajectory").loc[name, ["accepted", "reason", "split"]].tolist() == [False, "too_long", ""]
    found = analysis.sample(run, name)
    assert found.row is None and "3. verdict: rejected (too_long)" in str(found) and "4. SFT row: none" in str(found)


def test_what_is_missing_or_damaged_is_named(tmp_path):
    with pytest.raises(UserError, match="no row 100000"):
        analysis.sample(RUN, 100_000)
    with pytest.raises(UserError, match="no trajectory 's1-/nowhere/n0'"):
        analysis.sample(RUN, "s1-/nowhere/n0")
    copy = tmp_path / "run"
    shutil.copytree(RUN, copy)
    (copy / "stage1" / LABELS).write_bytes(b"not gzip")
    with pytest.raises(RunError, match=f"{LABELS} is damaged"):
        analysis.labels(copy)
    (copy / "stage1" / LABELS).unlink()
    with pytest.raises(RunError, match=f"{LABELS} is not there"):
        analysis.labels(copy)
    record = json.loads((copy / "stage1" / "stage1.json").read_text())
    (copy / "stage1" / "stage1.json").write_text(json.dumps({k: v for k, v in record.items() if k != "losses"}))
    with pytest.raises(UserError, match="before Stage 1 kept its losses"):
        analysis.sft_losses(copy)
    (copy / "stage1" / "stage1.json").unlink()
    with pytest.raises(UserError, match="no Stage 1"):
        analysis.verdicts(copy)


def test_kept_trajectories_are_text_alone():
    played = read_rows(RUN, TRAJECTORIES)
    assert all(set(t) == {"id", "task", "task_type", "goal", "success", "return", "final_observation", "steps"} for t in played)
    assert all(set(s) == {"observation", "action", "valid"} for t in played for s in t["steps"])
    with gzip.open(RUN / "stage1" / TRAJECTORIES) as file:
        assert b"logprobs" not in file.read()
