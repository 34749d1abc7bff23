"""Start a command as a job that outlives its parent."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seedlab.config.runtime import child_environment
from seedlab.jobs import group
from seedlab.jobs.job import Job
from seedlab.jobs.record import MARK, JobError, JobRecord, read_record, write_record
from seedlab.jobs.slots import default_queue, default_slots
from seedlab.jobs.snapshot import snapshot_code
from seedlab.store.files import disk_error
from seedlab.store.process import host
from seedlab.store.status import LIVE, read_status

START_S = 60.0
LEFTOVER_GRACE_S = 10.0


def submit(
    argv: Sequence[str], run_path: str | Path, *, slots: int | None = None, queue: str | Path | None = None, threads: int = 1,
    config: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None, snapshot: bool = True,
) -> Job:
    """Start `argv` in the background with its log, record and status in the folder `run_path`; returns when its own
    process stands.

    At most `slots` jobs (default: cores / threads) of one `queue` (default: one per user) run at once; others wait with
    status `queued`.  The command runs a copy of seedlab's code as it is now (`snapshot`), in the present folder, with
    `env` on top of the present environment; neither is written to disk.  Raises JobError where the folder's job or run
    still lives.  What a killed job left running is ended first.
    """  # fmt: skip
    run = Path(run_path).absolute()
    if not argv:
        raise ValueError("submit needs a command")
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(run, error) from error
    # two submissions of one folder at the same moment: the second one sees the first one's job
    with open(run / ".submit.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        previous = _refuse_or_end(run)
        (run / "cancel.json").unlink(missing_ok=True)
        code = snapshot_code(run) if snapshot else None
        record = JobRecord(
            id=uuid.uuid4().hex, run=str(run), argv=[str(a) for a in argv], cwd=os.getcwd(), host=host(), submitted=time.time(),
            queue=str(Path(queue).absolute() if queue is not None else default_queue()),
            slots=default_slots(threads) if slots is None else slots, code=None if code is None else str(code.relative_to(run)),
            config=None if config is None else dict(config), previous=previous,
        )  # fmt: skip
        if record.slots < 1:
            raise ValueError(f"slots={record.slots}: a job needs at least one")
        write_record(run, record)
        _launch(run, record, _environment(record, code, threads, env or {}))
    return Job(run)


def submit_train(preset: str, overrides: Iterable[str] | Mapping[str, Any] = (), *, run_path: str | Path, **options) -> Job:
    """``seedlab train PRESET …`` as a job.  The configuration is resolved first, so that a wrong key is refused here.

    `options` go to `submit`.  Raises ConfigError, or JobError where `run_path` already holds a run.
    """
    from seedlab.config.names import flatten
    from seedlab.config.presets import load_config, parse_overrides

    config = load_config(preset, overrides)
    if (Path(run_path) / "config.json").exists():
        raise JobError(f"{run_path} already holds a run; `seedlab resume` (in Python: submit_resume) goes on with it, or choose another folder")
    settings = [f"{key}={json.dumps(value)}" for key, value in flatten(parse_overrides(overrides)).items()]
    argv = seedlab_argv("train", preset, *settings, "--out", str(Path(run_path).absolute()))
    return submit(argv, run_path, config=config.model_dump(mode="json"), **{"threads": config.threads} | options)


def submit_resume(run_path: str | Path, **options) -> Job:
    """``seedlab resume RUN`` as a job, with the configuration that the folder holds; `options` go to `submit`."""
    from seedlab.store.reader import open_run

    config = open_run(run_path).config
    argv = seedlab_argv("resume", str(Path(run_path).absolute()))
    return submit(argv, run_path, config=config.model_dump(mode="json"), **{"threads": config.threads} | options)


def seedlab_argv(*arguments: str) -> list[str]:
    """The command line of seedlab under this interpreter."""
    return [sys.executable, "-m", "seedlab", *arguments]


def _refuse_or_end(run: Path) -> list[dict]:
    """Refuse a folder that something still writes; end what a killed job left.  Returns earlier jobs of the folder."""
    if not (run / "job.json").exists():
        if (run / "status.json").exists() and read_status(run)["state"] in LIVE:
            raise JobError(f"{run} is being written by process {read_status(run)['pid']}, which was started in the foreground")
        return []
    old = read_record(run)
    job = Job(run)
    if old.host == host():
        if job.live and job.status()["state"] not in LIVE:
            job.wait_gone(LEFTOVER_GRACE_S)
        if job.live or job.status()["state"] in LIVE:
            raise JobError(f"{run} is still {job.status()['state']} (process {job.status()['pid']}); `seedlab cancel {run}` ends it")
        group.end(old, grace_s=LEFTOVER_GRACE_S)
    elif job.status()["state"] in LIVE:
        raise JobError(f"{run} is running on {old.host}; cancel it there first")
    return [*old.previous, {"id": old.id, "submitted": old.submitted, "argv": old.argv, "code": old.code}]


def _environment(record: JobRecord, code: Path | None, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    env = child_environment(threads=threads) | dict(extra) | {MARK: record.id, "PYTHONUNBUFFERED": "1"}
    if code is not None:
        # Without safe path, `python -m` would look in the present folder first: the checkout, with its later edits.
        env |= {"PYTHONPATH": os.pathsep.join(filter(None, [str(code), env.get("PYTHONPATH")])), "PYTHONSAFEPATH": "1"}
    return env


def _launch(run: Path, record: JobRecord, env: dict[str, str]) -> None:
    with open(run / "log.txt", "ab") as log:
        start = log.tell()
        try:
            done = subprocess.run(
                [sys.executable, "-m", "seedlab.jobs.runner", str(run)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=env, cwd=record.cwd, start_new_session=True, timeout=START_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise JobError(f"{run}: the job's launcher did not start within {START_S:g} s; is the machine overloaded?") from error
    if done.returncode != 0:
        said = (run / "log.txt").read_bytes()[start:].decode("utf-8", "replace").strip().splitlines()[-3:]
        raise JobError(f"{run}: the job's launcher could not start: {' / '.join(said) or f'exit code {done.returncode}'}")
