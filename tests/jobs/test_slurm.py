"""Slurm: one plain script, honest states, requeue before the time limit, and never another job's id."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from seedlab.cli.main import main
from seedlab.jobs import JobError, attach, jobs, slurm, submit
from seedlab.jobs.nodes import nodes_environment
from seedlab.store import open_run
from seedlab.store.files import read_json, write_json

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
# what `seedlab train --resume` does: ends at the second start; before, it works until it is asked to stop
TRAINER = """
import sys, time
from pathlib import Path
from seedlab.config.presets import load_config
from seedlab.jobs.signals import stop_on_signals
from seedlab.store import RunWriter
with stop_on_signals() as stop:
    run = Path(sys.argv[1])
    writer = RunWriter.create(run, load_config("micro"), resume=True)
    writer.start(heartbeat_s=0.05)
    starts = run / "starts.txt"
    starts.write_text((starts.read_text() if starts.exists() else "") + "x")
    print("up", len(starts.read_text()), flush=True)
    while len(starts.read_text()) < int(sys.argv[2]):
        if stop.requested:
            if len(sys.argv) == 3:
                writer.links([{"name": f"link {len(starts.read_text())}", "state": "done", "seconds": 0.0}])
            writer.finish("interrupted", exit_code=130, error="stopped after update 1 of 2")
            sys.exit(130)
        time.sleep(0.02)
    writer.finish("succeeded", exit_code=0)
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A Slurm of the test's own on PATH; its folder is returned.  What is left of its jobs is ended."""
    root, bin_folder = tmp_path / "slurm", tmp_path / "bin"
    root.mkdir()
    bin_folder.mkdir()
    fake = Path(__file__).with_name("fake_slurm.py")
    for name in ("sbatch", "squeue", "scancel", "scontrol", "srun"):
        (bin_folder / name).write_text(f"#!/bin/sh\nexec {sys.executable} -S {fake} {name} \"$@\"\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(root))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    yield root
    (root / "hold").unlink(missing_ok=True)
    for file in root.glob("*.json"):
        job = read_json(file)
        write_json(file, job | {"state": "CANCELLED", "requeue": False})
        if job["pid"]:
            try:
                os.killpg(job["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass


@pytest.fixture
def hand_over(tmp_path, cluster):
    def start(name, code, *arguments, **options):
        return submit([sys.executable, "-c", code, *map(str, arguments)], tmp_path / name, backend="slurm", snapshot=False, scheduler_options=options)

    return start


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return value


def test_a_job_waits_runs_and_says_how_it_ended(hand_over, cluster, tmp_path):
    (cluster / "hold").touch()
    job = hand_over("a", "import os; print(os.environ['SLURM_JOB_ID']); raise SystemExit(3)", time="01:00:00", **{"gpus-per-node": 8})
    assert (job.record.backend, job.record.external_id, job.record.pid) == ("slurm", "1000", 0)
    assert job.status()["state"] == "queued"
    assert [row["state"] for row in jobs(tmp_path)][:1] == ["queued"]
    write_json(job.path / "status.json", read_json(job.path / "status.json") | {"heartbeat": 0.0, "pid": 1})
    assert job.status()["state"] == "queued"  # no process, and no heartbeat, for days: Slurm still has it
    with pytest.raises(JobError, match="is still queued .slurm job 1000.; `seedlab cancel"):
        hand_over("a", SLEEP)
    (cluster / "hold").unlink()
    status = job.wait(60)
    assert (status["state"], status["exit_code"], status["error"]) == ("failed", 3, "exit code 3; the end of log.txt says why")
    assert job.logs() == "1000" and job.record.pid > 0
    lines = (job.path / "job.sbatch").read_text().splitlines()
    assert "#SBATCH --gpus-per-node=8" in lines and "#SBATCH --signal=B:USR1@300" in lines and "#SBATCH --requeue" in lines
    assert lines[0] == "#!/bin/bash" and lines[-1].startswith("exec ")


def test_before_the_time_limit_it_saves_is_requeued_and_goes_on(hand_over, cluster, tmp_path):
    job = hand_over("a", TRAINER, tmp_path / "a", 2)
    wait_for(lambda: "up 1" in job.logs())
    (cluster / "hold").touch()
    os.kill(read_json(cluster / "1000.json")["pid"], signal.SIGUSR1)  # Slurm's warning, to the batch script alone
    wait_for(lambda: read_json(cluster / "1000.json")["state"] == "PENDING")
    assert (job.status()["state"], job.status()["note"]) == ("queued", "requeued before the time limit")
    assert open_run(job.path).status["state"] == "queued"  # nobody who reads the folder takes it for lost
    assert read_json(cluster / "1000.json")["code"] == 75
    (cluster / "hold").unlink()
    assert job.wait(60)["state"] == "succeeded"
    assert job.logs().splitlines() == ["up 1", "up 2"]
    assert (cluster / "calls.txt").read_text().splitlines() == ["sbatch 1000", "requeue 1000"]


@pytest.mark.full
def test_a_job_that_gets_no_further_is_not_requeued_for_ever(hand_over, cluster, tmp_path):
    job = hand_over("a", TRAINER, tmp_path / "a", 99, "idle")
    for number in range(1, 5):
        wait_for(lambda number=number: f"up {number}" in job.logs())
        os.kill(read_json(cluster / "1000.json")["pid"], signal.SIGUSR1)
    status = job.wait(60)
    assert status["state"] == "interrupted"
    assert status["error"].startswith("not requeued: 3 allocations in a row ended before a link or a checkpoint was complete; ask for a longer")


@pytest.mark.full
def test_where_requeueing_is_off_it_says_how_to_go_on(hand_over, cluster, tmp_path):
    (cluster / "no-requeue").touch()
    job = hand_over("a", TRAINER, tmp_path / "a", 2)
    wait_for(lambda: "up 1" in job.logs())
    os.kill(read_json(cluster / "1000.json")["pid"], signal.SIGUSR1)
    status = job.wait(60)
    assert (status["state"], status["exit_code"]) == ("interrupted", 130)
    assert status["error"] == "not requeued: Requested operation is presently disabled; `seedlab resume` goes on"


def test_cancel_asks_first_and_touches_this_job_only(hand_over, cluster, tmp_path):
    job, other = hand_over("a", TRAINER, tmp_path / "a", 2), hand_over("b", SLEEP)
    wait_for(lambda: "up 1" in job.logs() and "up" in other.logs())
    status = job.cancel(grace_s=30)
    assert (status["state"], status["error"]) == ("cancelled", "stopped after update 1 of 2")
    assert "scancel" not in (cluster / "calls.txt").read_text()  # it listened
    assert other.status()["state"] == "running"
    (cluster / "hold").touch()
    waiting = hand_over("c", SLEEP)
    assert waiting.cancel()["state"] == "cancelled"
    assert (cluster / "calls.txt").read_text().splitlines()[-1] == f"scancel {waiting.record.external_id}"
    assert other.status()["state"] == "running"


@pytest.mark.full
def test_a_killed_job_is_lost_and_a_preempted_one_queued(hand_over, cluster):
    job, preempted = hand_over("a", SLEEP), hand_over("b", SLEEP)
    wait_for(lambda: "up" in job.logs() and "up" in preempted.logs())
    (cluster / "hold").touch()
    file = cluster / "1001.json"
    write_json(file, read_json(file) | {"requeue": True})  # as Slurm does by itself
    for each in (job, preempted):
        os.killpg(each.record.pid, signal.SIGKILL)
    wait_for(lambda: read_json(cluster / "1000.json")["state"] == "FAILED" and read_json(file)["state"] == "PENDING")
    status = job.status()
    assert (status["state"], status["error"]) == ("lost", "slurm no longer has job 1000, and the job itself said nothing")
    assert (preempted.status()["state"], preempted.status()["note"]) == ("queued", "slurm will start it again")
    (cluster / "hold").unlink()
    wait_for(lambda: preempted.logs().count("up") == 2)
    assert preempted.cancel(grace_s=0.1)["state"] == "cancelled"


def test_what_sbatch_refuses_is_told_and_nothing_is_left_waiting(hand_over, cluster):
    (cluster / "refuse").touch()
    with pytest.raises(JobError, match="sbatch refused the job: sbatch: error: Batch job submission failed: Invalid account"):
        hand_over("a", SLEEP)
    assert attach(cluster.parent / "a").status()["state"] == "failed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tme": "1"}, "unknown option of sbatch 'tme'; did you mean 'time'"),
        ({"output": "x"}, "unknown option of sbatch 'output'.*set by seedlab"),
        ({"partition": "a b"}, "no spaces"),
        ({"comment": "$(id)"}, "no spaces, quotes or dollar"),
        ({"signal": "TERM@60"}, "write B:USR1@SECONDS"),
    ],
)
def test_options_are_checked_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(JobError, match=message):
        submit(["true"], tmp_path / "a", backend="slurm", scheduler_options=options)
    assert not (tmp_path / "a").exists()


