"""What a check of `seedlab doctor` says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# its torch and transformers are others than the laptop's
CLUSTER_MEND = "conda env create --file environment.yml"


@dataclass(frozen=True)
class Check:
    """`status` is ok, absent (optional) or wrong (exit code 1); `mend` is a command or an instruction."""

    name: str
    status: str
    detail: str
    mend: str = ""


def install(what: str, installed: Callable[[str], str | None]) -> str:
    """pip's command for `what` under the lock of this very environment: another one's versions would break it."""
    lock = "gpu" if installed("vllm") else "verl-cpu" if installed("verl") else "cpu"
    return f"pip install --constraint requirements/{lock}.lock {what}"
