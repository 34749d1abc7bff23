"""Tokens, FLOPs and seconds of each phase, from stated assumptions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seedlab.config.schema import Config
from seedlab.plan.shapes import ModelShape


@dataclass(frozen=True)
class Device:
    """Peak dense bf16 FLOP/s and memory bytes/s of one GPU, as its maker states them."""

    name: str
    flops: float
    bandwidth: float
    source: str


DEVICES = {
    "a800": Device("A800 80 GB SXM", 312e12, 2.039e12, "NVIDIA A800 data sheet"),
    "a100": Device("A100 80 GB SXM", 312e12, 2.039e12, "NVIDIA A100 data sheet"),
    "h100": Device("H100 80 GB SXM", 989e12, 3.35e12, "NVIDIA H100 data sheet"),
    "h200": Device("H200 141 GB SXM", 989e12, 4.8e12, "NVIDIA H200 data sheet"),
}


@dataclass(frozen=True)
class Assumptions:
    """What a configuration cannot know: means over episodes.  They are guesses to be replaced by measured ones."""

    steps: float
    prompt: float
    response: float
    observation: float
    skill: float
    flops_efficiency: float = 0.4
    bandwidth_efficiency: float = 0.6

    @classmethod
    def of(cls, cfg: Config, **known: float | None) -> "Assumptions":
        """Shares of the limits, where `known` has no number of the user's own (None counts as none)."""
        guesses = {
            "steps": 0.6 * cfg.env.max_steps, "prompt": 0.5 * cfg.rollout.max_prompt_tokens,
            "response": 0.25 * cfg.rollout.max_response_tokens, "observation": 0.05 * cfg.rollout.max_prompt_tokens,
            "skill": min(200.0, 0.5 * cfg.analyzer.max_tokens),
        }  # fmt: skip
        return cls(**(guesses | {name: value for name, value in known.items() if value is not None}))

    @classmethod
    def limits(cls, cfg: Config, **known: float | None) -> "Assumptions":
        """Everything as long as the configuration allows."""
        most = {
            "steps": cfg.env.max_steps, "prompt": cfg.rollout.max_prompt_tokens, "response": cfg.rollout.max_response_tokens,
            "observation": cfg.rollout.max_prompt_tokens / cfg.env.max_steps, "skill": cfg.analyzer.max_tokens,
        }  # fmt: skip
        return cls.of(cfg, **(most | {name: value for name, value in known.items() if value is not None}))


@dataclass(frozen=True)
class Work:
    """One phase: `times` it happens in the run, and tokens, FLOPs and seconds of one time (seconds None: no device)."""

    name: str
    times: int
    tokens: float
    flops: float
    seconds: float | None
    how: str


