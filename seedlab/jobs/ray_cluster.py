"""A Ray cluster of one's own, as ordinary jobs with recorded processes: ``seedlab ray start``, ended by ``seedlab cancel``.

``ray stop`` is never called: it ends processes by their name, everybody's on the machine.  Token authentication is on,
with a token file that only its owner can read, on both sides.  Ray's own port (the GCS) listens on all interfaces
whatever address it is given, so the token is what keeps others out.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
import time
from pathlib import Path

import httpx

from seedlab.jobs.job import Job
from seedlab.jobs.record import JobError
from seedlab.jobs.slots import default_queue

PORT, DASHBOARD_PORT = 6379, 8265
START_S = 300.0
POLL_S = 0.5


def default_token_file() -> Path:
    """`RAY_AUTH_TOKEN_PATH`, or ray-token beside the queue of local jobs."""
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or default_queue().parent / "ray-token")


def token_of(file: Path, *, create: bool = False) -> str:
    """The token of a file with mode 0600; with `create`, made where there is none.  Raises JobError where others can
    read it."""
    if create and not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        # The mode is there from the beginning: at no moment can others read it.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as out:
            out.write(secrets.token_hex(32))
    try:
        mode, text = stat.S_IMODE(file.stat().st_mode), file.read_text().strip()
    except OSError as error:
        raise JobError(f"Ray's token file {file} cannot be read: {error}; `seedlab ray start` makes one, or set RAY_AUTH_TOKEN_PATH") from error
    if mode & 0o077:
        raise JobError(f"Ray's token file {file} can be read by others (mode {mode:04o}): chmod 600 {file}")
    if not text:
        raise JobError(f"Ray's token file {file} is empty; remove it")
    return text


def ray_environment(token_file: Path) -> dict[str, str]:
    """What every process of the cluster, and every client of it, needs in its environment."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token_file.absolute()), "RAY_USAGE_STATS_ENABLED": "0"}


def ray_command() -> str:
    """The `ray` of this interpreter's environment, else the one on PATH.  Raises JobError where there is none."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("ray", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
    if found is None:
        raise JobError("ray is not installed here: pip install 'ray[default]==2.60.0', or the extra `cluster`")
    return found


def head_argv(*, port: int, dashboard_port: int, host: str = "127.0.0.1", extra: tuple[str, ...] = ()) -> list[str]:
    """`ray start --head` in the foreground, so that its processes are one group."""
    return [
        ray_command(), "start", "--head", "--block", f"--port={port}", f"--dashboard-host={host}", f"--dashboard-port={dashboard_port}",
        "--disable-usage-stats", *extra,
    ]  # fmt: skip


def worker_argv(address: str, extra: tuple[str, ...] = ()) -> list[str]:
    return [ray_command(), "start", f"--address={address}", "--block", "--disable-usage-stats", *extra]


def start_head(
    folder: str | Path, *, port: int = PORT, dashboard_port: int = DASHBOARD_PORT, token_file: Path | None = None, extra: tuple[str, ...] = ()
) -> Job:
    """Start the head as a job in `folder` and return once it answers; `extra` goes to `ray start`, such as
    ("--num-cpus=4",).  Raises JobError where it does not come up: the end of log.txt says why."""
    token_file = default_token_file() if token_file is None else token_file
    token_of(token_file, create=True)
    job = _submit(head_argv(port=port, dashboard_port=dashboard_port, extra=extra), folder, token_file)
    address = f"http://127.0.0.1:{dashboard_port}"
    deadline = time.monotonic() + START_S
    while not answers(address, token_file):
        if not job.live or time.monotonic() > deadline:
            said = job.logs(tail=5)
            job.cancel(grace_s=10)
            raise JobError(f"Ray's head does not answer at {address}: {said}")
        time.sleep(POLL_S)
    return job


def join(folder: str | Path, address: str, *, token_file: Path | None = None, extra: tuple[str, ...] = ()) -> Job:
    """Let this machine join the cluster at `address` (host:port of the head), as a job in `folder`."""
    token_file = default_token_file() if token_file is None else token_file
    token_of(token_file)
    return _submit(worker_argv(address, extra), folder, token_file)


def answers(address: str, token_file: Path) -> bool:
    """Whether Ray's job server answers at `address` and takes the token."""
    try:
        return httpx.get(f"{address}/api/jobs/", headers=bearer(token_file), timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def bearer(token_file: Path) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_of(token_file)}"}


def _submit(argv: list[str], folder: str | Path, token_file: Path) -> Job:
    from seedlab.jobs.submission import submit

    # A queue of its own: a cluster that runs for days must not hold a place of the runs'.
    queue = default_queue().with_name("ray-queue")
    return submit(argv, folder, queue=queue, slots=64, snapshot=False, env=ray_environment(token_file))
