"""The official engine where it is installed, and a stand-in for its process where faults are tested."""

import stat
import sys

import pytest

from seedlab.envs.textworld.client import PYTHON_VARIABLE, OfficialEngineMissing, official_python

STAND_IN = """\
#!{python}
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    op, command = request["op"], request.get("command", "").strip()
    state = {{"feedback": "You see a shelf 1.", "admissible": ["look", "take mug 1 from shelf 1"], "won": False, "score": 0, "done": False}}
    if op == "reset":
        state["feedback"] += "\\n\\nYour task is to: put a mug in shelf."
    if command == "hang":
        time.sleep(600)
    if command == "die":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(7)
    if command == "garble":
        print("textworld says hello", flush=True)
        continue
    if command == "fail":
        state = {{"error": "KeyError: 'mug'"}}
    if command == "take mug 1 from shelf 1":
        state["feedback"] = "You pick up the mug 1 from the shelf 1."
    if command == "win":
        state["won"] = True
    if op == "load":
        state = {{"error": "no such game"}} if request["game"] == "missing" else {{"cpu_s": 0.0}}
    print(json.dumps(state), flush=True)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A program that speaks the worker's protocol in place of the official engine, and can be told to fail."""
    program = tmp_path / "engine"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(PYTHON_VARIABLE, str(program))
    return program


@pytest.fixture
def no_official(monkeypatch, tmp_path):
    """No official engine: whatever is asked of it fails."""
    monkeypatch.setenv(PYTHON_VARIABLE, str(tmp_path / "nowhere"))


@pytest.fixture(scope="session")
def official():
    """Skips where the official engine is not installed."""
    try:
        return official_python()
    except OfficialEngineMissing as error:
        pytest.skip(f"wanted the official ALFWorld engine: {error}")
