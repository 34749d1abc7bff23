"""One job, found by its run folder: status, log, waiting, ending."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from seedlab.jobs import group
from seedlab.jobs.log_reader import LogReader, LogUpdate
from seedlab.jobs.record import JobError, JobRecord, read_record
from seedlab.jobs.runner import cancel_requested
from seedlab.jobs.schedulers import judged, scheduler
from seedlab.store.files import SCHEMA_VERSION, read_versioned, shown_path, write_json
from seedlab.store.process import host
from seedlab.store.status import ENDED, LIVE, read_status

POLL_S = 0.1
GRACE_S = 30.0
KILL_S = 120.0  # a scheduler gives a killed job some time of its own


def attach(run_path: str | Path) -> "Job":
    """The job of a run folder, whoever started it.  Raises JobError where the folder holds none."""
    read_record(Path(run_path))
    return Job(Path(run_path))


class Job:
    """A background job.  Everything is read from the run folder; the object itself holds no state."""

    def __init__(self, run: str | Path):
        self.path = Path(run).absolute()

    def __repr__(self) -> str:
        return f"Job({str(self.path)!r})"

    @property
    def record(self) -> JobRecord:
        return read_record(self.path)

    @property
    def live(self) -> bool:
        """Whether the job's launcher lives, on this machine."""
        record = self.record
        return record.host == host() and group.launcher_alive(record)

    def status(self) -> dict:
        """The run's status, see `store.status.read_status`; a scheduler is asked where the run itself is silent."""
        record = self.record
        if record.backend != "local":
            return judged(self.path, record)
        status = read_status(self.path)
        if status["state"] == "lost" and self.live:
            # The command has ended, and its launcher is about to say how.
            status |= {"state": "running", "phase": "ending", "error": None}
        return status

    def wait(self, timeout: float | None = None) -> dict:
        """The final status; raises TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.status())["state"] in LIVE:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{shown_path(self.path)} is still {status['state']} after {timeout} s")
            time.sleep(POLL_S)
        return status

    def wait_gone(self, timeout: float) -> bool:
        """Whether the launcher itself has ended, within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.live and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return not self.live

    # ---- log

    def logs(self, *, tail: int | None = None) -> str:
        """The log so far, as a terminal would show it; with `tail`, its last lines."""
        reader = LogReader(self.path / "log.txt")
        lines = reader.poll()
        lines += [reader.current] if reader.current else []
        return "\n".join(lines if tail is None else lines[max(0, len(lines) - tail) :])

    def follow(self, *, interval_s: float = 0.2) -> Iterator[LogUpdate]:
        """New whole lines and the present unfinished one, from the start of the log until the job has ended."""
        reader = LogReader(self.path / "log.txt")
        shown = None
        while True:
            ended = self.status()["state"] not in LIVE  # asked before reading: what is written until then is read
            lines = reader.poll()
            if lines or reader.current != shown:
                shown = reader.current
                yield LogUpdate(lines, reader.current)
            if ended:
                return
            time.sleep(interval_s)

    # ---- ending

    def cancel(self, *, grace_s: float = GRACE_S) -> dict:
        """SIGTERM to the job's command, SIGKILL to all of its processes after `grace_s`; returns the final status.

        A trainer that is asked to stop saves a checkpoint at the next safe point, so that `resume` goes on from there.
        A job that has ended already keeps its state; what a killed launcher left running is ended.
        """
        record = self.record
        if record.backend != "local":
            return self._cancel_elsewhere(record, grace_s)
        if record.host != host():
            raise JobError(f"{shown_path(self.path)} runs on {record.host}; cancel it there")
        state = self.status()["state"]
        if state in ENDED:
            self.wait_gone(GRACE_S)  # the launcher may still be on its way out
            group.end(record, grace_s=grace_s)
            return self.status()
        if state not in LIVE and not group.members(record):
            return self.status()
        self._ask_to_stop(record)
        group.end(record, grace_s=grace_s, command_first=True)
        return self._after_cancel(record)

    def _ask_to_stop(self, record: JobRecord) -> None:
        write_json(self.path / "cancel.json", {"schema_version": SCHEMA_VERSION, "id": record.id, "time": time.time()})

    def _cancel_elsewhere(self, record: JobRecord, grace_s: float) -> dict:
        """The job's launcher finds the request in the run folder; the scheduler ends what does not listen."""
        state = self.status()["state"]
        if state not in LIVE:
            return self.status()
        self._ask_to_stop(record)
        if state == "running":
            try:
                self.wait(grace_s)
            except TimeoutError:
                pass  # it had its time
        if self.status()["state"] in LIVE:
            scheduler(record.backend).kill(record)
            try:
                self.wait(KILL_S)
            except TimeoutError as error:
                raise JobError(f"{record.backend} has not ended job {record.external_id} of {shown_path(self.path)} within {KILL_S:g} s") from error
        return self._after_cancel(record)

    def _after_cancel(self, record: JobRecord) -> dict:
        status = read_versioned(self.path / "status.json")
        # With the launcher killed, nobody else was left to say it.
        if cancel_requested(self.path, record) and status["state"] not in ("succeeded", "cancelled"):
            ended = {"state": "cancelled", "exit_code": status.get("exit_code") or 137, "ended": time.time()}
            write_json(self.path / "status.json", status | ended)
        return self.status()
