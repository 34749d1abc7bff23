"""Signals of the commands that run in the foreground."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt within, so that what the command started is ended on the way out."""

    def stop(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
