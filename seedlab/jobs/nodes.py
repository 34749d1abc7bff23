"""Several machines in one Slurm job: a Ray cluster over the allocation for as long as the command runs.

verl finds it through RAY_ADDRESS.  torchrun finds its rendezvous in MASTER_ADDR, MASTER_PORT and NNODES.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seedlab.jobs import slurm
from seedlab.jobs.ray_cluster import head_argv, ray_environment, token_of, worker_argv
from seedlab.jobs.record import JobError

START_S = 300.0
POLL_S = 1.0
FIRST_PORT = 20_000
COUNT = "import ray; ray.init(address='auto', log_to_driver=False); print('nodes', sum(n['Alive'] for n in ray.nodes()))"


@contextmanager
def nodes_environment(run: Path) -> Iterator[dict[str, str]]:
    """Variables for the command; nothing is started where the job has one machine.

    Raises JobError where not every machine joins within five minutes.  Everything that is started here is a child of
    this process and ends with this block.
    """
    names = slurm.nodes()
    if len(names) < 2:
        yield {}
        return
    token = run / ".ray-token"
    token_of(token, create=True)
    # two jobs of one user may share a machine
    port = FIRST_PORT + 4 * (int(os.environ["SLURM_JOB_ID"].split("_")[0]) % 5000)
    env = ray_environment(token) | {
        "RAY_ADDRESS": f"{names[0]}:{port}", "MASTER_ADDR": names[0], "MASTER_PORT": str(port + 2), "NNODES": str(len(names)),
    }  # fmt: skip
    started: list[subprocess.Popen] = []

    def begin(argv: list[str]) -> None:
        # Ray's own output would drown the run's log
        with open(run / "ray.txt", "ab") as log:
            started.append(subprocess.Popen(argv, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    try:
        begin(head_argv(port=port, dashboard_port=port + 1))
        others = ["srun", f"--nodes={len(names) - 1}", f"--ntasks={len(names) - 1}", "--ntasks-per-node=1", f"--exclude={names[0]}", "--overlap"]
        begin([*others, *worker_argv(env["RAY_ADDRESS"])])
        _wait_for(len(names), env, started, run)
        yield env
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_for(count: int, env: dict[str, str], started: list[subprocess.Popen], run: Path) -> None:
    deadline = time.monotonic() + START_S
    seen = 0
    while seen < count:
        dead = next((p for p in started if p.poll() is not None), None)
        if dead is not None or time.monotonic() > deadline:
            why = f"{dead.args[0]} ended with exit code {dead.returncode}" if dead is not None else f"{seen} of {count} machines joined within {START_S:g} s"
            raise JobError(f"the Ray cluster of {run} did not come up: {why}; see {run / 'ray.txt'}")
        time.sleep(POLL_S)
        done = subprocess.run([sys.executable, "-c", COUNT], env=os.environ | env, capture_output=True, text=True, check=False)
        found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("nodes ")]
        seen = int(found[-1]) if found else 0
