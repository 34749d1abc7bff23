"""Which process is meant: a pid alone is not enough, because pids are given out again."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import psutil


def host() -> str:
    return socket.gethostname()


def process_start(pid: int) -> str | None:
    """A text that only this very process has under `pid`, or None where no such process lives (a zombie does not).

    On Linux it is the boot and the clock tick of the start: a clock that is set anew, as on a laptop that wakes up,
    does not change it.
    """
    if sys.platform.startswith("linux"):
        return _linux_start(pid)
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else f"{process.create_time():.2f}"
    except psutil.NoSuchProcess:
        return None


def _linux_start(pid: int) -> str | None:
    try:
        # The name of the command stands in brackets and may hold anything; the fields behind it are plain.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"


def alive(pid: int, started: str) -> bool:
    """Whether that very process lives: a pid that another process took over is not it."""
    return process_start(pid) == started


def own_start() -> str:
    found = process_start(os.getpid())
    if found is None:
        raise RuntimeError("this process does not find itself in the process table")
    return found
