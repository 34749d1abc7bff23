"""job.json: how a job was started, and which process it is."""

from __future__ import annotations

import fcntl
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path

from seedlab.errors import UserError
from seedlab.store.errors import RunError
from seedlab.store.files import SCHEMA_VERSION, read_versioned, shown_path, write_json
from seedlab.store.shapes import COUNT, LIST, NUMBER, OBJECT, TEXT, check_fields, maybe, several

# Every process of a job carries the job's id in this variable, so that it is known when its launcher has died.
MARK = "SEEDLAB_JOB"


class JobError(UserError):
    """A job cannot be started, found or ended; the message names its run folder and what to do."""


@dataclass(frozen=True)
class JobRecord:
    """`pid` is the job's launcher, the leader of process group `pgid` (0 until it has started).

    A scheduler (`backend` slurm or ray) knows the job as `external_id`, at `address`.  No environment variable is stored: there may be keys among them.
    """

    id: str
    run: str
    argv: list[str]
    cwd: str
    host: str
    submitted: float
    queue: str
    slots: int
    code: str | None
    config: dict | None
    previous: list[dict]
    pid: int = 0
    process_started: str = ""
    pgid: int = 0
    backend: str = "local"
    external_id: str = ""
    address: str = ""


_KINDS = {
    "id": TEXT, "run": TEXT, "argv": several(TEXT), "cwd": TEXT, "host": TEXT, "submitted": NUMBER, "queue": TEXT, "slots": COUNT,
    "code": maybe(TEXT), "config": maybe(OBJECT), "previous": LIST, "pid": COUNT, "process_started": TEXT, "pgid": COUNT, "backend": TEXT,
    "external_id": TEXT, "address": TEXT,
}  # fmt: skip


def write_record(run: Path, record: JobRecord) -> None:
    write_json(run / "job.json", {"schema_version": SCHEMA_VERSION, **asdict(record)})


def read_record(run: Path) -> JobRecord:
    """Raises JobError where the folder holds no job, RunError where job.json is damaged."""
    file = Path(run) / "job.json"
    if not file.exists():
        if (Path(run) / "config.json").exists():
            raise JobError(f"{shown_path(run)} was not started in the background: it has no job.json; stop it where it runs, with Ctrl-C")
        raise JobError(f"{shown_path(run)} holds no job.json, so it is not a job; `seedlab jobs` lists them")
    values = read_versioned(file)
    given = set(values) - {"schema_version"}
    needed = {f.name for f in fields(JobRecord) if f.default is MISSING}
    wrong = sorted((needed - given) | (given - {f.name for f in fields(JobRecord)}))
    if wrong:
        raise RunError(f"{file} is damaged: missing or unknown {', '.join(wrong)}; restore it from a copy")
    check_fields(values, {}, file, optional=_KINDS)
    return JobRecord(**{name: values[name] for name in given})


def change_record(run: Path, **changes) -> JobRecord:
    """Change fields of job.json.  A scheduler may start the job while its submission is still being written down, so
    that both sides change the record under a lock."""
    with open(run / ".record.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        record = replace(read_record(run), **changes)
        write_record(run, record)
    return record
