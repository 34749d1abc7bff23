"""Progress for people: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time

PLAIN_EVERY_S = 10.0


class ProgressLine:
    """Callable (phase, done, total, note).  On a terminal the line is redrawn; elsewhere a line appears every ten
    seconds, so that a log stays short."""

    def __init__(self, stream=None, prefix: str = ""):
        self.stream, self.prefix = stream or sys.stderr, prefix
        self.live = self.stream.isatty()
        self._last, self._phase, self._started = 0.0, "", time.monotonic()
        self._gone = False

    def __call__(self, phase: str, done: int, total: int, note: str = "") -> None:
        if self._gone:
            return
        now = time.monotonic()
        new_phase = phase != self._phase
        if new_phase:
            self._phase, self._started = phase, now
        finished = total > 0 and done >= total
        due = now - self._last >= (0.1 if self.live else PLAIN_EVERY_S)
        if not (due or (self.live and (new_phase or finished))):
            return
        self._last = now
        try:
            self._show(phase, done, total, note, now, finished)
        except BrokenPipeError:
            self._gone = True  # nobody reads any more (`2>&1 | head`): that must not end the work

    def _show(self, phase: str, done: int, total: int, note: str, now: float, finished: bool) -> None:
        text = f"{self.prefix}{phase}: {done}/{total}"
        if 0 < done < total and now > self._started:
            text += f", {(now - self._started) * (total - done) / done:.0f} s left"
        text += f", {note}" if note else ""
        if self.live:
            self.stream.write("\r\x1b[2K" + text + ("\n" if finished else ""))
        else:
            self.stream.write(text + "\n")
        self.stream.flush()
