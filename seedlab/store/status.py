"""status.json: what a run says about itself, and what a reader concludes when it has fallen silent."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from seedlab.store.errors import RunError
from seedlab.store.files import SCHEMA_VERSION, read_versioned, write_json
from seedlab.store.process import alive, host, own_start
from seedlab.store.shapes import COUNT, LINK_FIELDS, LIST, NUMBER, TEXT, check_fields, maybe

HEARTBEAT_S = 2.0
STALE_S = 60.0
LIVE = ("queued", "running")
ENDED = ("succeeded", "failed", "cancelled", "interrupted")
STATES = LIVE + ENDED  # a reader adds `lost`
_NEEDED = ("state", "pid", "process_started", "host", "heartbeat")
_KINDS = {
    "pid": COUNT, "process_started": TEXT, "host": TEXT, "heartbeat": NUMBER, "started": NUMBER, "ended": maybe(NUMBER), "done": NUMBER,
    "total": NUMBER, "phase": TEXT, "note": TEXT, "error": maybe(TEXT), "exit_code": maybe(NUMBER), "links": LIST,
}  # fmt: skip


def new_status(state: str, **fields) -> dict:
    """A status of this process."""
    return {
        "schema_version": SCHEMA_VERSION, "state": state, "host": host(), "pid": os.getpid(), "process_started": own_start(),
        "started": time.time(), "heartbeat": time.time(), "phase": "", "done": 0, "total": 0, "note": "", "exit_code": None,
        "error": None, **fields,
    }  # fmt: skip


def read_status(run: Path) -> dict:
    """The stored status, with two conclusions: state `lost` where it says queued or running but its process is gone, and
    `stale` where the process lives but has not reported for a minute (suspended, or out of memory and swapping).

    On another machine only the heartbeat can tell, so that there a stale run is lost.  A job that waits in a scheduler's
    queue (`scheduler`) has no process: only the scheduler knows of it, and `jobs.attach(run).status()` asks.  Raises RunError naming the file.
    """
    file = Path(run) / "status.json"
    status = read_versioned(file)
    missing = [key for key in _NEEDED if key not in status]
    if missing or status["state"] not in STATES:
        what = f"it lacks {', '.join(missing)}" if missing else f"{status['state']!r} is no state"
        raise RunError(f"{file} is damaged: {what}; remove the file, then `seedlab resume {run}` goes on")
    advice = f"remove the file, then `seedlab resume {run}` goes on"
    check_fields(status, {}, file, optional=_KINDS, advice=advice)
    for number, link in enumerate(status.get("links", [])):
        check_fields(link, LINK_FIELDS, f"{file}, link {number}", advice=advice)
    if status["state"] == "queued" and status.get("scheduler"):
        return status | {"stale": False}
    stale = status["state"] in LIVE and time.time() - status["heartbeat"] > STALE_S
    gone = stale if status["host"] != host() else not alive(status["pid"], status["process_started"])
    if status["state"] in LIVE and gone:
        status |= {"state": "lost", "error": status.get("error") or "the process ended without a word (killed, or the machine went down)"}
    return status | {"stale": stale and not gone}


class StatusWriter:
    """Keeps one status and writes it to status.json: at once when the state changes, else with each heartbeat.

    `until_taken`: the heartbeat falls silent for good once another process reports for the run in the same file.
    """

    def __init__(self, run: Path, state: str, *, heartbeat_s: float = HEARTBEAT_S, until_taken: bool = False, **fields):
        self._path = Path(run) / "status.json"
        self._status = new_status(state, **fields)
        self._every = heartbeat_s
        self._until_taken = until_taken
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._write()
        self._thread.start()

    def change(self, **fields) -> None:
        """Kept in memory; the next heartbeat writes it."""
        with self._lock:
            self._status |= fields

    def write(self, **fields) -> None:
        """Changed and on disk."""
        self.change(**fields)
        self._write()

    def close(self, **fields) -> None:
        """Stop the heartbeat; with fields, write them as the last word."""
        self._stop.set()
        self._thread.join()
        if fields:
            self.write(**fields)

    def _write(self) -> None:
        with self._lock:
            self._status["heartbeat"] = time.time()
            write_json(self._path, self._status)

    def _beat(self) -> None:
        said = False
        while not self._stop.wait(self._every):
            try:
                if self._until_taken and read_versioned(self._path).get("pid") != self._status["pid"]:
                    return
                self._write()
                said = False
            except RunError as error:
                # A full disk may be free again at the next beat; the run itself fails where it needs the disk.
                if not said:
                    print(f"heartbeat: {error}", file=sys.stderr, flush=True)
                said = True
