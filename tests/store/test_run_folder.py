"""What is written is read again; what does not fit is refused, and what is damaged is named."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import seedlab
from seedlab.config.presets import load_config
from seedlab.store import RunError, open_run
from seedlab.store.files import read_json, write_json
from seedlab.store.frames import TOKEN_COLUMNS, skill_frame, step_frame, trajectory_frame
from seedlab.store.metrics import METRICS
from seedlab.store.process import alive, own_start, process_start
from seedlab.store.schemas import TABLES
from seedlab.store.status import StatusWriter, read_status
from seedlab.store.writer import RunWriter

DECODING = {"temperature": 0.0, "top_p": 1.0, "n": 1, "seed": 1000}


def frames_of(trajectories):
    skills = [t.skill for t in trajectories if t.skill]
    return {
        "trajectories": trajectory_frame(trajectories, [False] * len(trajectories), [0.5] * len(trajectories)),
        "steps": step_frame(trajectories), "skills": skill_frame(skills),
    }  # fmt: skip


def token_frame(ids):
    values = {name: np.full(len(ids), 0.25) for name in TOKEN_COLUMNS}
    values |= {"trajectory": ids, "text": ["x"] * len(ids), "gate": np.full(len(ids), np.nan)}
    values |= {name: np.arange(len(ids)) for name in ("step", "position", "token_id", "minibatch")}
    return pd.DataFrame(values | {name: np.ones(len(ids), bool) for name in ("mask_policy", "mask_opd", "clipped")})


def episodes(count):
    return pd.DataFrame(
        {
            "panel": "seen", "task": [f"t{i}" for i in range(count)], "task_type": "pick", "n": 0, "return": 1.0, "success": True,
            "steps": 3, "truncated": False, "infra_failure": "", "inadmissible": 0,
        }
    )  # fmt: skip


# ---- writing and reading back


def test_records_come_back_as_they_were_played(writer, trajectories):
    writer.update(0, frames_of(trajectories))
    run = open_run(writer.path)
    assert run.updates == [0]
    assert run.records(0) == trajectories
    assert run.steps(0)["valid"].tolist() == [True, False]
    assert run.skills(0)[["id", "accepted", "reason", "tokens"]].values.tolist() == [["s0", True, "ok", 5]]
    assert (writer.path / "updates" / "000000" / "DONE").exists()


def test_every_column_of_the_design_is_there(writer, trajectories):
    writer.update(0, frames_of(trajectories) | {"tokens": token_frame(["u000000/t/n0"])})
    run = open_run(writer.path)
    wanted = {
        "trajectories": {"id", "update", "task", "n", "seed", "return", "success", "steps", "truncated", "infra_failure", "skill"},
        "steps": {"trajectory", "step", "prompt_ids", "response_ids", "observation", "action", "valid", "finish", "reward"},
        "skills": {"id", "trajectory", "text", "accepted", "reason", "analyzer", "snapshot", "tokens"},
    }  # fmt: skip
    for name, columns in wanted.items():
        assert columns <= set(getattr(run, name)(0).columns), name
    assert {
        "trajectory", "step", "position", "token_id", "text", "mask_policy", "mask_opd", "logp_rollout", "logp_old", "logp_student",
        "logp_teacher", "logp_ref", "entropy", "delta", "gate", "advantage", "ratio", "minibatch",
    } <= set(run.tokens(update=0).columns)  # fmt: skip


def test_tokens_are_found_by_trajectory_and_keep_float32(writer, trajectories):
    frame = token_frame(["u000000/t/n0", "u000000/t/n0", "u000000/t/n1"])
    frame["logp_student"] = np.array([-12.34, -1.0, -2.0], np.float32)
    writer.update(0, frames_of(trajectories) | {"tokens": frame})
    run = open_run(writer.path)
    found = run.tokens("u000000/t/n0")
    assert found["logp_student"].dtype == np.float32 and found["logp_student"].tolist() == [np.float32(-12.34), -1.0]
    assert found["gate"].isna().all()
    assert len(run.tokens(update=0)) == 3
    with pytest.raises(RunError, match="update 0 of .* has no trajectory 'u000000/t/n7'"):
        run.tokens("u000000/t/n7")
    with pytest.raises(RunError, match="'n7' is no trajectory id"):
        run.tokens("n7")


def test_tables_keep_their_types_without_rows(writer):
    writer.update(0, frames_of([]))
    run = open_run(writer.path)
    assert len(run.skills(0)) == 0
    assert [str(t) for t in run.skills(0).dtypes] == ["str", "str", "str", "bool", "str", "str", "int32", "int32", "str"]


def test_a_table_that_does_not_fit_its_schema_is_refused(writer, trajectories):
    frames = frames_of(trajectories)
    with pytest.raises(ValueError, match=r"table 'skills': missing columns \['raw'\], unknown columns \['extra'\]"):
        writer.update(0, {"skills": frames["skills"].drop(columns="raw").assign(extra=1)})
    with pytest.raises(ValueError, match="table 'skills': .*tokens"):
        writer.update(0, {"skills": frames["skills"].assign(tokens="many")})
    assert open_run(writer.path).updates == []


def test_metrics_are_registered_numbers_in_order(writer):
    writer.metrics(0, {"rollout/success": np.float32(0.5), "policy/ratio_max": math.inf})
    writer.metrics(1, {"rollout/success": math.nan, "optim/steps": 2})
    frame = open_run(writer.path).metrics
    assert frame["update"].tolist() == [0, 1] and "schema_version" not in frame
    assert frame["rollout/success"].iloc[0] == 0.5 and math.isnan(frame["rollout/success"].iloc[1])
    assert frame["policy/ratio_max"].iloc[0] == math.inf and frame["optim/steps"].iloc[1] == 2
    with pytest.raises(KeyError, match="metric 'rollout/sucess' is not registered.*did you mean 'rollout/success'"):
        writer.metrics(2, {"rollout/sucess": 1.0})
    with pytest.raises(TypeError, match="metric 'rollout/success' of update 2 is a str"):
        writer.metrics(2, {"rollout/success": "0.5"})
    with pytest.raises(RunError, match="already goes to update 1; update 1 cannot follow"):
        writer.metrics(1, {})
    assert len(open_run(writer.path).metrics) == 2


def test_every_metric_has_a_unit_and_a_sentence():
    assert all(name.count("/") == 1 and unit and len(text) > 8 for name, (unit, text) in METRICS.items())


def test_an_empty_run_gives_empty_frames(writer):
    run = open_run(writer.path)
    assert run.metrics.columns.tolist() == ["update", "time"] and len(run.metrics) == 0
    assert (len(run.events), len(run.evaluations), run.updates, run.stage1) == (0, 0, [], None)


def test_an_evaluation_stores_its_decoding_and_panel(writer):
    summary = {"seen": {"success_macro": 0.5, "success_micro": 0.25, "episodes": 2, "by_type": {}, "panel_hash": "abc", "decoding": DECODING}}
    writer.evaluation(2, episodes(4), summary)
    run = open_run(writer.path)
    row = run.evaluations.iloc[0]
    assert (row["update"], row["panel"], row["panel_hash"], row["decoding"]) == (2, "seen", "abc", DECODING)
    assert len(run.episodes(2)) == 4
    for key in ("temperature", "top_p", "n", "seed"):
        lacking = {"seen": summary["seen"] | {"decoding": {k: v for k, v in DECODING.items() if k != key}}}
        with pytest.raises(ValueError, match=f"panel 'seen' lacks decoding.{key}"):
            writer.evaluation(3, episodes(4), lacking)
    with pytest.raises(ValueError, match="lacks panel_hash"):
        writer.evaluation(3, episodes(4), {"seen": {k: v for k, v in summary["seen"].items() if k != "panel_hash"}})


def test_nothing_is_overwritten(writer, trajectories):
    writer.update(0, frames_of(trajectories))
    writer.update(0, frames_of(trajectories[:1]))
    assert len(open_run(writer.path).trajectories(0)) == 1
    (aside,) = (writer.path / "discarded").iterdir()
    assert aside.name.startswith("updates-000000-")
    assert pq.read_table(aside / "trajectories.parquet").num_rows == 2


# ---- which folder, which process


def test_a_run_folder_has_one_writer_and_one_configuration(tmp_path, config):
    first = RunWriter.create(tmp_path / "run", config)
    with pytest.raises(RunError, match="run already holds a run; `seedlab resume"):
        RunWriter.create(tmp_path / "run", config)
    with pytest.raises(RunError, match="another process is writing"):
        RunWriter.create(tmp_path / "run", config, resume=True)
    first.release()
    other = load_config("micro", ["seed=7", "stage2.learning_rate=1.0"])
    with pytest.raises(RunError, match=r"\(seed: 0 there, 7 here; stage2.learning_rate: \S+ there, 1.0 here\)"):
        RunWriter.create(tmp_path / "run", other, resume=True)
    RunWriter.create(tmp_path / "run", config, resume=True).release()
    assert open_run(tmp_path / "run").config == config


def test_a_folder_with_other_things_is_refused_and_a_job_folder_is_not(tmp_path, config):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match="holds other things than a run .thesis.tex.; choose a new or an empty folder"):
        RunWriter.create(tmp_path, config)
    job = tmp_path / "job"
    job.mkdir()
    for name in ("job.json", "log.txt", "status.json"):
        (job / name).write_text("{}")
    RunWriter.create(job, config).release()


def test_status_moves_with_the_heartbeat(writer):
    writer.start(heartbeat_s=0.02)
    run = open_run(writer.path)
    first = run.status
    assert (first["state"], first["phase"], first["pid"], first["stale"]) == ("running", "starting", os.getpid(), False)
    writer.progress("rollout", 3, 8, "2 successes")
    deadline = time.monotonic() + 5
    while run.status["done"] != 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    now = run.status
    assert (now["phase"], now["done"], now["total"], now["note"]) == ("rollout", 3, 8, "2 successes")
    assert now["heartbeat"] > first["heartbeat"]
    writer.finish("succeeded", exit_code=0)
    assert (run.status["state"], run.status["exit_code"], run.status["phase"]) == ("succeeded", 0, "rollout")
    with pytest.raises(ValueError, match="'done' is no final state"):
        writer.finish("done", exit_code=0)


def _change_status(path, **changes):
    file = path / "status.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_run_whose_process_is_gone_is_lost(writer):
    writer.start()
    writer.release()
    run = open_run(writer.path)
    assert run.status["state"] == "running"
    _change_status(writer.path, process_started="another boot/1")  # the pid belongs to a younger process now
    assert run.status["state"] == "lost" and "without a word" in run.status["error"]
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    started = process_start(child.pid)
    child.wait()
    _change_status(writer.path, pid=child.pid, process_started=started)
    assert run.status["state"] == "lost"
    _change_status(writer.path, state="succeeded")
    assert run.status["state"] == "succeeded"


def test_silence_means_lost_only_where_the_process_cannot_be_asked(writer):
    writer.start()
    writer.release()
    run = open_run(writer.path)
    _change_status(writer.path, heartbeat=time.time() - 61)
    assert (run.status["state"], run.status["stale"]) == ("running", True)
    _change_status(writer.path, host="elsewhere")
    assert (run.status["state"], run.status["stale"]) == ("lost", False)
    _change_status(writer.path, heartbeat=time.time())
    assert run.status["state"] == "running"


def test_a_full_disk_does_not_end_the_heartbeat(writer, monkeypatch, capfd):
    from seedlab.store import status

    writer.start(heartbeat_s=0.02)
    real, failures = status.write_json, []

    def full_at_first(path, value):
        if len(failures) < 3:
            failures.append(1)
            raise RunError(f"{path} could not be written: the disk is full")
        real(path, value)

    monkeypatch.setattr(status, "write_json", full_at_first)
    writer.progress("rollout", 1, 2)
    deadline = time.monotonic() + 5
    while open_run(writer.path).status["done"] != 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_run(writer.path).status["done"] == 1
    assert capfd.readouterr().err.count("heartbeat: ") == 1


def test_a_launcher_falls_silent_once_the_run_speaks_for_itself(tmp_path):
    launcher = StatusWriter(tmp_path, "running", heartbeat_s=0.01, until_taken=True)
    file = tmp_path / "status.json"
    theirs = read_status(tmp_path) | {"pid": 1, "phase": "stage 2"}
    launcher._thread.join(0.1)
    assert launcher._thread.is_alive()  # nobody else has reported
    for _ in range(100):  # a beat that is just under way may still come through once
        write_json(file, theirs)
        launcher._thread.join(0.05)
        if not launcher._thread.is_alive():
            break
    assert not launcher._thread.is_alive()
    write_json(file, theirs)
    assert read_json(file)["phase"] == "stage 2"


def test_a_process_is_known_by_pid_and_start():
    assert alive(os.getpid(), own_start())
    assert not alive(os.getpid(), "0")
    assert process_start(2**22 + 1) is None
    zombie = subprocess.Popen([sys.executable, "-c", "pass"])
    started = process_start(zombie.pid)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # ended, not yet collected
    assert not alive(zombie.pid, started)
    zombie.wait()


# ---- damage


def test_what_is_no_run_folder_is_said_so(tmp_path):
    with pytest.raises(RunError, match="nowhere is not a folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match="holds no config.json, so it is not a run folder"):
        open_run(tmp_path)
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(RunError, match="its run has not begun, so that there is nothing to read. `seedlab logs"):
        open_run(tmp_path)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def _version(path, old, new):
    path.write_text(path.read_text().replace(old, new))


DAMAGE = {
    "config.json is damaged": lambda p: _cut(p / "config.json"),
    "config.json has schema_version 9": lambda p: _version(p / "config.json", '"schema_version": 1', '"schema_version": 9'),
    "status.json is damaged": lambda p: _cut(p / "status.json"),
    "status.json is missing": lambda p: (p / "status.json").unlink(),
    "status.json has schema version 9": lambda p: _version(p / "status.json", '"schema_version": 1', '"schema_version": 9'),
    "status.json is damaged: 'walking' is no state": lambda p: _version(p / "status.json", "running", "walking"),
    "status.json is damaged: it lacks heartbeat": lambda p: _version(p / "status.json", '"heartbeat"', '"beat"'),
    "manifest.json is damaged": lambda p: _cut(p / "manifest.json"),
    "metrics.jsonl, line 1 is damaged": lambda p: _version(p / "metrics.jsonl", "{", "["),
    "events.jsonl, line 1 has no schema version": lambda p: _version(p / "events.jsonl", "schema_version", "version"),
    "000000 has no DONE, so that it is incomplete": lambda p: (p / "updates" / "000000" / "DONE").unlink(),
    "000000/DONE is damaged": lambda p: (p / "updates" / "000000" / "DONE").write_text(""),
    "000000/steps.parquet is damaged": lambda p: _cut(p / "updates" / "000000" / "steps.parquet"),
    "000000/skills.parquet is missing": lambda p: (p / "updates" / "000000" / "skills.parquet").unlink(),
    "skills.parquet has 1 rows, but DONE says 2": lambda p: _version(p / "updates" / "000000" / "DONE", '"skills": 1', '"skills": 2'),
    "summary.json is damaged": lambda p: _cut(p / "eval" / "000001" / "summary.json"),
    "episodes.parquet is damaged": lambda p: (p / "eval" / "000001" / "episodes.parquet").write_bytes(b"PAR1"),
}


@pytest.fixture
def sound(writer, trajectories):
    writer.start()
    writer.manifest({"preset": "micro"})
    writer.metrics(0, {"rollout/success": 0.5})
    writer.event("resumed", update=0)
    writer.update(0, frames_of(trajectories))
    writer.evaluation(1, episodes(2), {"seen": {"success_macro": 1, "success_micro": 1, "episodes": 2, "by_type": {}, "panel_hash": "a", "decoding": DECODING}})
    writer.release()
    return writer.path


def test_a_sound_run_has_no_problems(sound):
    assert open_run(sound).problems() == []
    assert open_run(sound).manifest == {"schema_version": 1, "preset": "micro"}


@pytest.mark.parametrize("message", DAMAGE)
def test_damage_is_named_with_its_file(sound, message):
    DAMAGE[message](sound)
    problems = open_run(sound).problems()
    assert any(message in problem and str(sound) in problem for problem in problems), problems


def test_an_unknown_version_of_a_table_is_refused(sound):
    file = sound / "updates" / "000000" / "skills.parquet"
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({b"seedlab_schema": b"2"}), file)
    with pytest.raises(RunError, match="skills.parquet has schema version 2; this seedlab reads version 1"):
        open_run(sound).skills(0)
    pq.write_table(table.replace_schema_metadata({}), file)
    with pytest.raises(RunError, match="skills.parquet has no schema version"):
        open_run(sound).skills(0)


def test_what_was_not_stored_is_said(sound):
    with pytest.raises(RunError, match="holds no tokens.parquet: store.tokens=all"):
        open_run(sound).tokens(update=0)
    with pytest.raises(RunError, match=r"000005 is not there \(complete ones: 0\)"):
        open_run(sound).trajectories(5)


# ---- resume


def test_resume_moves_what_lies_past_the_checkpoint_and_repairs_a_half_line(sound, config, trajectories):
    writer = RunWriter.create(sound, config, resume=True)
    for update in (1, 2):
        writer.metrics(update, {"rollout/success": float(update)})
        writer.event("rows without OPD", update=update)
        writer.update(update, frames_of(trajectories))
    writer.evaluation(2, episodes(1), {})
    writer.release()
    with open(sound / "metrics.jsonl", "a") as out:
        out.write('{"schema_version": 1, "upda')

    writer = RunWriter.create(sound, config, resume=True)
    assert writer.discard_from(1) == 2
    run = open_run(sound)
    assert run.metrics["update"].tolist() == [0] and run.updates == [0]
    assert run.evaluations["update"].tolist() == [1]  # evaluated before update 1 was made
    assert run.events["kind"].tolist() == ["resumed", "repaired"]
    kept = [json.loads(line) for line in (sound / "metrics.discarded.jsonl").read_text().splitlines()]
    assert [row["update"] for row in kept] == [1, 2]
    assert sorted(p.name.rsplit("-", 1)[0] for p in (sound / "discarded").iterdir()) == ["eval-000002", "updates-000001", "updates-000002"]
    writer.metrics(1, {})  # the numbers are free again
    assert writer.discard_from(5) == 0 and open_run(sound).metrics["update"].tolist() == [0, 1]
    writer.release()


def _output(code):
    env = os.environ | {"PYTHONPATH": str(Path(seedlab.__file__).parents[1])}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout


def test_reading_loads_no_torch():
    code = "import sys, seedlab.store.reader, seedlab.store.writer, seedlab.jobs.listing, seedlab.jobs.submission; print('torch' in sys.modules)"
    assert _output(code) == "False\n"


def test_the_launcher_of_a_job_stays_light():
    code = "import sys, seedlab.jobs.runner; print([m for m in ('pandas', 'numpy', 'pydantic', 'pyarrow') if m in sys.modules])"
    assert _output(code) == "[]\n"


def test_tables_are_declared_once():
    assert set(TABLES) == {"trajectories", "steps", "skills", "step_skills", "more_skills", "prompt_skills", "tokens", "episodes"}
    assert all(len(set(schema.names)) == len(schema.names) for schema in TABLES.values())
