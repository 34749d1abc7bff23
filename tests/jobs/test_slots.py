"""The queue: never more than N at once, first come first served, nobody blocked by the dead."""

import os
import signal
import subprocess
import sys
import time

from seedlab.jobs import slots
from seedlab.jobs.slots import acquire, default_slots

SLEEP = "import time; print('up', flush=True); time.sleep(60)"


def test_places_are_exclusive_and_freed_with_their_file(tmp_path):
    first, second = acquire(tmp_path, 2, "1"), acquire(tmp_path, 2, "2")
    asked = []
    assert acquire(tmp_path, 2, "3", stopped=lambda: asked.append(1) or len(asked) > 2) is None
    os.close(first)
    third = acquire(tmp_path, 2, "3")
    assert third is not None
    os.close(second)
    os.close(third)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["slot-000.lock", "slot-001.lock"]


def test_older_tickets_go_first_and_dead_ones_are_swept(tmp_path):
    code = (
        "import sys; from pathlib import Path; from seedlab.jobs.slots import _draw, acquire\n"
        "_draw(Path(sys.argv[1]), '1'); print('drawn', flush=True); sys.stdin.read()"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    older = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert older.stdout.readline() == "drawn\n"
    told, asked = [], []
    assert acquire(tmp_path, 1, "2", lambda: asked.append(1) or len(asked) > 2, told.append) is None  # a place is free, but not for us
    assert told == [1]
    older.kill()
    older.communicate()
    place = acquire(tmp_path, 1, "2")
    assert place is not None and not list(tmp_path.glob("ticket-*"))
    os.close(place)


def test_two_queued_jobs_run_one_after_the_other(start, until):
    first = start("a", SLEEP, slots=1)
    until(lambda: "up" in first.logs())
    second = start("b", "print('b')", slots=1)
    third = start("c", "print('c')", slots=1)
    until(lambda: third.status()["note"] == "1 ahead in the queue")
    assert (second.status()["state"], second.status()["note"]) == ("queued", "next in the queue")
    time.sleep(0.3)
    assert (second.logs(), third.logs(), second.status()["state"]) == ("", "", "queued")
    first.cancel()
    assert second.wait(10)["state"] == third.wait(10)["state"] == "succeeded"
    assert second.status()["ended"] <= third.status()["ended"]


def test_a_queued_job_can_be_cancelled(start, until):
    first = start("a", SLEEP, slots=1)
    until(lambda: "up" in first.logs())
    second = start("b", "print('never')", slots=1)
    status = second.cancel(grace_s=5)
    assert (status["state"], status["error"]) == ("cancelled", "cancelled while it was queued")
    assert second.logs() == "" and first.status()["state"] == "running"


def test_a_killed_holder_frees_its_place_and_its_command_keeps_it(start, until):
    first = start("a", SLEEP, slots=1)
    until(lambda: "up" in first.logs())
    second = start("b", "print('b')", slots=1)
    os.kill(first.record.pid, signal.SIGKILL)  # the launcher; the command still computes
    time.sleep(0.5)
    assert second.status()["state"] == "queued"
    first.cancel(grace_s=5)
    assert second.wait(10)["state"] == "succeeded"


def test_default_slots_share_the_cores():
    assert default_slots(10_000) == 1 and default_slots(1) >= 1


def test_who_has_many_ahead_looks_seldom(tmp_path, monkeypatch):
    looks, sleeps = [], []
    monkeypatch.setattr(slots, "_ahead", lambda queue, ticket: looks.append(1) or 9)
    monkeypatch.setattr(slots.time, "sleep", sleeps.append)
    assert acquire(tmp_path, 1, "2", stopped=lambda: len(sleeps) >= 100) is None
    assert len(looks) == 10  # each of them costs as much as there are jobs ahead
