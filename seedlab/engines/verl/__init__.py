"""Stage 2 on verl 0.9.1's V1 trainer: Ray, FSDP2, vLLM.  Glue only: the objective, rows, skills and episodes are ours.

`loop` drives an update; `trainer`, `engine`, `loss`, `agent_loop` are what verl runs; `config` composes verl's
configuration; `cpu` and `replica` stand in for CUDA and vLLM where there is none.  Importing this package imports
neither torch nor verl.
"""

from __future__ import annotations

import importlib.util

from seedlab.errors import UserError

NEEDED = {"verl": "verl", "ray": "ray", "transfer_queue": "TransferQueue", "cachetools": "cachetools", "uvicorn": "uvicorn", "fastapi": "fastapi"}
INSTALL_GPU = "conda env create --file environment.yml"
INSTALL_CPU = "pip install torch==2.13.0 && pip install --requirement requirements/verl-cpu.lock"


def require() -> None:
    """Raises UserError naming what is missing and the command that installs it."""
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError(
            f"engine=verl needs {', '.join(missing)}, which this environment lacks.  On the GPU machine: {INSTALL_GPU}.  "
            f"On a machine without GPU (for tests): {INSTALL_CPU}"
        )
