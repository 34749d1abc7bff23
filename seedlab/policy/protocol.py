"""The generator protocol: how episodes and analyzers ask for text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Sequence


@dataclass(frozen=True)
class Sampling:
    """``key`` seeds the draw: (seed, phase, update, task, n, step) hashed by the caller, never arrival order."""

    temperature: float
    max_tokens: int
    key: int = 0
    stop_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class Generation:
    """``logprobs`` are those of the distribution sampled from (logits / T); at T = 0 those of T = 1."""

    ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    finish: str  # stop | length | abort
    weights_version: int


class Generator(Protocol):
    """`expect(n)` announces n episodes before they start and `leave()` ends one, so that an engine that steps whole
    batches knows whom to wait for; `release` drops what is cached for a trajectory.  `weights_changed` must follow every
    change of the weights (`saved` is the folder that holds the new ones, where there is one); `close` frees memory."""

    weights_version: int

    def expect(self, episodes: int) -> None: ...
    def leave(self) -> None: ...
    def release(self, trajectory_id: str) -> None: ...
    def weights_changed(self, saved: Path | None) -> None: ...
    def close(self) -> None: ...
    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, trajectory_id: str, images: tuple = ()
    ) -> Generation: ...
