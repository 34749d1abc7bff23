"""requirements/check_lock.py: what it finds in made-up metadata, and the real locks against their packages' (full tier)."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "requirements" / "check_lock.py"


@pytest.fixture(scope="module")
def check_lock():
    spec = importlib.util.spec_from_file_location("check_lock", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


METADATA = {
    "verl": ["transformers<5.11", 'vllm==0.24.0; extra == "vllm"', 'verl-core; extra == "core"', 'winsome; sys_platform == "win32"'],
    "vllm": ["torch==2.11.0", "ray[default]>=2.0"],
    "ray": ['aiohttp>=3; extra == "default"', 'old; python_version < "3.9"'],
    "transformers": [], "torch": ["setuptools<82"], "aiohttp": [], "setuptools": [],
}  # fmt: skip
PINS = {
    "verl": "0.9.1", "vllm": "0.24.0", "ray": "2.60.0", "transformers": "5.9.0", "torch": "2.11.0", "aiohttp": "3.14.5", "setuptools": "81.0.0",
}  # fmt: skip


def test_a_consistent_set_has_no_contradiction(check_lock):
    assert check_lock.contradictions(PINS, METADATA, {"verl": {"vllm"}}) == []


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"torch": "2.13.0"}, "vllm==0.24.0 needs torch==2.11.0, pinned is 2.13.0"),
        ({"transformers": "5.11.0"}, "verl==0.9.1 needs transformers<5.11, pinned is 5.11.0"),
        ({"setuptools": None}, "torch==2.11.0 needs setuptools<82, which is not pinned"),
        # only asked for through an extra that another package asks for
        ({"aiohttp": None}, 'ray==2.60.0 needs aiohttp>=3; extra == "default", which is not pinned'),
    ],
)
def test_what_is_missing_or_contradicted_is_named(check_lock, changed, message):
    pins = {name: version for name, version in (PINS | changed).items() if version}
    metadata = {name: METADATA[name] for name in pins}
    assert check_lock.contradictions(pins, metadata, {"verl": {"vllm"}}) == [message]


def test_an_extra_that_is_not_installed_asks_for_nothing(check_lock):
    pins = {name: version for name, version in PINS.items() if name != "vllm"}
    assert check_lock.contradictions(pins, {name: METADATA[name] for name in pins}, {}) == []


def test_the_real_locks_can_be_read(check_lock):
    assert check_lock.read_lock(ROOT / "requirements" / "gpu.lock")["verl"] == "0.9.1"
    assert check_lock.read_lock(ROOT / "requirements" / "cpu.lock")["torch"] == "2.13.0"


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_the_locks_agree_with_their_packages_metadata(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    # a pip that reads a wheel's metadata without the wheel
    ready = subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25", "packaging"], capture_output=True, text=True)
    if ready.returncode != 0:
        pytest.skip(f"wanted: a package index ({ready.stderr.strip()[-200:]})")
    for lock, *extras in (("cpu.lock",), ("gpu.lock", "verl[vllm]")):
        done = subprocess.run([python, SCRIPT, ROOT / "requirements" / lock, *extras], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr[-2000:]