def test_without_slurm_the_command_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(["submit", "micro", "--backend", "slurm", "--out", "a"]) == 2
    assert "sbatch is not installed here; submit from a login node" in capsys.readouterr().err
    assert main(["submit", "micro", "--slurm", "time=1", "--out", "b"]) == 2
    assert "--slurm time=1 is for --backend slurm" in capsys.readouterr().err


def test_a_run_on_verl_asks_for_the_machines_of_its_configuration(cluster, tmp_path, monkeypatch):
    from seedlab.jobs import submit_resume, submission, submit_train

    monkeypatch.setattr(submission, "snapshot_code", lambda run: None)
    (cluster / "hold").touch()
    job = submit_train("paper/alfworld-qwen3-1.7b", ["cluster.nodes=2"], run_path=tmp_path / "a", until="stage1", backend="slurm", scheduler_options={"time": "1:00"})
    lines = (job.path / "job.sbatch").read_text().splitlines()
    assert {"#SBATCH --nodes=2", "#SBATCH --gpus-per-node=8", "#SBATCH --time=1:00"} <= set(lines)
    assert job.record.argv[-3:] == ["--resume", "--until", "stage1"]
    assert job.cancel()["state"] == "cancelled"
    again = submit_resume(tmp_path / "a", backend="slurm", scheduler_options={"nodes": 1})  # it never began: its configuration is in job.json
    assert "#SBATCH --nodes=1" in (again.path / "job.sbatch").read_text() and again.record.config == job.record.config
    assert again.record.argv[-2:] == ["resume", str(tmp_path / "a")]


