"""Start Stage 1's training under torchrun, wait for it, and say what happened."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

import torch

from seedlab.config.runtime import child_environment
from seedlab.engines.deepspeed_job import CAUSE, PARENT, SftJob, parent_mark, told, write_job
from seedlab.errors import UserError
from seedlab.store.files import tail_rows

LOG_LINES = 25  # of the processes' own words, where the training fails


class DistributedTrainingFailed(UserError):
    """A process of the training died; the message has its last words and where the whole log is."""

    exit_code = 1


def require_deepspeed() -> None:
    """Raises UserError where DeepSpeed is not installed."""
    if importlib.util.find_spec("deepspeed") is None:
        raise UserError(
            "cluster.sft_zero_stage needs DeepSpeed: install the environment of environment.yml, or set cluster.sft_zero_stage=0"
        )


def train_with_deepspeed(job: SftJob, on_step: Callable[[int, int, float], None], *, poll_s: float = 0.5) -> list[float]:
    """Train and return the loss of each step; the weights are then in ``job.folder/result``.

    A folder with checkpoints of the same job goes on where it stopped.  One machine: `cluster.gpus` processes.  The
    processes end with this one.  Raises UserError without DeepSpeed, Diverged or MemoryError where a process ended so,
    DistributedTrainingFailed where one died of anything else.
    """
    require_deepspeed()
    if job.model.device == "cuda" and torch.cuda.device_count() < job.cluster.gpus:
        raise UserError(f"cluster.gpus={job.cluster.gpus}, but torch sees {torch.cuda.device_count()} CUDA devices on this machine")
    if (job.folder / "result").exists():
        shutil.rmtree(job.folder / "result")
    for stale in ("losses.json", "progress.jsonl", CAUSE):
        (job.folder / stale).unlink(missing_ok=True)
    write_job(job)
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.cluster.gpus),
        "-m", "seedlab.engines.deepspeed_sft", str(job.folder),
    ]  # fmt: skip
    environment = child_environment(threads=job.threads) | {PARENT: parent_mark()}
    if job.model.device == "cpu":
        environment["DS_ACCELERATOR"] = "cpu"
    log = job.folder / "log.txt"
    with open(log, "ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        offset = 0
        while process.poll() is None:
            offset = _report(job.folder / "progress.jsonl", offset, on_step)
            time.sleep(poll_s)
    finally:
        if process.poll() is None:
            process.terminate()  # torchrun ends its workers
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()  # its workers end by themselves at their next step
                process.wait()
    if process.returncode != 0 and (cause := told(job.folder)) is not None:
        raise cause
    if process.returncode != 0:
        tail = "\n".join(last_words(log.read_text(errors="replace").splitlines()))
        raise DistributedTrainingFailed(
            f"training with DeepSpeed ended with exit code {process.returncode}; the whole log is {log}, checkpoints are kept and "
            f"the same command goes on. Last lines:\n{tail}"
        )
    _report(job.folder / "progress.jsonl", offset, on_step)
    return json.loads((job.folder / "losses.json").read_text())


def _report(file: Path, offset: int, on_step: Callable[[int, int, float], None]) -> int:
    rows, offset = tail_rows(file, offset) if file.exists() else ([], offset)
    for row in rows:
        on_step(row["step"], row["total"], row["loss"])
    return offset


def last_words(lines: list[str]) -> list[str]:
    """What the first worker to fail said at the end: the log goes on with torchrun's own report, which names no cause."""
    end = next((i for i, line in enumerate(lines) if "elastic/multiprocessing/api.py" in line), len(lines))
    return lines[max(0, end - LOG_LINES) : end] or lines[-LOG_LINES:]
