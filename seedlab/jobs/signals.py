"""The first Ctrl-C or SIGTERM asks for a stop at the next safe point; the second one stops at once."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager

# A scheduler signals the whole job, and the launcher passes the signal on: within this time it is one request.
ECHO_S = 1.0


class StopFlag:
    """`requested` turns True at the first signal."""

    def __init__(self):
        self.requested = False
        self.signal = 0


@contextmanager
def stop_on_signals():
    """Yields a StopFlag; outside the main thread (a notebook's worker) signals are left alone."""
    flag = StopFlag()
    if threading.current_thread() is not threading.main_thread():
        yield flag
        return

    first = 0.0

    def handle(number, frame):
        nonlocal first
        if flag.requested and not (number == signal.SIGTERM == flag.signal and time.monotonic() - first < ECHO_S):
            raise KeyboardInterrupt
        if not flag.requested:
            first = time.monotonic()
            flag.requested, flag.signal = True, number

    old = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield flag
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
