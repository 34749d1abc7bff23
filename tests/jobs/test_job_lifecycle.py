"""Jobs outlive their parent, say how they ended, and are ended without touching anybody else (E6, F6)."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seedlab.jobs import JobError, attach, group, jobs, jobs_frame, runner, submit, submit_resume, submit_train
from seedlab.jobs.listing import find_run
from seedlab.jobs.record import read_record
from seedlab.jobs.runner import verdict
from seedlab.store.files import read_json, write_json
from seedlab.store.process import process_start

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEP
# what a trainer does: its own status, and a checkpoint before it stops
TRAINER = """
import sys, time
from seedlab.config.presets import load_config
from seedlab.jobs.signals import stop_on_signals
from seedlab.store import RunWriter
with stop_on_signals() as stop:
    writer = RunWriter.create(sys.argv[1] if len(sys.argv) > 1 else RUN, load_config("micro"), resume=True)
    writer.start(heartbeat_s=0.05)
    writer.progress("stage 2", 1, 2)
    print("up", flush=True)
    while not stop.requested:
        time.sleep(0.02)
    writer.finish("interrupted", exit_code=130, error="stopped after update 1 of 2")
    sys.exit(130)
"""
# a parent with a worker in a process of its own, as inference engines have them
ENGINE = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("worker", worker.pid, flush=True)
time.sleep(60)
"""


def pid_of(job, until, word="up"):
    until(lambda: word in job.logs(), "the command's first line")
    return int(job.logs().split()[1]) if word == "worker" else None


def test_a_job_runs_to_its_end(start):
    job = start("a", "print('one'); print('two')")
    status = job.wait(10)
    assert (status["state"], status["exit_code"], status["error"]) == ("succeeded", 0, None)
    assert job.logs() == "one\ntwo" and job.logs(tail=1) == "two"
    record = job.record
    assert record.argv[0] == sys.executable and record.cwd == os.getcwd() and record.pgid == record.pid > 0
    assert attach(job.path).status() == status