class Estimator:
    """Works out phases for one configuration, model, device and set of assumptions."""

    def __init__(self, cfg: Config, shape: ModelShape, device: Device | None, assumed: Assumptions):
        self.cfg, self.shape, self.device, self.assumed = cfg, shape, device, assumed
        self.world = cfg.cluster.world_size

    def stage1(self) -> list[Work]:
        cfg, stage1 = self.cfg, self.cfg.stage1
        count = stage1.tasks * stage1.rollouts_per_task
        kept = count * (1 - stage1.held_out)
        steps = stage1.epochs * math.ceil(kept / stage1.batch_size)
        return [
            self.rollouts("stage 1: rollouts", 1, count, episodes_at_once=min(count, 192 if cfg.cluster.generator == "local" else count)),
            Work("stage 1: labels", 1, count * (self._transcript() + self.assumed.skill), 0.0, None,
                 f"{count:,} requests to the external analyzer; its speed is not known here"),
            self.training("stage 1: SFT", 1, stage1.epochs * kept, self._transcript() + self.assumed.skill,
                          f"{stage1.epochs} epochs x {kept:,.0f} pairs, {steps:,} steps of {stage1.batch_size}"),
        ]  # fmt: skip

    def stage2(self) -> list[Work]:
        cfg, a = self.cfg, self.assumed
        count, updates = cfg.stage2.tasks_per_update * cfg.stage2.group_size, cfg.stage2.updates
        rows, length, context_skill = self._rows(count)
        found = [self.rollouts("stage 2: rollouts", updates, count, episodes_at_once=count)]
        if cfg.objective.policy_writes_skills:
            drawn = cfg.objective.average_skills if cfg.objective.skill_from == "own" else 1
            found.append(self.decoding("stage 2: skills", updates, count * drawn, 1, self._transcript(), a.skill))
        elif cfg.objective.uses_teacher and cfg.objective.skill_from == "external" and cfg.external.kind == "openai":
            found.append(Work("stage 2: skills", updates, count * (self._transcript() + a.skill), 0.0, None,
                              f"{count:,} requests to the external analyzer each; its speed is not known here"))
        if cfg.engine == "verl":
            found.append(self.scoring("stage 2: old log-probs", updates, rows, length))
        if cfg.objective.uses_teacher:
            found.append(self.scoring("stage 2: teacher", updates, rows * cfg.objective.average_skills, length + context_skill))
        if cfg.objective.kl_coef != 0 and cfg.objective.reference != "none":
            found.append(self.scoring("stage 2: reference", updates, rows, length))
        found.append(self.training("stage 2: update", updates, rows, length, f"{rows:,.0f} rows"))
        return found

    def evaluation(self) -> list[Work]:
        cfg = self.cfg
        sizes = {p: min(cfg.env.panel_sizes.get(p, 0), cfg.env.panel_limits.get(p, 10**9)) for p in cfg.evaluation.panels}
        count = sum(sizes.values()) * cfg.evaluation.samples_per_task
        return [self.rollouts("evaluation", 1, count, episodes_at_once=min(count, cfg.evaluation.batch))] if count else []

    # ---- kinds of work

    def rollouts(self, name: str, times: int, episodes: int, *, episodes_at_once: int) -> Work:
        a = self.assumed
        again = self.cfg.env.layout == "step"  # a fresh prompt each step; a conversation only reads what is new
        read = a.prompt if again else a.observation + (a.prompt - a.observation) / a.steps
        return self.decoding(name, times, episodes, a.steps, read, a.response, at_once=episodes_at_once, context=a.prompt)

    def decoding(
        self, name: str, times: int, episodes: int, steps: float, read: float, sampled: float, *, at_once: int | None = None,
        context: float | None = None,
    ) -> Work:
        """Prompts are bound by FLOPs, sampling by reading weights and cached keys once per token of a batch."""
        context = read if context is None else context
        total_read, total_sampled = episodes * steps * read, episodes * steps * sampled
        flops = self.shape.forward_flops(total_read, context) + self.shape.forward_flops(total_sampled, 2 * (context + sampled / 2))
        return Work(
            name, times, total_read + total_sampled, flops, self._decoding_seconds(episodes, steps, total_read, sampled, context, at_once),
            f"{episodes:,} x {steps:g} steps x ({read:,.0f} read + {sampled:,.0f} sampled)",
        )

    def _decoding_seconds(self, episodes, steps, total_read, sampled, context, at_once) -> float | None:
        if self.device is None:
            return None
        cluster, a = self.cfg.cluster, self.assumed
        vllm = self.cfg.engine == "verl"
        copies = self.world // cluster.tensor_parallel if vllm else 1
        gpus = copies * cluster.tensor_parallel
        read = self.shape.forward_flops(total_read, context) / (gpus * self.device.flops * a.flops_efficiency)
        most = cluster.max_sequences if vllm else 256
        together = max(1, min(math.ceil((at_once or episodes) / copies), most))
        waves = math.ceil(episodes / copies / together)
        touched = 2 * self.shape.parameters + together * (context + sampled / 2) * self.shape.kv_bytes_per_token
        one = touched / (cluster.tensor_parallel * self.device.bandwidth * a.bandwidth_efficiency)
        return read + waves * steps * sampled * one

    def scoring(self, name: str, times: int, rows: float, length: float) -> Work:
        flops = self.shape.forward_flops(rows * length, length)
        return Work(name, times, rows * length, flops, self._compute_seconds(flops), f"{rows:,.0f} rows x {length:,.0f} tokens, forward")

    def training(self, name: str, times: int, rows: float, length: float, what: str) -> Work:
        passes = 4 if self.cfg.model.gradient_checkpointing else 3
        flops = passes * self.shape.forward_flops(rows * length, length)
        return Work(
            name, times, rows * length, flops, self._compute_seconds(flops),
            f"{what} x {length:,.0f} tokens, {passes} forward passes' worth (backward is two{', recomputation one' if passes == 4 else ''})",
        )

    def _compute_seconds(self, flops: float) -> float | None:
        if self.device is None:
            return None
        return flops / (self.world * self.device.flops * self.assumed.flops_efficiency)

    def _rows(self, episodes: int) -> tuple[float, float, float]:
        """(rows, tokens of a row, tokens that a skill adds) of an update's training rows, by layout."""
        a = self.assumed
        if self.cfg.env.layout == "step":
            return episodes * a.steps, a.prompt + a.response, a.skill
        return float(episodes), a.prompt + a.steps * a.response, a.skill

    def _transcript(self) -> float:
        a = self.assumed
        return min(self.cfg.analyzer.max_prompt_tokens, a.steps * (a.observation + a.response))
