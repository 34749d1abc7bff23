"""What a run was made with: versions, code, hardware."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

import psutil
import torch

import seedlab
from seedlab.store.code_state import code_state

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "pyarrow", "pydantic", "scipy", "peft", "verl", "vllm", "deepspeed")


def environment_manifest() -> dict:
    """Versions of the packages that matter, commit and uncommitted changes of a checkout, and the machine."""
    return {
        "schema_version": 1,
        "seedlab": seedlab.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES if _version(name)},
        "distributions": installed_distributions(),
        "code": code_state(Path(seedlab.__file__).parent),
        "hardware": {
            "machine": platform.machine(), "system": platform.system(), "cpu": _cpu_name(), "cores": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
    }


def installed_distributions() -> dict[str, str]:
    """Every installed package with its version; `seedlab rebuild` makes the environment again from it."""
    found = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return dict(sorted((name, version) for name, version in found.items() if name))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