def test_the_script_holds_no_variable_of_the_submitter(tmp_path):
    from seedlab.jobs.record import JobRecord

    run = tmp_path / "50% of it"
    record = JobRecord("i", str(run), ["x"], "/", "h", 0.0, "q", 1, None, None, [])
    text = slurm.script(run, record, {"OPENAI_API_KEY": "sk-canary", "PYTHONPATH": "/code dir"}, {"nodes": 2, "signal": "B:USR1@600"})
    assert "sk-canary" not in text and "export PYTHONPATH='/code dir'" in text and "SEEDLAB_SLURM_LEAD_S=600" in text
    assert f'#SBATCH --output="{tmp_path}/50%% of it/log.txt"' in text and text.count("--signal=") == 1 and "#SBATCH --nodes=2" in text


def test_one_machine_needs_no_cluster(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NUM_NODES", raising=False)
    with nodes_environment(tmp_path) as env:
        assert env == {} and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("joined", [2, 1])
def test_several_machines_become_one_ray_cluster_for_as_long_as_the_command_runs(tmp_path, cluster, monkeypatch, joined):
    from seedlab.jobs import nodes, ray_cluster

    ray = tmp_path / "bin" / "ray"
    ray.write_text('#!/bin/sh\necho "$@" "$RAY_AUTH_MODE" >> "$FAKE_SLURM/ray.txt"\nexec sleep 60\n')
    ray.chmod(0o755)
    monkeypatch.setattr(ray_cluster, "ray_command", lambda: str(ray))
    monkeypatch.setattr(nodes, "COUNT", f"print('nodes', {joined})")
    monkeypatch.setattr(nodes, "START_S", 3.0)
    for name, value in {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n1,n2", "SLURM_JOB_ID": "1234"}.items():
        monkeypatch.setenv(name, value)
    if joined == 1:
        with pytest.raises(JobError, match="did not come up: 1 of 2 machines joined within 3 s; see"), nodes_environment(tmp_path):
            pass
    else:
        with nodes_environment(tmp_path) as env:
            assert (env["RAY_ADDRESS"], env["MASTER_ADDR"], env["NNODES"]) == ("n1:24936", "n1", "2")
            assert os.stat(env["RAY_AUTH_TOKEN_PATH"]).st_mode & 0o777 == 0o600
            wait_for(lambda: len((cluster / "ray.txt").read_text().splitlines()) == 2)
            head, worker = sorted((cluster / "ray.txt").read_text().splitlines(), key=lambda line: "--head" not in line)
            assert head.startswith("start --head --block --port=24936 ") and worker == "start --address=n1:24936 --block --disable-usage-stats token"
    assert "--exclude=n1" in (cluster / "calls.txt").read_text()
