"""The processes of a job: its process group and what left it, and ending them without touching anybody else's."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Container
from pathlib import Path

import psutil

from seedlab.jobs.record import MARK, JobRecord
from seedlab.store.files import shown_path
from seedlab.store.process import alive

POLL_S = 0.05


def launcher_alive(record: JobRecord) -> bool:
    return record.pid > 0 and alive(record.pid, record.process_started)


def members(record: JobRecord) -> list[int]:
    """Living processes of the job, its launcher first.

    While the launcher lives, its group is the job's.  Once it is gone the number may belong to somebody else, so that
    only what carries the job's id in its environment counts; so does what has left the group, such as the kernel of a
    notebook.
    """
    if record.pgid <= 0:
        return []
    trusted = launcher_alive(record)
    found = [pid for pid in psutil.pids() if (trusted and _group_of(pid) == record.pgid) or _marked(pid, record.id)]
    return sorted((pid for pid in found if _lives(pid)), key=lambda pid: pid != record.pid)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _marked(pid: int, job_id: str) -> bool:
    if sys.platform.startswith("linux"):
        try:  # many times faster than psutil, and asked for every process of the machine
            return f"{MARK}={job_id}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's: not ours
            return False
    try:
        return psutil.Process(pid).environ().get(MARK) == job_id
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def end(record: JobRecord, *, grace_s: float, spare: Container[int] = (), command_first: bool = False) -> bool:
    """SIGTERM to every process of the job, SIGKILL to those that are left after `grace_s`; `spare` are left alone.

    With `command_first` SIGTERM goes to the launcher and the command alone: a trainer needs its inference servers and
    workers to save a checkpoint, and ends them itself; the launcher ends what is left.  Each process is signalled by its
    own id, after it was checked.  Returns whether any had to be killed.
    """
    asked = [pid for pid in _others(record, spare) if not command_first or pid == record.pid or _parent(pid) == record.pid]
    _signal(asked if launcher_alive(record) else _others(record, spare), signal.SIGTERM)
    if _wait_gone(record, grace_s, spare):
        return False
    _signal(_others(record, spare), signal.SIGKILL)
    if not _wait_gone(record, 10.0, spare):
        raise RuntimeError(f"processes {_others(record, spare)} of {shown_path(record.run)} do not end, even killed (a hung disk or device?)")
    return True


def _others(record: JobRecord, spare: Container[int]) -> list[int]:
    return [pid for pid in members(record) if pid not in spare]


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _wait_gone(record: JobRecord, seconds: float, spare: Container[int]) -> bool:
    deadline = time.monotonic() + seconds
    while _others(record, spare):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
