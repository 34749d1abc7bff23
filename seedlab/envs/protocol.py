"""What every environment of seedlab offers: one protocol, explicit seeds and ids."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Protocol


class InfrastructureError(RuntimeError):
    """The environment itself failed (worker killed, retriever down): not the policy's fault, never a zero reward."""


@dataclass(frozen=True)
class StepInfo:
    """`admissible` says whether the command was one that the environment lists; an inadmissible one changes nothing."""

    won: bool
    score: float
    admissible: bool
    truncated: bool


@dataclass(frozen=True)
class StepResult:
    observation: str
    reward: float
    done: bool
    info: StepInfo


class Environment(Protocol):
    """One episode of one task.  `step` after `done` raises RuntimeError."""

    task_id: str
    task_type: str
    goal: str  # the task sentence, e.g. "put a hot mug in cabinet."

    def reset(self) -> str: ...
    def step(self, action: str) -> StepResult: ...
    def admissible(self) -> list[str]: ...
    def holding(self) -> str | None: ...
    def clone(self) -> "Environment": ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Panel:
    """An explicit list of task ids with a hash; evaluated or trained on as it stands."""

    name: str
    task_ids: tuple[str, ...]
    hash: str = field(default="")

    def __post_init__(self):
        if len(set(self.task_ids)) != len(self.task_ids):
            raise ValueError(f"panel {self.name!r} lists a task twice")
        object.__setattr__(self, "hash", hashlib.sha256("\n".join(self.task_ids).encode()).hexdigest()[:16])


class Family(Protocol):
    """A kind of environment, made from an EnvConfig by ``seedlab.envs.make_family``."""

    name: str
    task_types: tuple[str, ...]

    def make(self, task_id: str) -> Environment: ...
    def panels(self) -> dict[str, Panel]: ...
