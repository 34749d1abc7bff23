"""What a run was made with: versions, code, hardware."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import psutil
import torch

import seedlab

PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "pandas", "pyarrow", "pydantic", "scipy", "peft", "verl", "vllm", "deepspeed")


def environment_manifest() -> dict:
    """Versions of the packages that matter, commit and uncommitted changes of a checkout, and the machine."""
    return {
        "schema_version": 1,
        "seedlab": seedlab.__version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES if _version(name)},
        "code": code_state(Path(seedlab.__file__).parent),
        "hardware": {
            "machine": platform.machine(), "system": platform.system(), "cpu": _cpu_name(), "cores": os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def code_state(package: Path) -> dict:
    """Commit and hash of the uncommitted diff, or only a hash of the sources where there is no git checkout."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    state = {"source_hash": digest.hexdigest()[:16]}
    commit = _git(package, "rev-parse", "HEAD")
    if commit:
        diff = _git(package, "diff", "HEAD", "--", ".") or ""
        state |= {"commit": commit, "dirty": bool(diff), "diff_hash": hashlib.sha256(diff.encode()).hexdigest()[:16]}
    return state


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
