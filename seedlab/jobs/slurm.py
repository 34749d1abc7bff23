"""Slurm: a plain batch script in the run folder, requeued before its time limit for as long as it makes progress.

submitit would add a second record of every job (pickles, its own log folder and its own idea of the state) beside the
run folder, which is the record here already.  What is needed of it is one script of fifteen lines, which a person can
read, change and submit by hand: ``sbatch RUN/job.sbatch``.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedlab.config.names import suggestion
from seedlab.jobs.record import MARK, JobError, JobRecord
from seedlab.store.files import shown_path, write_text

SCRIPT = "job.sbatch"
LEAD = "SEEDLAB_SLURM_LEAD_S"  # how long before the time limit the warning comes
LEAD_S = 300
ASK_S = 30.0
# Options of sbatch that a run may need; what seedlab sets itself is not among them.
OPTIONS = (
    "account", "cluster-constraint", "clusters", "comment", "constraint", "cores-per-socket", "cpus-per-gpu", "cpus-per-task", "deadline",
    "dependency", "exclude", "exclusive", "gpu-bind", "gpus", "gpus-per-node", "gpus-per-task", "gres", "hint", "job-name", "licenses", "mail-type",
    "mail-user", "mem", "mem-per-cpu", "mem-per-gpu", "network", "nice", "nodelist", "nodes", "ntasks-per-node", "partition", "prefer",
    "priority", "qos", "reservation", "signal", "switches", "time", "tmp", "wckey",
)  # fmt: skip
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"}
_SIGNAL = re.compile(r"B:USR1@(\d+)")


def check(options: Mapping[str, Any]) -> None:
    """Options of sbatch in their long form, such as {"time": "24:00:00", "gpus-per-node": 8}."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise JobError(f"unknown option of sbatch {name!r}{suggestion(name, OPTIONS)}; output, requeue and the like are set by seedlab")
        if not re.fullmatch(r"[^\s\"'\\`$]*", str(value)):
            raise JobError(f"sbatch option {name}={value!r}: no spaces, quotes or dollar signs")
    if not _SIGNAL.fullmatch(str(options.get("signal", "B:USR1@0"))):
        raise JobError(f"sbatch option signal={options['signal']!r}: write B:USR1@SECONDS, the time that a run needs to save a checkpoint")


def script(run: Path, record: JobRecord, env: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Text of the batch script.  No variable of the submitter's environment is written into it but the code's path."""
    settings = {"job-name": f"seedlab-{run.name}", "nodes": 1, "ntasks-per-node": 1, "signal": f"B:USR1@{LEAD_S}"} | dict(options)
    lead = _SIGNAL.fullmatch(str(settings["signal"]))[1]
    lines = ["#!/bin/bash", f"# Written by seedlab; `seedlab cancel {run}` ends the job."]
    lines += [f"#SBATCH --{name}={value}" if value != "" else f"#SBATCH --{name}" for name, value in settings.items()]
    # %% is one %; the log goes on after a requeue
    log = str(run / "log.txt").replace("%", "%%")
    lines += [f'#SBATCH --output="{log}"', "#SBATCH --open-mode=append", "#SBATCH --requeue"]
    lines += [f"export {name}={shlex.quote(env[name])}" for name in ("PYTHONPATH", "PYTHONSAFEPATH") if name in env]
    lines += [f"export {MARK}={record.id} {LEAD}={lead}"]
    # exec: the warning goes to the shell of the batch script alone, so that this has to be the launcher
    lines += [f"exec {shlex.quote(sys.executable)} -m seedlab.jobs.batch {shlex.quote(str(run))}"]
    return "\n".join(lines) + "\n"


def start(run: Path, record: JobRecord, env: Mapping[str, str], options: Mapping[str, Any]) -> tuple[str, str]:
    """Write the script and hand it to sbatch; (job id, cluster)."""
    write_text(run / SCRIPT, script(run, record, env, options))
    # the script itself sets the job's id: what sbatch starts besides it is not the job's
    inherited = {name: value for name, value in env.items() if name != MARK}
    done = call(["sbatch", "--parsable", str(run / SCRIPT)], env=inherited, cwd=record.cwd)
    if done.returncode != 0:
        raise JobError(f"{shown_path(run)}: sbatch refused the job: {done.stderr.strip() or f'exit code {done.returncode}'}")
    number, _, cluster = done.stdout.strip().splitlines()[-1].partition(";")
    if not re.fullmatch(r"\d+(_\d+)?", number):
        raise JobError(f"{shown_path(run)}: sbatch answered {done.stdout.strip()!r}, which is no job id")
    return number, cluster


def state(record: JobRecord) -> str:
    try:
        done = call(["squeue", *_cluster(record), "--noheader", "--format=%T", f"--jobs={record.external_id}"])
    except JobError:  # no Slurm on this machine, or it does not answer
        return "unknown"
    if done.returncode != 0:
        return "gone" if "invalid job id" in done.stderr.lower() else "unknown"
    states = done.stdout.split()
    if not states or states[0] in _ENDED:
        return "gone"
    return "queued" if states[0] in _WAITING else "running"


def kill(record: JobRecord) -> None:
    done = call(["scancel", *_cluster(record), record.external_id])
    if done.returncode != 0 and "invalid job id" not in done.stderr.lower():
        raise JobError(f"{shown_path(record.run)}: scancel {record.external_id} failed: {done.stderr.strip()}")


def requeue(record: JobRecord) -> str:
    """Ask Slurm to start the job again, from within the job; what went wrong, or ""."""
    try:
        done = call(["scontrol", *_cluster(record), "requeue", record.external_id])
    except JobError as error:
        return str(error)
    return "" if done.returncode == 0 else done.stderr.strip() or f"scontrol requeue: exit code {done.returncode}"


def _cluster(record: JobRecord) -> list[str]:
    return [f"--clusters={record.address}"] if record.address else []


def call(argv: list[str], **options) -> subprocess.CompletedProcess:
    """A command of Slurm.  Raises JobError where it is not installed or does not answer."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=ASK_S, check=False, **options)
    except FileNotFoundError as error:
        raise JobError(f"{argv[0]} is not installed here; submit from a login node of the cluster, or use --backend local") from error
    except subprocess.TimeoutExpired as error:
        raise JobError(f"{argv[0]} did not answer within {ASK_S:g} s; is the Slurm controller up? (`scontrol ping`)") from error


def nodes() -> list[str]:
    """Host names of this allocation, the first one being where the batch script runs; one where Slurm is not there."""
    if int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) < 2:
        return [os.environ.get("SLURMD_NODENAME", "")]
    done = call(["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]])
    if done.returncode != 0 or not done.stdout.split():
        raise JobError(f"scontrol show hostnames {os.environ['SLURM_JOB_NODELIST']} failed: {done.stderr.strip()}")
    return done.stdout.split()
