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

from seedlab.config.names import flatten, suggestion
from seedlab.config.presets import load_config, parse_overrides
from seedlab.config.runtime import child_environment
from seedlab.config.schema import Config
from seedlab.config.starting import refuse_to_start
from seedlab.envs import check_settings
from seedlab.jobs import group
from seedlab.jobs.job import Job
from seedlab.jobs.record import MARK, JobError, JobRecord, change_record, read_record, write_record
from seedlab.jobs.schedulers import scheduler
from seedlab.jobs.slots import default_queue, default_slots
from seedlab.jobs.snapshot import snapshot_code
from seedlab.store.cache import usable_folder
from seedlab.store.files import shown_path, write_json
from seedlab.store.layout import UNTIL, configuration_of
from seedlab.store.process import host
from seedlab.store.status import LIVE, new_status, read_status

START_S = 60.0
LEFTOVER_GRACE_S = 10.0


def submit(
    argv: Sequence[str], run_path: str | Path, *, slots: int | None = None, queue: str | Path | None = None, threads: int = 1,
    config: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None, snapshot: bool = True, backend: str = "local",
    scheduler_options: Mapping[str, Any] | None = None,
) -> Job:
    """Start `argv` in the background with its log, record and status in the folder `run_path`; returns when its own
    process stands.

    At most `slots` jobs (default: cores / threads) of one `queue` (default: one per user) run at once; others wait with
    status `queued`.  The command runs a copy of seedlab's code as it is now (`snapshot`), in the present folder, with
    `env` on top of the present environment; neither is written to disk.  Raises JobError where the folder's job or run
    still lives.  What a killed job left running is ended first.

    With `backend` slurm or ray the job goes to that scheduler, which has a queue of its own; `scheduler_options` are
    sbatch's long options, or Ray Jobs' `address`.  The run folder has to lie on a file system that both sides share.
    """  # fmt: skip
    run = Path(run_path).absolute()
    if not argv:
        raise ValueError("submit needs a command")
    _check_backend(backend, scheduler_options or {}, env or {})
    queue = Path(queue).absolute() if queue is not None else default_queue()
    if backend == "local":
        usable_folder(queue, "the queue of local jobs")  # the launcher needs it after this function has returned
    usable_folder(run, "the run folder", setting="")
    # two submissions of one folder at the same moment: the second one sees the first one's job
    with open(run / ".submit.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        previous = _refuse_or_end(run)
        (run / "cancel.json").unlink(missing_ok=True)
        code = snapshot_code(run) if snapshot else None
        record = JobRecord(
            id=uuid.uuid4().hex, run=str(run), argv=[str(a) for a in argv], cwd=os.getcwd(), host=host(), submitted=time.time(),
            queue=str(queue),
            slots=default_slots(threads) if slots is None else slots, code=None if code is None else str(code.relative_to(run)),
            config=None if config is None else dict(config), previous=previous, backend=backend,
        )  # fmt: skip
        if record.slots < 1:
            raise ValueError(f"slots={record.slots}: a job needs at least one")
        write_record(run, record)
        environment = _environment(record, code, threads, env or {})
        if backend == "local":
            _launch(run, record, environment)
        else:
            _hand_over(run, record, environment, scheduler_options or {})
    return Job(run)


def submit_train(
    preset: str, overrides: Iterable[str] | Mapping[str, Any] = (), *, run_path: str | Path, until: str | None = None,
    results: str | Path | None = None, **options,
) -> Job:
    """``seedlab train PRESET …`` as a job: base rollouts, labels, SFT, Stage 2 and evaluation, one after the other.

    The configuration is resolved first, so that a wrong key is refused here.  `until="stage1"` (or rollouts, labels,
    stage2) ends the job there; `submit_resume` goes on.  `results` names a file for the finished run's row.  `options`
    go to `submit`.  Raises ConfigError, or JobError where `run_path` already holds a run.
    """  # fmt: skip
    config = load_config(preset, overrides)
    refuse_to_start(config)
    check_settings(config.env)
    _check_until(until)
    if (Path(run_path) / "config.json").exists():
        raise JobError(f"{run_path} already holds a run; `seedlab resume` (in Python: submit_resume) goes on with it, or choose another folder")
    settings = [f"{key}={json.dumps(value)}" for key, value in flatten(parse_overrides(overrides)).items()]
    # --resume: a scheduler may start the same command again
    argv = seedlab_argv("train", preset, *settings, "--out", str(Path(run_path).absolute()), "--resume", *_more(until, results))
    return _submit_run(argv, run_path, config, options)


def submit_resume(run_path: str | Path, *, until: str | None = None, results: str | Path | None = None, **options) -> Job:
    """``seedlab resume RUN`` as a job, with the configuration that the folder holds; otherwise as `submit_train`."""
    path = Path(run_path)
    config = configuration_of(path)
    _check_until(until)
    return _submit_run(seedlab_argv("resume", str(path.absolute()), *_more(until, results)), path, config, options)


def _submit_run(argv: list[str], run_path: str | Path, config: Config, options: Mapping[str, Any]) -> Job:
    options = {"threads": config.threads, **options}
    if options.get("backend") == "slurm" and config.engine == "verl":
        machines = {"nodes": config.cluster.nodes, "gpus-per-node": config.cluster.gpus}
        options["scheduler_options"] = machines | dict(options.get("scheduler_options") or {})
    return submit(argv, run_path, config=config.model_dump(mode="json"), **options)


def _check_until(until: str | None) -> None:
    if until is not None and until not in UNTIL:
        raise JobError(f"until={until!r} is unknown{suggestion(until, UNTIL)} (known: {', '.join(UNTIL)})")


def _more(until: str | None, results: str | Path | None) -> list[str]:
    more = ["--until", until] if until is not None else []
    return [*more, "--results", str(Path(results).absolute())] if results is not None else more


def seedlab_argv(*arguments: str) -> list[str]:
    """The command line of seedlab under this interpreter."""
    return [sys.executable, "-m", "seedlab", *arguments]


def _check_backend(backend: str, options: Mapping[str, Any], env: Mapping[str, str]) -> None:
    if backend != "local":
        scheduler(backend).check(options)
    elif options:
        raise JobError(f"backend local has no options such as {next(iter(options))!r}; choose backend slurm or ray")
    if backend == "ray" and set(env) - {"PYTHONPATH"}:
        raise JobError(f"Ray shows a job's variables ({', '.join(sorted(env))}) to everybody who may see the job; set them where the cluster is started")


def _hand_over(run: Path, record: JobRecord, env: dict[str, str], options: Mapping[str, Any]) -> None:
    """Give the job to its scheduler.  The status is there first: the job may start before this function returns."""
    write_json(run / "status.json", new_status("queued", scheduler=record.backend, phase="queued", note=f"waits in {record.backend}'s queue"))
    try:
        number, address = scheduler(record.backend).start(run, record, env, options)
    except JobError as error:
        write_json(run / "status.json", new_status("failed", exit_code=error.exit_code, ended=time.time(), error=str(error)))
        raise
    change_record(run, external_id=number, address=address)


def _refuse_or_end(run: Path) -> list[dict]:
    """Refuse a folder that something still writes; end what a killed job left.  Returns earlier jobs of the folder."""
    name = shown_path(run)
    if not (run / "job.json").exists():
        if (run / "status.json").exists() and read_status(run)["state"] in LIVE:
            raise JobError(f"{name} is being written by process {read_status(run)['pid']}, which was started in the foreground")
        return []
    old = read_record(run)
    job = Job(run)
    if old.backend != "local":
        if (state := job.status()["state"]) in LIVE:
            raise JobError(f"{name} is still {state} ({old.backend} job {old.external_id}); `seedlab cancel {name}` ends it")
    elif old.host == host():
        if job.live and job.status()["state"] not in LIVE:
            job.wait_gone(LEFTOVER_GRACE_S)
        if job.live or job.status()["state"] in LIVE:
            raise JobError(f"{name} is still {job.status()['state']} (process {job.status()['pid']}); `seedlab cancel {name}` ends it")
        group.end(old, grace_s=LEFTOVER_GRACE_S)
    elif job.status()["state"] in LIVE:
        raise JobError(f"{name} is running on {old.host}; cancel it there first")
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
            raise JobError(f"{shown_path(run)}: the job's launcher did not start within {START_S:g} s; is the machine overloaded?") from error
    if done.returncode != 0:
        said = (run / "log.txt").read_bytes()[start:].decode("utf-8", "replace").strip().splitlines()[-3:]
        raise JobError(f"{shown_path(run)}: the job's launcher could not start: {' / '.join(said) or f'exit code {done.returncode}'}")
