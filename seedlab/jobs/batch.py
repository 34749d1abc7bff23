"""The launcher of a scheduler's job: ``python -m seedlab.jobs.batch RUN``, on the machine that the scheduler chose.

It runs the job's command in the foreground, passes a request to stop on to it (a signal, `seedlab cancel`, or Slurm's
warning before the time limit) and writes the last word.  After a warning the command has saved a checkpoint, and the
job is requeued: the same command then goes on from there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from subprocess import Popen

from seedlab.jobs import group, slurm
from seedlab.jobs.nodes import nodes_environment
from seedlab.jobs.record import JobError, JobRecord, change_record
from seedlab.jobs.runner import LEFTOVER_GRACE_S, NOT_STARTED, cancel_requested, last_word, note_signals, shell_code, start_command
from seedlab.store.checkpoint import latest_checkpoint
from seedlab.store.files import SCHEMA_VERSION, read_versioned, write_json
from seedlab.store.process import host, own_start
from seedlab.store.status import StatusWriter, new_status

POLL_S = 0.2
REQUEUED = 75  # EX_TEMPFAIL, for sites that requeue by exit code (RequeueExit)
KILL_BEFORE_LIMIT_S = 30.0  # a command that does not stop by itself is ended this long before Slurm would do it
IDLE_REQUEUES = 3  # in a row without a new link or checkpoint: the time limit is too short for the work


def main(run: Path) -> int:
    warnings = note_signals_of_slurm()
    stop = note_signals()
    if os.getpgid(0) != os.getpid():
        os.setpgid(0, 0)
    changes = {"external_id": os.environ["SLURM_JOB_ID"]} if os.environ.get("SLURM_JOB_ID") else {}
    record = change_record(run, pid=os.getpid(), process_started=own_start(), pgid=os.getpgid(0), host=host(), **changes)
    status = StatusWriter(run, "running", until_taken=True, phase="starting")
    if stop or cancel_requested(run, record):
        status.close(state="cancelled", exit_code=130, ended=time.time(), error="cancelled before it started")
        return 130
    try:
        with nodes_environment(run) as env:
            child = start_command(record, status, env=os.environ | env)
            code = NOT_STARTED if child is None else _wait(child, run, record, stop, warnings)
    except JobError as error:
        status.close(state="failed", exit_code=error.exit_code, ended=time.time(), error=str(error))
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if child is None:
        return NOT_STARTED
    status.close()
    group.end(record, grace_s=LEFTOVER_GRACE_S, spare=(os.getpid(),))
    if warnings and shell_code(code) in (130, 137, 143) and not stop and not cancel_requested(run, record):
        return _requeue(run, record, code)
    last_word(run, record, code)
    return shell_code(code)


def note_signals_of_slurm() -> list[float]:
    """Times at which Slurm said that the time limit is near."""
    warnings: list[float] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: warnings.append(time.monotonic()))
    return warnings


def _wait(child: Popen, run: Path, record: JobRecord, stop: list[int], warnings: list[float]) -> int:
    """Exit code of the command; it is asked once to stop, and killed where Slurm would soon kill everything."""
    asked = False
    lead = float(os.environ.get(slurm.LEAD, slurm.LEAD_S))
    while child.poll() is None:
        if not asked and (stop or warnings or cancel_requested(run, record)):
            child.terminate()
            asked = True
        if warnings and time.monotonic() - warnings[0] > max(lead - KILL_BEFORE_LIMIT_S, lead / 2):
            child.kill()
        time.sleep(POLL_S)
    return child.returncode


def _requeue(run: Path, record: JobRecord, code: int) -> int:
    idle = _idle_requeues(run, record)
    if idle >= IDLE_REQUEUES:
        problem = f"{idle} allocations in a row ended before a link or a checkpoint was complete; ask for a longer --slurm time"
    else:
        # said before Slurm is asked: it may end this process at once
        write_json(run / "status.json", _kept(run) | new_status("queued", scheduler=record.backend, phase="queued", note="requeued before the time limit"))
        problem = slurm.requeue(record)
    if problem:
        last = {"state": "interrupted", "exit_code": shell_code(code), "error": f"not requeued: {problem}; `seedlab resume` goes on", "ended": time.time()}
        write_json(run / "status.json", _kept(run) | last)
        return shell_code(code)
    return REQUEUED


def _kept(run: Path) -> dict:
    return read_versioned(run / "status.json")


def _idle_requeues(run: Path, record: JobRecord) -> int:
    """How many allocations in a row, this one included, brought the run no further."""
    file = run / "requeues.json"
    found = latest_checkpoint(run)
    finished = [link["name"] for link in _kept(run).get("links", []) if link["state"] in ("done", "cached")]
    now = {"links": finished, "checkpoint": None if found is None else found[0]}
    before = read_versioned(file) if file.exists() else {}
    # a submission begins to count anew
    same = before.get("id") == record.id and before.get("reached") == now
    count = before["count"] + 1 if same else 0
    write_json(file, {"schema_version": SCHEMA_VERSION, "id": record.id, "reached": now, "count": count})
    return count


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
