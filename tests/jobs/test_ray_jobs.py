"""Ray Jobs: token authentication with a file of our own, and no process ended that was not recorded."""

import json
import os
import shutil
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from seedlab.cli.main import main
from seedlab.jobs import JobError, attach, group, ray_cluster, ray_jobs, submit
from seedlab.jobs.ray_cluster import ray_environment, token_of
from seedlab.store.process import process_start

SLEEP = "import time; print('up', flush=True); time.sleep(900)"


@pytest.fixture
def token(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return token_of(tmp_path / "token", create=True)


@pytest.fixture
def server(token):
    """A job server that keeps what it is told: `server.jobs` {id: answer}, `server.seen` [(method, path, body)]."""
    seen, known = [], {}

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append((self.command, self.path, json.loads(body) if body else None))
            code, said = 200, {}
            name = self.path.split("/")[3]
            if self.headers.get("Authorization") != f"Bearer {token}":
                code = 403
            elif self.command == "POST" and not name:
                known[seen[-1][2]["submission_id"]] = {"status": "PENDING"}
            elif name and name not in known:
                code = 404
            elif name:
                said = known[name]
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        do_GET = do_POST = answer

        def log_message(self, *arguments):
            """No lines on stderr."""

    http = HTTPServer(("127.0.0.1", 0), Handler)
    http.seen, http.jobs, http.address = seen, known, f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    yield http
    http.shutdown()
    thread.join()
    http.server_close()


def hand_over(path, code, address, **options):
    return submit([sys.executable, "-c", code], path, backend="ray", snapshot=False, scheduler_options={"address": address}, **options)


def test_a_job_is_handed_over_with_our_token_and_none_of_the_submitters_variables(server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    job = hand_over(tmp_path / "a b", SLEEP, server.address)
    ((method, path, body),) = server.seen
    assert (method, path, body["submission_id"]) == ("POST", "/api/jobs/", f"seedlab-{job.record.id}")
    assert body["entrypoint"].startswith(f"exec env SEEDLAB_JOB={job.record.id} ") and f">> '{tmp_path}/a b/log.txt' 2>&1" in body["entrypoint"]
    assert "sk-canary" not in json.dumps(body)
    variables = body["runtime_env"]["env_vars"]
    assert variables["RAY_AUTH_MODE"] == "token" and "SEEDLAB_JOB" not in variables
    assert (job.record.backend, job.record.address) == ("ray", server.address)
    states = []
    for word in ("PENDING", "RUNNING", "FAILED"):
        server.jobs[job.record.external_id] = {"status": word}
        states.append(job.status()["state"])
    assert states == ["queued", "running", "lost"]
    del server.jobs[job.record.external_id]
    assert job.status()["error"] == f"ray no longer has job {job.record.external_id}, and the job itself said nothing"


def test_cancel_stops_this_id_only(server, tmp_path, monkeypatch):
    job = hand_over(tmp_path / "a", SLEEP, server.address)
    kill = ray_jobs.kill
    monkeypatch.setattr(ray_jobs, "kill", lambda record: kill(record) or server.jobs.update({record.external_id: {"status": "STOPPED"}}))
    assert job.cancel()["state"] == "cancelled"
    assert [path for method, path, _ in server.seen if method == "POST"] == ["/api/jobs/", f"/api/jobs/{job.record.external_id}/stop"]


def test_a_token_that_others_can_read_or_that_is_refused(server, tmp_path, capsys, monkeypatch):
    file = tmp_path / "token"
    assert file.stat().st_mode & 0o777 == 0o600 and len(file.read_text()) == 64
    file.chmod(0o640)
    with pytest.raises(JobError, match=r"can be read by others .mode 0640.: chmod 600"):
        hand_over(tmp_path / "a", SLEEP, server.address)
    assert not (tmp_path / "a").exists()
    file.chmod(0o600)
    file.write_text("another")
    with pytest.raises(JobError, match="refuses the token"):
        hand_over(tmp_path / "a", SLEEP, server.address)
    assert attach(tmp_path / "a").status()["state"] == "failed"
    file.unlink()
    with pytest.raises(JobError, match="`seedlab ray start` makes one"):
        hand_over(tmp_path / "b", SLEEP, server.address)


def test_keys_do_not_travel_through_ray(server, tmp_path):
    with pytest.raises(JobError, match="Ray shows a job's variables .OPENAI_API_KEY. to everybody"):
        hand_over(tmp_path / "a", SLEEP, server.address, env={"OPENAI_API_KEY": "sk"})
    with pytest.raises(JobError, match="unknown option of Ray Jobs 'adress'; did you mean 'address'"):
        submit(["true"], tmp_path / "a", backend="ray", scheduler_options={"adress": "x"})
    assert server.seen == []


def test_no_server_is_told_with_what_starts_one(token, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["submit", "micro", "--backend", "ray", "--ray", "address=http://127.0.0.1:9", "--out", "a"]) == 2
    assert "`seedlab ray start` starts one" in capsys.readouterr().err
    assert main(["ray", "join"]) == 2
    assert "join needs --address" in capsys.readouterr().err


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_real_ray_runs_stops_and_leaves_nothing(token, tmp_path, monkeypatch):
    """A real head with token authentication, a job that ends, one that is cancelled, and the end of exactly these."""
    if python := os.environ.get("SEEDLAB_VERL_PYTHON"):  # that environment has Ray too
        monkeypatch.setenv("PATH", os.pathsep.join([os.environ["PATH"], str(Path(python).parent)]))
    elif shutil.which("ray") is None and not Path(sys.executable).with_name("ray").exists():
        pytest.skip("wanted ray (ray[default]==2.60.0), beside this interpreter, on PATH, or in the environment that `make verl` makes")
    ray_cluster.ray_command()  # where Ray was named or seen, not finding it is a failure
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path / "cache"))
    port, dashboard = free_ports(2)
    # Ray's sockets need a short path
    short = Path(os.environ.get("TMPDIR", "/tmp")) / f"seedlab-ray-{os.getpid()}"
    extra = ("--num-cpus=1", "--object-store-memory=100000000", f"--temp-dir={short}")
    head = ray_cluster.start_head(tmp_path / "head", port=port, dashboard_port=dashboard, extra=extra)
    address = f"http://127.0.0.1:{dashboard}"
    try:
        assert ray_cluster.answers(address, tmp_path / "token")
        other = tmp_path / "other"
        other.write_text("wrong")
        other.chmod(0o600)
        assert not ray_cluster.answers(address, other)
        done = hand_over(tmp_path / "a", "import os; print(os.environ['SEEDLAB_JOB'], os.environ['RAY_AUTH_MODE'])", address)
        assert done.wait(200)["state"] == "succeeded", done.logs()
        assert done.logs() == f"{done.record.id} token"
        failed = hand_over(tmp_path / "b", "raise SystemExit(3)", address)
        assert (failed.wait(200)["state"], failed.status()["exit_code"]) == ("failed", 3)
        asleep = hand_over(tmp_path / "c", SLEEP, address)
        deadline = time.monotonic() + 200
        while "up" not in asleep.logs():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert asleep.status()["state"] == "running"
        assert asleep.cancel(grace_s=60)["state"] == "cancelled"
        while group.members(asleep.record):  # its launcher is on its way out
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert ray_cluster.answers(address, tmp_path / "token")  # the cluster itself goes on
    finally:
        members = [(pid, process_start(pid)) for pid in group.members(head.record)]
        head.cancel(grace_s=30)
        shutil.rmtree(short, ignore_errors=True)
    assert len(members) > 5 and not any(process_start(pid) == started for pid, started in members)
    assert ray_environment(tmp_path / "token")["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")
