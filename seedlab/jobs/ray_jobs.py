"""Ray Jobs over its HTTP interface: ray itself need not be installed where a job is submitted.

The job's command runs on the head of the cluster, in the same environment and on a shared file system; what it
starts through `ray.init()` spreads over the cluster.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from seedlab.config.names import suggestion
from seedlab.config.runtime import child_environment
from seedlab.jobs.ray_cluster import DASHBOARD_PORT, bearer, default_token_file, ray_environment, token_of
from seedlab.jobs.record import MARK, JobError, JobRecord

OPTIONS = ("address", "entrypoint_num_cpus", "entrypoint_num_gpus")
TIMEOUT_S = 30.0
_STATES = {"PENDING": "queued", "RUNNING": "running", "STOPPED": "gone", "FAILED": "gone", "SUCCEEDED": "gone"}


def check(options: Mapping[str, Any]) -> None:
    """`address` of the job server (default: RAY_API_SERVER_ADDRESS, or this machine's), and the CPUs and GPUs that the
    command itself is to be given."""
    for name in options:
        if name not in OPTIONS:
            raise JobError(f"unknown option of Ray Jobs {name!r}{suggestion(name, OPTIONS)} (known: {', '.join(OPTIONS)})")
    token_of(default_token_file())


def start(run: Path, record: JobRecord, env: Mapping[str, str], options: Mapping[str, Any]) -> tuple[str, str]:
    """Submit under an id of our own; (id, address)."""
    address = str(options.get("address") or os.environ.get("RAY_API_SERVER_ADDRESS") or f"http://127.0.0.1:{DASHBOARD_PORT}").rstrip("/")
    # Ray shows a job's variables to everybody who may see the job: only seedlab's own go along, never the submitter's.
    names = {*child_environment({}), "PYTHONPATH", "PYTHONSAFEPATH"}
    variables = {name: env[name] for name in sorted(names) if name in env} | ray_environment(default_token_file())
    # exec: the shell would otherwise be the leader of the job's process group.  The job's id is set here and not for
    # Ray, whose own supervisor of the job is none of the job's processes.
    launcher = f"exec env {MARK}={record.id} {shlex.join([sys.executable, '-m', 'seedlab.jobs.batch', str(run)])} >> {shlex.quote(str(run / 'log.txt'))} 2>&1"
    number = f"seedlab-{record.id}"
    body = {"entrypoint": launcher, "submission_id": number, "runtime_env": {"env_vars": variables}, "metadata": {"run": str(run)}}
    body |= {name: float(value) for name, value in options.items() if name != "address"}
    _ask("POST", f"{address}/api/jobs/", json=body)
    return number, address


def state(record: JobRecord) -> str:
    try:
        answer = _ask("GET", f"{record.address}/api/jobs/{record.external_id}", missing=True)
    except JobError:
        return "unknown"
    return "gone" if answer is None else _STATES.get(answer["status"], "unknown")


def kill(record: JobRecord) -> None:
    """Ray ends the process group of this very job; its id was made by us and is never given out again."""
    _ask("POST", f"{record.address}/api/jobs/{record.external_id}/stop", missing=True)


def _ask(method: str, url: str, *, missing: bool = False, **options) -> dict | None:
    """The answer; None for 404 where `missing` is allowed.  Raises JobError otherwise."""
    try:
        # no proxy: the token must reach the cluster and nobody else
        answer = httpx.request(method, url, headers=bearer(default_token_file()), timeout=TIMEOUT_S, trust_env=False, **options)
    except httpx.HTTPError as error:
        raise JobError(f"Ray's job server does not answer at {url}: {error!r}; `seedlab ray start` starts one, --ray address=URL names another") from error
    if missing and answer.status_code == 404:
        return None
    if answer.status_code in (401, 403):
        raise JobError(f"Ray's job server at {url} refuses the token of {default_token_file()}; set RAY_AUTH_TOKEN_PATH to the cluster's token file")
    if answer.status_code >= 400:
        raise JobError(f"Ray's job server at {url} answered {answer.status_code}: {answer.text.strip()[-500:]}")
    return answer.json()
