"""A CPU as verl's accelerator: gloo, fake GPUs for Ray, no memory management.  For proofs without a GPU."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from verl.plugin.platform import PlatformBase

NAME = "cpu"


def _nothing(*args, **kwargs) -> None:
    return None


def _resident_bytes(*args) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# The part of torch.cuda that verl calls.
_DEVICE = SimpleNamespace(
    is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0, set_device=_nothing, synchronize=_nothing,
    empty_cache=_nothing, ipc_collect=_nothing, reset_peak_memory_stats=_nothing, manual_seed=torch.manual_seed,
    manual_seed_all=torch.manual_seed, memory_allocated=_resident_bytes, memory_reserved=_resident_bytes,
    max_memory_allocated=_resident_bytes, max_memory_reserved=_resident_bytes, mem_get_info=lambda *a: (0, 0),
    get_rng_state=torch.get_rng_state, set_rng_state=torch.set_rng_state, get_device_name=lambda *a: "CPU",
)  # fmt: skip


class CpuPlatform(PlatformBase):
    """`current_device` is a device rather than an index: verl moves tensors to it."""

    device_name = NAME
    vendor_name = "seedlab"
    device_module = _DEVICE

    def is_available(self) -> bool:
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:
        return False  # chosen by VERL_PLATFORM=cpu, never found by itself

    def current_device(self):
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        return None

    def synchronize(self, device_index: int | None = None) -> None:
        return None

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        return None

    def empty_cache(self) -> None:
        return None

    def get_device_capability(self, device_index: int = 0):
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str):
        yield

    def profiler_start(self) -> None:
        return None

    def profiler_stop(self) -> None:
        return None

    def ray_resource_name(self) -> str:
        return "GPU"  # Ray is told of as many as there are ranks

    def ray_noset_envvars(self) -> list[str]:
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self):
        return None