def test_a_command_that_ends_before_its_submitter_knows_it_began(start, tmp_path):
    slow = "import atexit, os, sys, time\nif 'seedlab.jobs.runner' in sys.orig_argv:\n    pid = os.getpid()\n"
    slow += "    atexit.register(lambda: time.sleep(1.5) if os.getpid() == pid else None)\n"
    (tmp_path / "sitecustomize.py").write_text(slow)
    started = time.monotonic()
    job = start("a", "print('one')", env={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    assert time.monotonic() - started > 1.4  # the launcher's first process was slow to leave, and was not ended as a worker
    assert job.wait(10)["state"] == "succeeded" and job.logs() == "one"


def test_a_job_that_fails_says_how(start):
    failed = start("a", "import sys; print('why'); sys.exit(3)").wait(10)
    assert (failed["state"], failed["exit_code"], failed["error"]) == ("failed", 3, "exit code 3; the end of log.txt says why")
    killed = start("b", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").wait(10)
    assert (killed["state"], killed["exit_code"]) == ("failed", 137)
    assert killed["error"] == "ended by SIGKILL: killed by hand, or by the system because memory ran out"


def test_a_command_that_does_not_exist_is_named(tmp_path):
    job = submit(["no-such-command"], tmp_path / "a", queue=tmp_path / "queue", snapshot=False, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    status = job.wait(10)
    assert status["state"] == "failed" and status["error"].startswith("no-such-command could not be started")


@pytest.mark.parametrize(
    ("spoken", "code", "cancelled", "state", "exit_code"),
    [
        ({}, 0, False, "succeeded", 0), ({}, 1, False, "failed", 1), ({}, -9, False, "failed", 137), ({}, -15, False, "interrupted", 143),
        ({}, 130, False, "interrupted", 130), ({}, 0, True, "cancelled", 0), ({}, -9, True, "cancelled", 137),
        ({"exit_code": 130, "error": "stopped"}, 130, True, "cancelled", 130),
    ],
)  # fmt: skip
def test_verdicts(spoken, code, cancelled, state, exit_code):
    found = verdict(spoken, code, cancelled)
    assert (found["state"], found["exit_code"]) == (state, exit_code)
    assert found["error"] == spoken["error"] if spoken else True


def test_a_job_outlives_the_process_group_that_submitted_it(tmp_path, until):
    code = f"""
import os, sys, time
from seedlab.jobs import submit
submit([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(1.0); print('done')"], {str(tmp_path / "a")!r},
       queue={str(tmp_path / "queue")!r}, snapshot=False)
print("submitted", flush=True)
time.sleep(60)
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=env, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "submitted\n"
    job = attach(tmp_path / "a")
    assert os.getsid(job.record.pid) == os.getpgid(job.record.pid) == job.record.pid  # no terminal's and no kernel's session
    until(lambda: "up" in job.logs())
    os.killpg(parent.pid, signal.SIGKILL)  # as a kernel that is restarted, and everything in its group with it
    parent.wait()
    parent.stdout.close()
    assert job.wait(10)["state"] == "succeeded" and job.logs() == "up\ndone"


def test_cancel_ends_the_job_and_nobody_else(start, until):
    job, other = start("a", SLEEP), start("b", SLEEP)
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    until(lambda: "up" in job.logs() and "up" in other.logs())
    status = job.cancel(grace_s=5)
    assert (status["state"], status["exit_code"]) == ("cancelled", 143)
    assert group.members(job.record) == []
    assert other.status()["state"] == "running" and bystander.poll() is None
    assert job.cancel() == status  # ended already: nothing happens
    bystander.kill()
    bystander.wait()


def test_cancel_kills_what_does_not_listen(start, until):
    job = start("a", STUBBORN)
    until(lambda: "up" in job.logs())
    started = time.monotonic()
    status = job.cancel(grace_s=0.3)
    assert (status["state"], status["exit_code"]) == ("cancelled", 137)
    assert 0.3 <= time.monotonic() - started < 5 and group.members(job.record) == []


def test_cancel_lets_a_trainer_save_and_keeps_its_words(start, until, tmp_path):
    job = start("a", TRAINER.replace("RUN", repr(str(tmp_path / "a"))))
    until(lambda: "up" in job.logs())
    assert job.status()["pid"] != job.record.pid  # the trainer speaks for itself
    until(lambda: job.status()["phase"] == "stage 2")
    status = job.cancel(grace_s=10)
    assert (status["state"], status["exit_code"], status["error"]) == ("cancelled", 130, "stopped after update 1 of 2")
    assert (status["phase"], status["done"], status["total"]) == ("stage 2", 1, 2)


def test_an_ended_job_stays_what_it_was(start):
    job = start("a", "pass")
    job.wait(10)
    assert job.cancel()["state"] == "succeeded" and not (job.path / "cancel.json").exists()


def test_cancel_leaves_the_workers_to_the_command_that_needs_them_to_save(start, until):
    code = """
import signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
def save(*_):
    time.sleep(0.3)
    print("saved with its worker" if worker.poll() is None else "its worker was gone", flush=True)
    sys.exit(130)
signal.signal(signal.SIGTERM, save)
print("worker", worker.pid, flush=True)
time.sleep(60)
"""
    job = start("a", code)
    pid_of(job, until, "worker")
    assert job.cancel(grace_s=20)["state"] == "cancelled"
    assert job.logs(tail=1) == "saved with its worker" and group.members(job.record) == []


def test_workers_end_with_their_parent(start, until):
    job = start("a", ENGINE)
    worker = pid_of(job, until, "worker")
    started = process_start(worker)
    engine = next(pid for pid in group.members(job.record) if pid not in (worker, job.record.pid))
    os.kill(engine, signal.SIGKILL)
    assert job.wait(10)["state"] == "failed"
    until(lambda: process_start(worker) != started)


def test_a_command_that_just_ended_is_not_yet_lost(start, until):
    job = start("a", SLEEP)
    until(lambda: "up" in job.logs())
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    write_json(job.path / "status.json", read_json(job.path / "status.json") | {"pid": gone.pid})
    assert (job.status()["state"], job.status()["phase"], job.status()["error"]) == ("running", "ending", None)
    os.kill(job.record.pid, signal.SIGKILL)
    until(lambda: job.status()["state"] == "lost")


def test_what_a_killed_launcher_left_is_ended_by_the_next_stop_or_start(start, until):
    stopped, restarted = start("a", ENGINE), start("b", ENGINE)
    other = start("c", SLEEP)
    for job in (stopped, restarted):
        pid_of(job, until, "worker")
        os.kill(job.record.pid, signal.SIGKILL)
        until(lambda job=job: not job.live)
        assert job.status()["state"] == "lost" and len(group.members(job.record)) == 2
    left = [(pid, process_start(pid)) for job in (stopped, restarted) for pid in group.members(job.record)]
    assert stopped.cancel(grace_s=5)["state"] == "cancelled"
    old = restarted.record
    again = start("b", "print('again')")
    assert again.wait(10)["state"] == "succeeded"
    assert [p["id"] for p in again.record.previous] == [old.id]
    assert all(process_start(pid) != started for pid, started in left)
    assert other.status()["state"] == "running"


def test_a_pid_that_somebody_else_has_now_is_left_alone(start, until):
    job = start("a", "pass")
    job.wait(10)
    until(lambda: not job.live)
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    record = read_json(job.path / "job.json")
    write_json(job.path / "job.json", record | {"pid": stranger.pid, "pgid": stranger.pid, "process_started": record["process_started"]})
    status = read_json(job.path / "status.json")
    write_json(job.path / "status.json", status | {"state": "running", "pid": stranger.pid})
    assert job.status()["state"] == "lost" and group.members(job.record) == []
    assert job.cancel(grace_s=0.1)["state"] == "lost"
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_living_job_is_not_started_twice(start, until):
    job = start("a", SLEEP)
    until(lambda: "up" in job.logs())
    with pytest.raises(JobError, match=r"/a is still running \(process \d+\); `seedlab cancel .*/a` ends it"):
        start("a", SLEEP)
    assert read_record(job.path) == job.record


def test_jobs_of_another_machine_are_not_touched(start):
    job = start("a", "pass")
    job.wait(10)
    write_json(job.path / "job.json", read_json(job.path / "job.json") | {"host": "elsewhere"})
    with pytest.raises(JobError, match="runs on elsewhere; cancel it there"):
        job.cancel()


def test_a_job_runs_the_code_that_was_submitted(tmp_path):
    job = submit(
        [sys.executable, "-m", "seedlab.store.process_probe"], tmp_path / "a", queue=tmp_path / "queue", slots=1,
    )  # fmt: skip
    job.wait(10)
    copy = job.path / job.record.code
    assert (copy / "seedlab" / "jobs" / "runner.py").read_text() == Path(runner.__file__).read_text()
    # the module does not exist; the traceback's interpreter was asked for the copy, not for the present folder
    (copy / "seedlab" / "store" / "process_probe.py").write_text("print(__file__)")
    again = submit([sys.executable, "-m", "seedlab.store.process_probe"], tmp_path / "a", queue=tmp_path / "queue", slots=1)
    assert again.wait(10)["state"] == "succeeded"
    assert again.logs(tail=1) == str(copy / "seedlab" / "store" / "process_probe.py")
    assert set(os.listdir(job.path / "code")) == {Path(job.record.code).name}


def test_no_environment_variable_is_written(start, tmp_path):
    job = start("a", "import os; print(os.environ['OPENAI_API_KEY'][::-1])", env={"OPENAI_API_KEY": "sk-canary"})
    job.wait(10)
    assert job.logs() == "yranac-ks"
    for file in job.path.rglob("*"):
        assert not file.is_file() or b"sk-canary" not in file.read_bytes(), file


def test_train_and_resume_are_checked_before_they_start(tmp_path):
    from seedlab.errors import ConfigError
    from seedlab.store import RunError

    with pytest.raises(ConfigError, match="did you mean"):
        submit_train("micro", ["stage2.update=3"], run_path=tmp_path / "a")
    with pytest.raises(RunError, match="is not a folder"):
        submit_resume(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text("{}")
    with pytest.raises(JobError, match="already holds a run; `seedlab resume` .in Python: submit_resume. goes on"):
        submit_train("micro", run_path=tmp_path / "b")
    assert not (tmp_path / "a").exists()


def test_runs_are_listed_whatever_their_state(start, tmp_path, until):
    done, running = start("runs/x/done", "pass"), start("runs/running", SLEEP)
    done.wait(10)
    until(lambda: "up" in running.logs())
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "status.json").write_text("{")
    (tmp_path / "runs" / "notes").mkdir()
    rows = {row["name"]: row for row in jobs(tmp_path / "runs")}
    assert {name: row["state"] for name, row in rows.items()} == {"broken": "damaged", "running": "running", "x/done": "succeeded"}
    assert "status.json is damaged" in rows["broken"]["error"]
    assert jobs_frame(tmp_path / "runs")["state"].tolist() == ["damaged", "running", "succeeded"]
    assert json.loads(json.dumps(list(rows.values())))
    assert find_run("x/done", tmp_path / "runs") == tmp_path / "runs" / "x" / "done"
    with pytest.raises(JobError, match="runing is not a run folder: there is no such folder; known runs: "):
        find_run("runing", tmp_path / "runs")
    with pytest.raises(JobError, match="x is not a run folder: it has no config.json. It holds runs; name one: .*done"):
        find_run("x", tmp_path / "runs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(JobError, match="empty is not a run folder: it has no config.json"):
        find_run(tmp_path / "empty")
    with pytest.raises(JobError, match="nowhere is not a folder"):
        jobs(tmp_path / "nowhere")


def test_attach_says_what_a_folder_is_not(tmp_path):
    with pytest.raises(JobError, match="holds no job.json, so it is not a job"):
        attach(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(JobError, match="was not started in the background.*with Ctrl-C"):
        attach(tmp_path)
