"""What Slurm and Ray have in common: they start the job's launcher on another machine, and know whether it still waits.

The run folder stays the interface: the job writes its own status there, and is asked to stop there.  A scheduler is
asked only where the folder is silent: before the job has started, and when it ended without a word.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from seedlab.config.names import suggestion
from seedlab.jobs.record import JobError, JobRecord
from seedlab.store.status import ENDED, read_status

# What `Scheduler.state` may answer; "unknown": the scheduler could not be asked from here.
ANSWERS = ("queued", "running", "gone", "unknown")
SETTLE_S = 300.0
_HOMES = {"slurm": "seedlab.jobs.slurm", "ray": "seedlab.jobs.ray_jobs"}
BACKENDS = ("local", *_HOMES)


class Scheduler(Protocol):
    """A module with these functions."""

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises JobError for an option that does not exist or does not fit, before anything is written."""

    def start(self, run: Path, record: JobRecord, env: Mapping[str, str], options: Mapping[str, Any]) -> tuple[str, str]:
        """Hand the job over; returns its id there and the address of the scheduler ("" for the default one)."""

    def state(self, record: JobRecord) -> str:
        """One of ANSWERS."""

    def kill(self, record: JobRecord) -> None:
        """End the job, and no other, at once."""


def scheduler(backend: str) -> Scheduler:
    """Raises JobError for an unknown name."""
    if backend not in _HOMES:
        raise JobError(f"unknown backend {backend!r}{suggestion(backend, BACKENDS)} (known: {', '.join(BACKENDS)})")
    return import_module(_HOMES[backend])


def judged(run: Path, record: JobRecord) -> dict:
    """The status of a scheduler's job: its own word, or what the scheduler knows where it is silent."""
    status = read_status(run)
    # A run that was stopped before the time limit has said so, while its launcher is about to have it requeued.
    settling = status["state"] == "interrupted" and time.time() - status.get("ended", 0.0) < SETTLE_S
    if status["state"] in ENDED and not settling:
        return status
    answer = scheduler(record.backend).state(record)
    if settling:
        ending = {"state": "running", "phase": "ending", "exit_code": None, "error": None}
        return status | ending if answer == "running" and read_status(run) == status else read_status(run)
    if answer == "gone":
        status = read_status(run)  # it may have spoken meanwhile
        if status["state"] in ENDED:
            return status
        return status | {"state": "lost", "error": f"{record.backend} no longer has job {record.external_id}, and the job itself said nothing"}
    if answer == "queued" and status["state"] != "queued":  # it was preempted, or its machine failed
        return status | {"state": "queued", "phase": "queued", "error": None, "note": f"{record.backend} will start it again"}
    if answer == "running" and status["state"] != "running":
        return status | {"state": "running", "phase": status["phase"] if status["state"] == "lost" else "starting", "error": None, "stale": status["state"] == "lost"}
    return status
