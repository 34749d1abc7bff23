"""At most N jobs at once on this machine, first come first served, by file locks that the system frees with a process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from seedlab.store.cache import cache_folder

POLL_S = 0.2
FARTHEST = 25  # whoever has many ahead looks every FARTHEST * POLL_S: each look costs as much as there are jobs ahead


def default_queue() -> Path:
    """One queue per user and machine: `SEEDLAB_CACHE`/queue, or ~/.cache/seedlab/queue."""
    return cache_folder() / "queue"


def default_slots(threads: int = 1) -> int:
    """Jobs at once: the cores that this process may use, divided by a job's threads, at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // threads)


def acquire(
    queue: Path, slots: int, ticket: str, stopped: Callable[[], bool] = lambda: False, waiting: Callable[[int], None] = lambda ahead: None
) -> int | None:
    """Wait for one of `slots` places; returns the locked file, to be kept open as long as the place is used, or None
    once `stopped()`.

    `ticket` sorts by age: a place is taken only when no older ticket waits.  A holder or waiter that died blocks
    nobody.  `waiting(ahead)` is told when the number of jobs ahead changes.
    """
    queue.mkdir(parents=True, exist_ok=True)
    own = _draw(queue, ticket)
    told = None
    try:
        while not stopped():
            ahead = _ahead(queue, ticket)
            if ahead == 0:
                place = _free_place(queue, slots)
                if place is not None:
                    return place
            if ahead != told:
                waiting(ahead)
                told = ahead
            for _ in range(min(1 + ahead, FARTHEST)):
                if not stopped():
                    time.sleep(POLL_S)
        return None
    finally:
        (queue / f"ticket-{ticket}").unlink(missing_ok=True)
        os.close(own)


def _draw(queue: Path, ticket: str) -> int:
    # Locked before it has its name: an unlocked ticket is a dead one, and would be swept away.
    partial = queue / f".ticket-{ticket}"
    handle = os.open(partial, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.rename(partial, queue / f"ticket-{ticket}")
    return handle


def _ahead(queue: Path, ticket: str) -> int:
    ahead = 0
    for path in sorted(queue.glob("ticket-*")):
        if path.name >= f"ticket-{ticket}":
            break
        if _held(path):
            ahead += 1
        else:
            path.unlink(missing_ok=True)
    return ahead


def _held(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def _free_place(queue: Path, slots: int) -> int | None:
    for number in range(slots):
        handle = os.open(queue / f"slot-{number:03d}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            os.close(handle)
    return None
