"""``python requirements/check_lock.py requirements/gpu.lock 'verl[vllm]'``: is a lock consistent by the packages' own metadata?

Asks pip for the metadata of every pinned version (of a wheel only its index is read, by range requests: nothing as large
as a GPU wheel is downloaded), and checks every requirement of every package against the pins, for Python 3.11 on Linux
x86-64.  Further arguments name extras that are installed.  Exit code 1 lists what is missing or contradicted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

MACHINE = {
    "python_version": "3.11", "python_full_version": "3.11.9", "implementation_name": "cpython", "sys_platform": "linux",
    "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix", "platform_python_implementation": "CPython",
}  # fmt: skip
# Packages that come as source only, whose metadata pip would have to build (deepspeed needs torch for that).
SOURCE_ONLY = ("deepspeed", "antlr4-python3-runtime")


def read_lock(file: Path) -> dict[str, str]:
    lines = [line.split("#")[0].strip() for line in file.read_text().splitlines()]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines if line)}


def fetch_metadata(pins: dict[str, str]) -> dict[str, list[str]]:
    """{package: its requirements}, as pip reads them without installing or downloading wheels."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "pins.txt"
        wanted.write_text("".join(f"{n}=={v}\n" for n, v in pins.items() if n not in SOURCE_ONLY))
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "--quiet", "--only-binary=:all:",
            "--use-feature=fast-deps", "--report", f"{folder}/report.json", "--requirement", str(wanted),
        ]  # fmt: skip
        subprocess.run(command, check=True)
        report = json.loads(Path(f"{folder}/report.json").read_text())
    return {canonicalize_name(i["metadata"]["name"]): i["metadata"].get("requires_dist", []) for i in report["install"]}


def contradictions(pins: dict[str, str], metadata: dict[str, list[str]], extras: dict[str, set[str]]) -> list[str]:
    """One line per requirement that the pins lack or contradict; `extras` are those installed, and grow by those asked for."""
    wanted = {name: {""} | extras.get(name, set()) for name in metadata}
    grown = True
    while grown:  # a package may ask for an extra of another one
        grown = False
        for name in metadata:
            for requirement in _active(metadata[name], wanted[name]):
                target = canonicalize_name(requirement.name)
                if target in wanted and not requirement.extras <= wanted[target]:
                    wanted[target] |= requirement.extras
                    grown = True
    found = []
    for name, texts in sorted(metadata.items()):
        for requirement in _active(texts, wanted[name]):
            version = pins.get(canonicalize_name(requirement.name))
            if version is None:
                found.append(f"{name}=={pins[name]} needs {requirement}, which is not pinned")
            elif not requirement.specifier.contains(Version(version), prereleases=True):
                found.append(f"{name}=={pins[name]} needs {requirement}, pinned is {version}")
    return found


def _active(texts: list[str], extras: set[str]) -> list[Requirement]:
    machine = dict(default_environment()) | MACHINE
    requirements = [Requirement(text) for text in texts]
    return [r for r in requirements if r.marker is None or any(r.marker.evaluate(machine | {"extra": e}) for e in extras)]


def main(arguments: list[str]) -> int:
    lock, *asked = arguments
    pins = read_lock(Path(lock))
    extras = {canonicalize_name(r.name): r.extras for r in map(Requirement, asked)}
    problems = contradictions(pins, fetch_metadata(pins), extras)
    print("\n".join(problems) or f"{lock}: {len(pins)} pins agree with each other ({', '.join(SOURCE_ONLY)}: source only, not asked)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
