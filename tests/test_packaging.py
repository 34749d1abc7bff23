"""Environment files, locks, make targets and the package's own metadata agree with each other."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import seedlab

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ASKED_FOR = ("jupyterlab", "papermill", "torch", "vllm", "transformers", "deepspeed", "plotly", "pandas", "ipywidgets", "verl")


def conda_pins(name):
    """{package: version} of a conda environment file's pip section; options such as --editable are left out."""
    content = yaml.safe_load((ROOT / name).read_text())
    [pip] = [entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict)]
    requirements = [Requirement(line) for line in pip if not line.startswith("--")]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in requirements}


def lock(name):
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), f"{name} has a line that is not name==version"
    return {canonicalize_name(package): version for package, version in pairs}


def declared(*extras):
    return [Requirement(text) for text in PROJECT["dependencies"] + [t for e in extras for t in PROJECT["optional-dependencies"][e]]]


def test_the_gpu_environment_pins_all_ten_packages():
    pins = conda_pins("environment.yml")
    assert {name: pins.get(name) for name in ASKED_FOR if not re.fullmatch(r"\d[\w.]*", pins.get(name, ""))} == {}


def test_each_of_the_ten_packages_is_used():
    code = "\n".join(f.read_text() for f in [*(ROOT / "seedlab").rglob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")])
    imported = {name for name in ASKED_FOR if re.search(rf"^[ \t\"]*(import|from) {name}\b", code, re.MULTILINE)}
    # papermill runs the notebooks in a process of its own, and JupyterLab shows them
    makefile = (ROOT / "Makefile").read_text()
    started = {name for name, words in {"jupyterlab": "jupyter lab", "papermill": "papermill"}.items() if words in makefile + code}
    assert set(ASKED_FOR) - imported - started == set()


def test_the_gpu_environment_is_the_set_that_verl_fixes():
    pins = conda_pins("environment.yml")
    assert {name: pins[name] for name in ("verl", "vllm", "torch", "transformers", "deepspeed")} == {
        "verl": "0.9.1", "vllm": "0.24.0", "torch": "2.11.0", "transformers": "5.9.0", "deepspeed": "0.19.8",
    }  # fmt: skip


@pytest.mark.parametrize("environment, locked", [("environment.yml", "gpu.lock"), ("environment-cpu.yml", "cpu.lock")])
def test_environments_and_locks_agree(environment, locked):
    versions = lock(locked)
    assert {name: version for name, version in conda_pins(environment).items() if versions.get(name) != version} == {}


@pytest.mark.parametrize(
    "locked, extras",
    [("cpu.lock", ("dev", "browser", "notebooks", "search", "lora", "gguf")), ("gpu.lock", ("dev", "notebooks", "lora", "cluster"))],
)
def test_locks_satisfy_what_the_package_declares(locked, extras):
    versions = lock(locked)
    wrong = [str(r) for r in declared(*extras) if versions.get(canonicalize_name(r.name), "0") not in r.specifier]
    assert wrong == []


def test_the_laptop_has_the_measured_versions():
    versions = lock("cpu.lock")
    assert (versions["torch"], versions["transformers"], versions["numpy"]) == ("2.13.0", "5.10.4", "2.4.6")


def test_locks_carry_no_local_builds():
    for name in ("cpu.lock", "gpu.lock"):
        assert [version for version in lock(name).values() if "+" in version] == []


def test_the_package_metadata():
    assert PROJECT["requires-python"] == ">=3.11,<3.13"
    assert PROJECT["scripts"] == {"seedlab": "seedlab.cli.main:main"}
    assert seedlab.__version__.split("+")[0] == PROJECT["version"]


def test_every_room_is_packaged():
    rooms = [path.name for path in (ROOT / "seedlab").iterdir() if path.is_dir() and any(path.glob("*.py"))]
    assert [room for room in rooms if not (ROOT / "seedlab" / room / "__init__.py").exists()] == []


def make(*arguments):
    if shutil.which("make") is None:
        pytest.skip("wanted: the make program")
    # These tests run under `make test` themselves, whose flags would reach the inner make.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, env=environment)


def make_plan(*arguments):
    done = make("--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_make_lab_opens_the_repository_with_the_notebooks_in_sight():
    plan = make_plan("lab", "LAB_ARGS=--no-browser")
    # The root holds runs/ too, so that exports and run folders can be opened from the browser.
    assert "jupyter lab --ServerApp.root_dir=. --LabApp.default_url=/lab/tree/notebooks --no-browser" in plan.splitlines()[-1]


def test_make_demo_installs_and_runs(tmp_path):
    plan = make_plan("demo", f"VENV={tmp_path}/venv")
    assert f"-m venv --clear {tmp_path}/venv" in plan
    assert "--constraint requirements/cpu.lock --config-settings editable_mode=compat --editable ." in plan
    assert plan.splitlines()[-1].endswith("seedlab demo  --out runs/demo")
    assert "seedlab demo --quick --out runs/demo" in make_plan("demo", "QUICK=1")
    assert "--quick" not in make_plan("demo", "QUICK=0")


def test_a_second_make_installs_nothing(tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    for stamp in (".made", ".installed", ".installed-dev"):
        (venv / stamp).touch()
    plan = make_plan("test", f"VENV={venv}")
    assert "pip install" not in plan
    assert '-m pytest -m "not full"' in plan


def test_an_environment_that_was_interrupted_before_it_had_pip_is_made_again(tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (venv / "left").touch()
    done = make(f"{venv}/.made", f"PYTHON={sys.executable}", f"VENV={venv}")
    assert done.returncode == 0 and not (venv / "left").exists() and (venv / "bin" / "pip").exists()
    (venv / ".made").unlink()
    (venv / "installed-by-hand").touch()
    assert make(f"{venv}/.made", f"PYTHON={sys.executable}", f"VENV={venv}").returncode == 0
    assert (venv / "installed-by-hand").exists()  # a whole one is the user's


def test_make_refuses_an_unsupported_python(tmp_path):
    fake = tmp_path / "python3"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.version_info = (3, 14, 0); exec(sys.argv[1])" "$2"\n')
    fake.chmod(0o755)
    done = make("demo", f"PYTHON={fake}", f"VENV={tmp_path}/venv")
    assert done.returncode == 2
    assert "seedlab needs Python 3.11 or 3.12" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_ci_runs_the_commands_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text()
    assert script.startswith("#!/usr/bin/env bash")
    assert "set -euo pipefail" in script
    assert script.index("make test\n") < script.index("make test-full")
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
