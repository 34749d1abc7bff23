"""What every phase works with: the configuration, the environment family, prompt format, policy and generator."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import torch

from seedlab.config.schema import Config
from seedlab.envs import make_family
from seedlab.envs.protocol import Panel
from seedlab.episodes.play import Episode, PlaySettings, play
from seedlab.episodes.prompts import make_prompt_format
from seedlab.episodes.records import Trajectory
from seedlab.policy.load import Policy
from seedlab.policy.local import LocalGenerator
from seedlab.policy.protocol import Generator
from seedlab.train.room import room

Progress = Callable[[str, int, int, str], None]


# What a person reads where the phase names a random stream.
LABELS = {
    "u": "stage 2: rollout", "s1-": "stage 1: rollouts", "s1-dev-": "stage 1: acting on dev", "s1-skill-": "stage 1: acting with skills",
    "library-": "skills of the first snapshot",
}


def silent(phase: str, done: int, total: int, note: str) -> None:
    """A progress callback that shows nothing."""


@dataclass
class Session:
    """One policy playing one family of tasks under one configuration."""

    cfg: Config
    policy: Policy
    progress: Progress = silent
    sampler: str = "local"  # `vllm` where the weights are those of a folder: Stage 1 and evaluation
    family: object = field(init=False)
    prompts: object = field(init=False)
    generator: Generator = field(init=False)
    panels: dict[str, Panel] = field(init=False)

    def __post_init__(self):
        self.family = make_family(self.cfg.env)
        self.prompts = make_prompt_format(self.cfg.env)
        self.panels = self.family.panels()
        self.generator = self._vllm() if self.sampler == "vllm" else make_generator(self.policy, self.cfg)

    @property
    def chat(self):
        return self.policy.chat

    @property
    def tokenizer(self):
        return self.policy.tokenizer

    @property
    def parameters(self) -> int:
        return self.policy.parameters

    @contextmanager
    def compute(self):
        """Context in which this process generates with the policy; raises OutOfMemory where it has no room to."""
        with self.policy.compute(), room(self.cfg, "rollout", "generation"):
            yield

    def _vllm(self) -> Generator:
        from seedlab.engines.vllm_generator import VllmGenerator, settings_of

        return VllmGenerator(settings_of(self.cfg, self.policy.source))

    def weights_changed(self, saved: Path | None = None) -> None:
        """Must follow every change of the weights: cached keys and values belong to the old ones."""
        self.generator.weights_changed(saved)

    def play(
        self, episodes: list[Episode], *, phase: str, update: int, seed: int, temperature: float, at_once: int | None = None,
        track_progress: bool = False,
    ) -> list[Trajectory]:
        """Play episodes with this policy; keys and values of finished ones are kept for the analyzer until `forget`."""
        done = 0

        def count(_):
            nonlocal done
            done += 1
            self.progress(LABELS.get(phase, phase.strip("-")), done, len(episodes), "episodes")

        settings = play_settings(
            self.cfg, phase=phase, update=update, seed=seed, temperature=temperature, track_progress=track_progress
        )
        with self.compute():
            return play(
                episodes, self.family, self.generator, self.policy.chat, self.prompts, self.cfg.env, settings,
                on_done=count, at_once=at_once,
            )

    def forget(self, trajectories: list[Trajectory]) -> None:
        for trajectory in trajectories:
            self.generator.release(trajectory.id)


def play_settings(
    cfg: Config, *, phase: str, update: int, seed: int, temperature: float, track_progress: bool = False
) -> PlaySettings:
    return PlaySettings(
        phase=phase, seed=seed, update=update, temperature=temperature, max_response_tokens=cfg.rollout.max_response_tokens,
        max_prompt_tokens=cfg.rollout.max_prompt_tokens, track_progress=track_progress,
    )


def make_generator(policy: Policy, cfg: Config) -> LocalGenerator:
    """A local generator; the turn cache is worth its memory only where prompts extend one another."""
    return LocalGenerator(
        policy.model, context=cfg.model.context, reuse_cache=cfg.env.layout == "conversation",
        max_cache_tokens=cfg.cluster.max_cache_tokens, pad_id=policy.pad_id,
    )


@dataclass
class Ledger:
    """Seconds, tokens and FLOPs per phase of one update.

    FLOPs are 2 per parameter and token for a forward pass and 4 more for a backward pass; attention is not counted.
    """

    parameters: int
    seconds: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    flops: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str):
        start = time.perf_counter()
        try:
            yield
        finally:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def count(self, name: str, tokens: int, *, backward: bool = False) -> None:
        self.tokens[name] = self.tokens.get(name, 0) + tokens
        self.flops[name] = self.flops.get(name, 0.0) + (6 if backward else 2) * self.parameters * tokens

    def metrics(self) -> dict[str, float]:
        out = {f"cost/{name}_seconds": value for name, value in self.seconds.items()}
        out |= {f"cost/{name}_tokens": float(value) for name, value in self.tokens.items()}
        out |= {f"cost/{name}_flops": value for name, value in self.flops.items()}
        return out
