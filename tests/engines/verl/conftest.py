"""Tests of engine=verl need an environment with verl; another interpreter may have it (SEEDLAB_VERL_PYTHON)."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WANTED = (
    "needs an environment with verl 0.9.1: `make verl` makes one, or SEEDLAB_VERL_PYTHON names its interpreter "
    "(requirements/verl-cpu.lock)"
)


@pytest.fixture(scope="session")
def verl_python() -> str:
    """The interpreter of an environment that has verl; skips with what was wanted where there is none."""
    python = os.environ.get("SEEDLAB_VERL_PYTHON")
    if python:
        if not Path(python).exists():
            pytest.fail(f"SEEDLAB_VERL_PYTHON={python} does not exist")
        return python
    try:
        importlib.metadata.version("verl")  # not find_spec: pytest puts this folder's parent on the path
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(WANTED)
    return sys.executable


@pytest.fixture(scope="session")
def under_verl(verl_python, own_cache):
    """under_verl(*argv, timeout, check): run that interpreter on this checkout; returns the finished process."""

    def run(*argv, timeout=600.0, check=True, env=None) -> subprocess.CompletedProcess:
        variables = os.environ | {"PYTHONPATH": str(ROOT), "SEEDLAB_CACHE": str(own_cache), "OMP_NUM_THREADS": "1"} | (env or {})
        variables.pop("RAY_ADDRESS", None)
        done = subprocess.run([verl_python, *map(str, argv)], capture_output=True, text=True, timeout=timeout, env=variables, cwd=ROOT)
        if check and done.returncode:
            pytest.fail(f"exit code {done.returncode} of {' '.join(map(str, argv))}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}")
        return done

    return run
