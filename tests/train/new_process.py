"""Training in a process of its own, which may be ended at a chosen moment.

The processes come from a fork server that has the heavy modules loaded, so that a new one takes no seconds to start.
"""

import multiprocessing
import os
import signal
import sys
import time

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["seedlab.train.run", "seedlab.cli.train_cli"])


def _train(overrides, folder, cache, resume, moment):
    os.environ["SEEDLAB_CACHE"] = str(cache)
    from seedlab.config.presets import load_config
    from seedlab.train.run import train

    passed = 0

    def kill_at_the_moment(phase, done, total, note=""):
        nonlocal passed
        if moment is not None and phase == moment[0] and done == moment[1]:
            passed += 1
            if passed == moment[2]:
                os.kill(os.getpid(), signal.SIGKILL)

    train(load_config("micro", list(overrides)), folder, resume=resume, progress=kill_at_the_moment)


def _command(argv, cache, log):
    os.environ["SEEDLAB_CACHE"] = str(cache)
    from seedlab.cli.main import main

    with open(log, "w") as out:
        sys.stdout = sys.stderr = out
        code = main(argv)
    sys.exit(code)


def train_process(overrides, folder, cache, *, resume=False, moment=None) -> int:
    """Exit code of a training; `moment` = (phase, done, how often) is where SIGKILL hits it."""
    return _finish(_start(_train, tuple(overrides), str(folder), str(cache), resume, moment))


def command_process(argv, cache, log, *, interrupt_when=None) -> int:
    """Exit code of a `seedlab` command; it gets SIGINT as soon as `interrupt_when()` is true."""
    process = _start(_command, list(map(str, argv)), str(cache), str(log))
    if interrupt_when is not None:
        deadline = time.monotonic() + 60
        while not interrupt_when():
            assert process.is_alive(), f"ended too early, with exit code {process.exitcode}"
            assert time.monotonic() < deadline, "the moment to interrupt never came"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGINT)
    return _finish(process)


def _start(target, *args):
    process = FORKSERVER.Process(target=target, args=args)
    process.start()
    return process


def _finish(process) -> int:
    process.join(120)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError("the process did not end within two minutes")
    code = process.exitcode
    process.close()
    return code
