"""The environment of a run, made again from its manifest."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from seedlab.errors import UserError
from seedlab.store.files import read_versioned

# what pip and venv bring along themselves, and seedlab, whose code has a line of its own
_NOT_PINNED = ("pip", "setuptools", "wheel", "seedlab")


class RebuildFailed(UserError):
    """A step of the rebuild failed; the message names it and what it said."""

    exit_code = 1


@dataclass(frozen=True)
class Recipe:
    """`pins` are name -> version without local build names such as +cpu; `notes` say what is not the same again."""

    python: str
    pins: dict[str, str]
    commit: str | None
    notes: tuple[str, ...]

    @property
    def requirements(self) -> str:
        return "".join(f"{name}=={version}\n" for name, version in sorted(self.pins.items()))


def read_recipe(manifest: Path) -> Recipe:
    """From a manifest.json or a run folder; UserError where it says too little."""
    file = manifest / "manifest.json" if manifest.is_dir() else manifest
    content = read_versioned(file)
    installed = content.get("distributions")
    if not installed or "python" not in content:
        raise UserError(f"{file} lists no distributions: it was written by an older seedlab, and only names {sorted(content.get('packages', {}))}")
    code = content.get("code", {})
    notes = []
    builds = sorted(f"{n} {v}" for n, v in installed.items() if "+" in v)
    if builds:
        notes.append(f"builds with a local name are replaced by what your package index offers under the same version: {', '.join(builds)}")
    if not code.get("commit"):
        notes.append(f"the run's code was not a git checkout (source hash {code.get('source_hash')}); this seedlab's own code is installed instead")
    elif code.get("dirty"):
        notes.append(f"the run's code had uncommitted changes on top of {code['commit'][:12]} (hash {code.get('diff_hash')}), which are not recorded")
    pins = {canonicalize_name(n): v.split("+")[0] for n, v in installed.items() if canonicalize_name(n) not in _NOT_PINNED}
    return Recipe(content["python"], pins, code.get("commit"), tuple(notes))


def interpreter(recipe: Recipe) -> str:
    """A Python of the same minor version; UserError says which one is wanted."""
    minor = ".".join(recipe.python.split(".")[:2])
    if platform.python_version().startswith(f"{minor}."):
        return sys.executable
    found = shutil.which(f"python{minor}")
    if found is None:
        raise UserError(f"the run used Python {recipe.python}, and there is no python{minor} on this machine's path; install it, or use conda")
    return found


def commands(recipe: Recipe, folder: Path, checkout: Path) -> list[list[str]]:
    """What is run, in order.  `checkout` is a git checkout of seedlab, or the folder that its code lies in."""
    python, source = str(folder / "bin" / "python"), str(checkout)
    steps = [
        [interpreter(recipe), "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--requirement", str(folder / "requirements.txt")],
    ]
    if recipe.commit:
        source = str(folder / "seedlab-source")
        steps += [
            ["git", "clone", "--quiet", "--no-checkout", str(checkout), source],
            ["git", "-C", source, "checkout", "--quiet", recipe.commit],
        ]
    return [*steps, [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", source]]


def rebuild(recipe: Recipe, folder: Path, checkout: Path, say=print) -> list[str]:
    """Make the environment in `folder` and return what in it differs from the run's.

    Raises UserError where the folder is not empty, RebuildFailed where a step fails.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; choose another folder")
    for step in commands(recipe, folder, checkout):
        say(" ".join(step))
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode != 0:
            raise RebuildFailed(f"`{' '.join(step)}` ended with exit code {done.returncode}:\n{(done.stderr or done.stdout).strip()[-2000:]}")
        if step[1:3] == ["-m", "venv"]:
            (folder / "requirements.txt").write_text(recipe.requirements)
    return differences(recipe, folder)


def differences(recipe: Recipe, folder: Path) -> list[str]:
    """Versions in the environment of `folder` that are not the run's, asked of its own interpreter."""
    code = "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name']: d.version for d in m.distributions()}))"
    answer = subprocess.run([str(folder / "bin" / "python"), "-c", code], capture_output=True, text=True, check=True)
    found = {canonicalize_name(n): v.split("+")[0] for n, v in json.loads(answer.stdout).items()}
    return [f"{name}: {found.get(name, 'missing')}, the run had {version}" for name, version in sorted(recipe.pins.items()) if found.get(name) != version]
