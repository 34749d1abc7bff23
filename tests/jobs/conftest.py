import os
import signal
import sys
import time

import pytest

from seedlab.jobs import group
from seedlab.jobs.record import read_record


@pytest.fixture
def start(tmp_path):
    """Submit Python code as a job in a queue of the test's own; whatever is left of it is ended afterwards."""
    from seedlab.jobs import submit

    started = []

    def submit_code(name, code, **options):
        options = {"queue": tmp_path / "queue", "slots": 4, "snapshot": False} | options
        argv = [sys.executable, "-c", code]
        env = {"PYTHONPATH": os.pathsep.join(sys.path)} | options.pop("env", {})
        job = submit(argv, tmp_path / name, env=env, **options)
        started.append(job)
        return job

    yield submit_code
    for job in started:
        for pid in group.members(read_record(job.path)):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def until():
    """Wait for a condition; fails after ten seconds."""

    def wait(condition, what=""):
        deadline = time.monotonic() + 10
        while not (value := condition()):
            assert time.monotonic() < deadline, f"waited in vain for {what or condition}"
            time.sleep(0.02)
        return value

    return wait
