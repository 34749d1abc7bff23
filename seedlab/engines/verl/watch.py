"""Waiting for other processes without ever waiting for ever."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Iterator

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from seedlab.errors import UserError

PROBE_S = 5.0


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

    def check(self) -> None:
        """Raises EngineFault naming the actors that are gone.  A busy one is no fault."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROBE_S
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
        """A call in this block that meets a dead actor raises EngineFault with the name that the actor has here."""
        try:
            yield
        except RayActorError as error:
            ids = {actor._actor_id.hex(): name for name, actor in self.actors.items()}
            raise gone(ids.get(error.actor_id, "a process of the engine"), error) from error


def gone(name: str, error: RayError) -> EngineFault:
    return EngineFault(f"{name} is gone ({type(error).__name__}); the run stops and can be resumed: {error}")
