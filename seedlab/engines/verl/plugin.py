"""What verl imports in every process (VERL_USE_EXTERNAL_MODULES): our CPU platform and a time-out for collectives.

verl passes no time-out to torch.distributed and names the backend `cpu:gloo,cpu:gloo` on a CPU, which torch refuses.
"""

from __future__ import annotations

import os

import verl.utils.distributed as distributed
from verl.plugin.platform import PlatformRegistry

from seedlab.engines.verl.cpu import NAME, CpuPlatform

COLLECTIVE_TIMEOUT = "SEEDLAB_COLLECTIVE_TIMEOUT_S"

PlatformRegistry.register(NAME)(CpuPlatform)
_initialize = distributed.initialize_global_process_group_ray


def initialize_global_process_group_ray(timeout_second=None, backend=None):
    """verl's own, with our time-out and, on a CPU, with gloo alone."""
    if timeout_second is None and COLLECTIVE_TIMEOUT in os.environ:
        timeout_second = float(os.environ[COLLECTIVE_TIMEOUT])
    if backend is None and os.environ.get("VERL_PLATFORM") == NAME:
        backend = "gloo"
    _initialize(timeout_second=timeout_second, backend=backend)


distributed.initialize_global_process_group_ray = initialize_global_process_group_ray
