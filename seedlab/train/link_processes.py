"""The demo's links as processes forked from one that has torch and transformers loaded.

Importing them takes seconds; a demo has a dozen links.  The server holds no tensors and has computed nothing when it
forks, so that a link starts as clean as a new interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

from seedlab.config.runtime import child_environment

_LOADED = ["seedlab.train.prepare", "seedlab.train.run", "seedlab.train.stage1", "transformers.models.qwen2.modeling_qwen2"]


class LinkProcess:
    """``python -m seedlab.train.prepare ARGUMENTS`` with both streams appended to `log`, by the interface of Popen."""

    def __init__(self, arguments: list[str], log: Path):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_LOADED)
        # Thread and allocator settings are read when a process begins: the server has to have them too.
        before = dict(os.environ)
        environment = child_environment()
        os.environ.update(environment)
        try:
            self._process = context.Process(target=_run, args=(arguments, str(log), environment))
            self._process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def poll(self) -> int | None:
        """The exit code, negative where a signal ended it; None while it runs."""
        return self._process.exitcode

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self) -> None:
        self._process.join()


def _run(arguments: list[str], log: str, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with open(log, "ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    from seedlab.train.prepare import main

    sys.exit(main(arguments))
