"""Faults for runs under verl, from outside the package: verl imports this in each of its processes, beside our plugin.

As a program it is `seedlab` with that import added.  A fault is a file in the folder SEEDLAB_TEST_FAULTS: `hang` holds the
id of a trajectory whose environment never answers; the others are taken by the first process that meets them.
"""

import os
import signal
import sys
import time
from pathlib import Path

FOLDER = "SEEDLAB_TEST_FAULTS"
NO_ROOM = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.25 GiB of which 1.12 GiB is free."
CALLS = 3  # of episodes or generations, at the last of which a process is killed


def arm(folder: Path) -> None:
    import torch

    torch.Tensor.backward = failing(torch.Tensor.backward, folder, torch.OutOfMemoryError(NO_ROOM))
    if (folder / "server").exists():
        from seedlab.policy.local import LocalGenerator

        LocalGenerator.generate = dying(LocalGenerator.generate, folder / "server")
    from seedlab.episodes import play

    play._run = losing(play._run, (folder / "hang").read_text(), lambda: time.sleep(3600))
    play._run = dying(play._run, folder / "agent")


def taken(fault: Path) -> bool:
    """Whether this call is the one that takes `fault`; of all processes one is told so."""
    try:
        fault.rename(fault.with_suffix(".taken"))
    except FileNotFoundError:
        return False
    return True


def failing(backward, folder: Path, error: Exception):
    """A backward pass without memory on rank 1, and one in which rank 0 is killed: the other rank is left in a collective."""

    def run(*args, **kwargs):
        rank = os.environ.get("RANK")
        if rank == "1" and taken(folder / "memory"):
            raise error
        if rank == "0" and taken(folder / "trainer"):
            os.kill(os.getpid(), signal.SIGKILL)
        return backward(*args, **kwargs)

    return run


def dying(work, fault: Path):
    """`work` in a process that is killed with several calls of it begun."""
    begun = 0

    async def run(*args, **kwargs):
        nonlocal begun
        begun += 1
        if begun >= CALLS and taken(fault):
            os.kill(os.getpid(), signal.SIGKILL)
        return await work(*args, **kwargs)

    return run


class Lost:
    """`env` whose every step calls `lose` instead."""

    def __init__(self, env, lose):
        self.env, self.lose = env, lose

    def __getattr__(self, name):
        return getattr(self.env, name)

    def step(self, action):
        self.lose()


def losing(play_steps, trajectory_id: str, lose):
    """Plays episodes as `play_steps` does, with a Lost environment in one of them."""

    async def run(trajectory, env, *rest):
        await play_steps(trajectory, Lost(env, lose) if trajectory.id == trajectory_id else env, *rest)

    return run


if __name__ == "__main__":
    from seedlab.cli.main import main
    from seedlab.engines.verl import loop

    ours = loop.environment

    def environment(cfg):
        variables = ours(cfg)
        return variables | {"VERL_USE_EXTERNAL_MODULES": f"{variables['VERL_USE_EXTERNAL_MODULES']},verl_faults"}

    loop.environment = environment
    sys.exit(main())
elif FOLDER in os.environ:
    arm(Path(os.environ[FOLDER]))
