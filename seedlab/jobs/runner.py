"""The launcher process of a job: ``python -m seedlab.jobs.runner RUN``.

It leaves its parent's session and process group, waits for a free slot, runs the job's command and writes the last
word where the command could not.  Light on purpose: it stays in memory as long as the job.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from seedlab.jobs import group, slots
from seedlab.jobs.record import JobRecord, change_record
from seedlab.store.files import read_versioned, write_json
from seedlab.store.process import own_start
from seedlab.store.status import ENDED, StatusWriter

READY = b"ready"
LEFTOVER_GRACE_S = 5.0
NOT_STARTED = 127


def main(run: Path) -> int:
    """Detach, and return in the first process once the job's own process stands (0) or could not start (1)."""
    reading, writing = os.pipe()
    first = os.getpid()
    # A second process: whoever looks for children of the submitter, or waits for them, does not find the job.
    if os.fork() > 0:
        os.close(writing)
        with os.fdopen(reading, "rb") as source:
            return 0 if source.read() == READY else 1
    os.close(reading)
    os.setsid()
    return serve(run, writing, first)


def serve(run: Path, ready: int, first: int) -> int:
    """The job itself.  `first` still has to tell the submitter that this process stands: a short command may end sooner,
    and `first` carries the job's id as any worker does, so that it is spared."""
    stop = note_signals()  # the command gets its own copy of each: they go to every process of the job
    record = change_record(run, pid=os.getpid(), process_started=own_start(), pgid=os.getpgid(0))
    status = StatusWriter(run, "queued", until_taken=True, phase="queued", **links_of(run))
    os.write(ready, READY)
    os.close(ready)

    def waiting(ahead: int) -> None:
        status.write(note=f"{ahead} ahead in the queue" if ahead else "next in the queue")

    try:
        place = slots.acquire(Path(record.queue), record.slots, f"{record.submitted:017.6f}-{record.id}", lambda: bool(stop), waiting)
    except OSError as error:
        status.close(state="failed", exit_code=NOT_STARTED, ended=time.time(), error=f"the queue {record.queue} cannot be used: {error}")
        return NOT_STARTED
    if place is None or stop:
        status.close(state="cancelled", exit_code=130, ended=time.time(), error="cancelled while it was queued")
        return 130
    status.write(state="running", phase="starting", note="")
    # The command holds the slot too, should this process be killed.
    child = start_command(record, status, pass_fds=(place,))
    if child is None:
        return NOT_STARTED
    if stop:  # it came before the command was there to receive it
        child.terminate()
    code = child.wait()
    status.close()
    # Workers that outlive their parent would keep the device and the slot.
    group.end(record, grace_s=LEFTOVER_GRACE_S, spare=(os.getpid(), first))
    last_word(run, record, code)
    return shell_code(code)


def links_of(run: Path) -> dict:
    """What an earlier status of the folder says of the run's links, which the new one keeps until the run itself speaks."""
    file = run / "status.json"
    links = read_versioned(file).get("links") if file.exists() else None
    return {} if links is None else {"links": links}


def start_command(record: JobRecord, status: StatusWriter, **options) -> subprocess.Popen | None:
    """The job's command, or None, with the reason in the status, where it cannot be started."""
    try:
        return subprocess.Popen(record.argv, cwd=record.cwd, stdin=subprocess.DEVNULL, **options)
    except OSError as error:
        status.close(state="failed", exit_code=NOT_STARTED, ended=time.time(), error=f"{record.argv[0]} could not be started: {error}")
        return None


def shell_code(code: int) -> int:
    """An exit code as a shell would give it: 128 + N for a process that signal N ended."""
    return code if code >= 0 else 128 - code


def note_signals(*more: int) -> list[int]:
    """Signals received so far: SIGTERM, SIGINT, SIGHUP and `more`.  They are noted, and end nothing by themselves."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *more):
        signal.signal(number, lambda number, frame: received.append(number))
    return received


def last_word(run: Path, record: JobRecord, code: int) -> None:
    """The final status, where the command has not said it itself."""
    status = read_versioned(run / "status.json")
    # Only this process and the run's writer report here, and this one began.
    spoke = status["pid"] != os.getpid() and status["state"] in ENDED
    cancelled = cancel_requested(run, record)
    if spoke and not (cancelled and status["state"] in ("interrupted", "failed")):
        return
    write_json(run / "status.json", status | verdict(status if spoke else {}, code, cancelled))


def verdict(spoken: dict, code: int, cancelled: bool) -> dict:
    """Final state from the exit code (negative: ended by that signal), unless the command itself has `spoken`."""
    exit_code = shell_code(code)
    error = spoken.get("error")
    if not error and code < 0:
        error = f"ended by {signal.Signals(-code).name}"
        if code == -signal.SIGKILL and not cancelled:
            error += ": killed by hand, or by the system because memory ran out"
    elif not error and code > 0:
        error = f"exit code {code}; the end of log.txt says why"
    if cancelled:
        state = "cancelled"
    elif code == 0:
        state = "succeeded"
    else:
        state = "interrupted" if exit_code in (130, 143) else "failed"
    return {"state": state, "exit_code": spoken.get("exit_code", exit_code), "error": error, "ended": time.time()}


def cancel_requested(run: Path, record: JobRecord) -> bool:
    file = run / "cancel.json"
    return file.exists() and read_versioned(file)["id"] == record.id


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
