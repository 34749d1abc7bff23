"""The official engine in a process of its own, spoken to over a pipe, with a deadline for every answer.

Its dependencies are heavy and pinned to other versions than ours, so it may live in another interpreter:
`SEEDLAB_ALFWORLD_PYTHON` names one, else the running interpreter is used where it has `alfworld`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path

from seedlab.envs.protocol import InfrastructureError
from seedlab.errors import UserError

PYTHON_VARIABLE = "SEEDLAB_ALFWORLD_PYTHON"
_PROGRAM = Path(__file__).with_name("worker.py")
_STARTUP_S = 120.0  # importing the engine on a busy machine, once per process
_SHOWN_STDERR = 600


class OfficialEngineMissing(UserError):
    """No interpreter with `alfworld` is known; the message says how to name or make one."""


def official_python() -> str:
    """Interpreter that has the official engine.  OfficialEngineMissing where none is known."""
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise OfficialEngineMissing(f"{PYTHON_VARIABLE}={named} is not a program that can be run")
        return found
    if importlib.util.find_spec("alfworld") is not None:
        return sys.executable
    raise OfficialEngineMissing(
        "the official engine is not installed: pip install --editable '.[alfworld]' (needs a C/C++ compiler), or set "
        f"{PYTHON_VARIABLE} to the python of an environment that has alfworld==0.4.2 (`make alfworld` makes one)"
    )


class OfficialProcess:
    """One worker process.  Every method raises InfrastructureError, with `task`, when it dies, hangs or fails.

    After such an error the process is gone and the object is of no more use.
    """

    def __init__(self, timeout_s: float, memoise: bool = True):
        self.timeout_s = timeout_s
        self.task = "(no task)"
        command = [official_python(), str(_PROGRAM), *(["--memoise"] if memoise else [])]
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0, start_new_session=True
        )
        self._rest = b""
        self._started = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, op: str, **arguments: object) -> dict:
        """The answer to one request, within `timeout_s` (the first one may take longer: the engine is imported)."""
        deadline = time.monotonic() + self.timeout_s + (0 if self._started else _STARTUP_S)
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}).encode() + b"\n")
            answer = json.loads(self._read_line(op, deadline))
        except (BrokenPipeError, json.JSONDecodeError, ValueError) as error:
            raise self._failure(op, f"broke off ({error})") from error
        self._started = True
        if "error" in answer:
            raise self._failure(op, f"failed: {answer['error']}")
        return answer

    def _read_line(self, op: str, deadline: float) -> bytes:
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise self._failure(op, "did not answer in time (env.official_timeout_s)")
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                raise self._failure(op, "died")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _failure(self, op: str, what: str) -> InfrastructureError:
        self._kill()
        code = self._process.returncode
        self._stderr.seek(0)
        said = self._stderr.read()[-_SHOWN_STDERR:].decode(errors="replace").strip()
        self.close()
        return InfrastructureError(
            f"{self.task}: the official engine's process {self.pid} {what} at `{op}` (exit code {code})"
            + (f"; it said: {said}" if said else "")
        )

    def close(self) -> None:
        """End the process and its group; safe to call again."""
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            pipe.close()

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


class ProcessPool:
    """Processes for environments: one each, kept for the next environment when one is closed."""

    def __init__(self, timeout_s: float, memoise: bool = True, keep: int = 16):
        self.timeout_s, self.memoise, self.keep = timeout_s, memoise, keep
        self.idle: list[OfficialProcess] = []
        weakref.finalize(self, _close_all, self.idle)

    def lease(self, task: str) -> OfficialProcess:
        while self.idle:
            process = self.idle.pop()
            if process.alive:
                break
            process.close()
        else:
            process = OfficialProcess(self.timeout_s, self.memoise)
        process.task = task
        return process

    def give_back(self, process: OfficialProcess) -> None:
        if process.alive and len(self.idle) < self.keep:
            self.idle.append(process)
        else:
            process.close()

    def close(self) -> None:
        """End the idle processes."""
        _close_all(self.idle)


def _close_all(processes: list[OfficialProcess]) -> None:
    while processes:
        processes.pop().close()
