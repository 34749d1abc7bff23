"""Waiting for other processes without ever waiting for ever."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Iterator

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError

from seedlab.envs.protocol import InfrastructureError
from seedlab.errors import UserError

PROBE_S = 5.0
START_S = 1800.0  # a process that imports for so long is stuck


class EngineFault(UserError):
    """A process of the engine died or fell silent; the run stops with this cause and can be resumed."""

    exit_code = 1


class Deadline:
    """Raises EngineFault once `limit_s` seconds have passed; `grace` allows for what follows the last one in time."""

    GRACE = 1.25

    def __init__(self, limit_s: float, what: str):
        self.limit_s, self.what, self.started = limit_s, what, time.monotonic()

    def check(self) -> None:
        waited = time.monotonic() - self.started
        if waited > self.limit_s * self.GRACE + PROBE_S:
            raise EngineFault(f"no end of {self.what} after {waited:.0f} s (limit {self.limit_s:g} s); the run stops and can be resumed")


class Liveness:
    """Notices a dead actor among `actors` within a few seconds, without a dashboard: a call to it fails at once."""

    def __init__(self, actors: dict[str, object]):
        self.actors = actors
        self._next = 0.0

    def ready(self, limit_s: float = START_S) -> None:
        """Waits for every actor's process to come up; EngineFault naming those that did not within `limit_s`."""
        calls = {actor.__ray_ready__.remote(): name for name, actor in self.actors.items()}
        done, missing = ray.wait(list(calls), num_returns=len(calls), timeout=limit_s)
        if missing:
            names = ", ".join(calls[call] for call in missing)
            raise EngineFault(f"not up after {limit_s:g} s: {names}; the run stops and can be resumed")
        with self.named():
            ray.get(done)

    def check(self) -> None:
        """Raises EngineFault naming an actor that is gone.  A busy one is no fault."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROBE_S
        self._probe()

    def _probe(self) -> None:
        calls = {name: actor.__ray_ready__.remote() for name, actor in self.actors.items()}
        ready, _ = ray.wait(list(calls.values()), num_returns=len(calls), timeout=1.0)
        for name, call in calls.items():
            if call not in ready:
                continue
            try:
                ray.get(call, timeout=1.0)
            except GetTimeoutError:
                continue
            except RayError as error:
                raise gone(name, error) from error

    @contextmanager
    def named(self) -> Iterator[None]:
        """A call in this block that fails since an actor died raises EngineFault with the name that the actor has here.

        The survivors' broken connections may be heard of before the death that broke them, hence the look around.
        """
        try:
            yield
        except RayActorError as error:
            ids = {actor._actor_id.hex(): name for name, actor in self.actors.items()}
            raise gone(ids.get(error.actor_id, "a process of the engine"), error) from error
        except (RayTaskError, InfrastructureError):
            until = time.monotonic() + PROBE_S
            while time.monotonic() < until:
                self._probe()
                time.sleep(0.5)
            raise


def gone(name: str, error: RayError) -> EngineFault:
    return EngineFault(f"{name} is gone ({type(error).__name__}); the run stops and can be resumed: {error}")
