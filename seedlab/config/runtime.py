"""The environment variables that every process of seedlab runs under.

They have to be set before a process starts, so launchers pass :func:`child_environment` and the Makefile asks
``python -m seedlab.config.runtime``.  No torch here.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

# Two threads on contended cores were 10 to 50 times slower than one; arms and seeds run as processes instead.
THREADS = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
# A fork after the tokenizer's first use would otherwise warn on every start.
QUIET = {"TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


def allocator_settings(libc: tuple[str, str] | None = None) -> dict[str, str]:
    """glibc settings that keep freed tensors in the process: 30 to 40 % of a run's time otherwise goes into page faults.

    Before 2.35 glibc refuses an mmap threshold above 32 MiB (and then keeps 128 KiB, the worst choice).  Other C
    libraries have no such variables, so nothing is set for them.
    """
    name, version = platform.libc_ver() if libc is None else libc
    if name != "glibc":
        return {}
    recent = tuple(int(part) for part in version.split(".")[:2]) >= (2, 35)
    return {
        "MALLOC_MMAP_THRESHOLD_": str(2**30 if recent else 2**25),
        "MALLOC_TRIM_THRESHOLD_": str(2**30),
        "MALLOC_TOP_PAD_": str(2**26),
    }


def child_environment(base: Mapping[str, str] | None = None, *, threads: int = 1) -> dict[str, str]:
    """A copy of `base` (default: this process's environment) with seedlab's settings; what `base` sets itself stays.

    `threads` is the number of torch threads of the child.
    """
    settings = {name: str(threads) for name in THREADS} | QUIET | allocator_settings()
    return settings | dict(os.environ if base is None else base)


if __name__ == "__main__":
    print(" ".join(f"{key}={value}" for key, value in child_environment({}).items()))
