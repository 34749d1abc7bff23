"""The plan of a run: everything that can be said about it before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from seedlab.config.schema import Config
from seedlab.engines.verl.config import refuse_unsupported
from seedlab.envs import FAMILIES, PLANNED
from seedlab.errors import ConfigError
from seedlab.plan.memory import GB, Part, PhaseMemory, host_bytes, phases
from seedlab.plan.shapes import MODELS, ModelShape, shape_of
from seedlab.plan.work import Assumptions, Device, Estimator, Work

# Bytes of one sampled token in updates/: measured on runs of the tiny preset (docs/plan.md), compressed.
TOKEN_ROW_BYTES = 35


@dataclass(frozen=True)
class Plan:
    """`capacity` is one GPU's memory in bytes, None on a CPU; `refusals` say why a run would not start."""

    cfg: Config
    shape: ModelShape
    device: Device | None
    assumed: Assumptions
    memory: tuple[PhaseMemory, ...]
    host: tuple[Part, ...]
    work: tuple[Work, ...]
    disk: tuple[Part, ...]
    capacity: float | None
    refusals: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.capacity is None or all(phase.total <= self.capacity for phase in self.memory)

    @property
    def seconds(self) -> float | None:
        known = [w.times * w.seconds for w in self.work if w.seconds is not None]
        return sum(known) if known else None


def make_plan(cfg: Config, device: Device | None = None, assumed: Assumptions | None = None) -> Plan:
    """The plan of `cfg`; raises UserError where the model's shape is not known.  Works for presets whose environment is
    not built yet: a plan needs its limits only."""
    shape, assumed = shape_of(cfg), assumed or Assumptions.of(cfg)
    estimate = Estimator(cfg, shape, device, assumed)
    first = estimate.stage1() if cfg.initial == "stage1" and cfg.stage1.enabled else []
    work = tuple([*first, *(estimate.stage2() if cfg.stage2.updates else []), *estimate.evaluation()])
    return Plan(
        cfg, shape, device, assumed, tuple(phases(cfg, shape)), tuple(host_bytes(cfg, shape)), work,
        tuple(disk_parts(cfg, shape, work)), cfg.cluster.gpu_memory_gb * GB if cfg.model.device == "cuda" else None, tuple(refusals(cfg)),
        tuple(notes(cfg)),
    )


def disk_parts(cfg: Config, shape: ModelShape, work: tuple[Work, ...]) -> list[Part]:
    """What a run leaves on disk; while a checkpoint is written, the one before it is still there."""
    p, kept = shape.parameters, cfg.stage2.keep_checkpoints + 1
    parts = []
    if cfg.initial == "stage1" and cfg.stage1.enabled:
        parts.append(Part("stage 1: theta_sft", 4 * p, f"4 bytes x {p:,}"))
        if cfg.cluster.sft_zero_stage:
            parts.append(Part("stage 1: DeepSpeed's checkpoints, until it is done", 2 * 16 * p, f"2 x up to 16 bytes x {p:,}"))
    if not cfg.stage2.updates:
        return parts
    parts.append(Part("reference", 4 * p, f"4 bytes x {p:,}"))
    # verl keeps FSDP's shards beside the Hugging Face folder
    width, what = (16, "float32 weights, FSDP's shards, Adam") if cfg.engine == "verl" else (12, "float32 weights, Adam")
    parts.append(Part("checkpoints", width * p * kept, f"({cfg.stage2.keep_checkpoints} kept + 1 being written) x {width} bytes x {p:,} ({what})"))
    if cfg.store.tokens != "none":
        every = 1 if cfg.store.tokens == "all" else int(cfg.store.tokens)
        a, episodes = Assumptions.of(cfg), cfg.stage2.tasks_per_update * cfg.stage2.group_size
        rows = cfg.stage2.updates / every * episodes * a.steps * a.response
        parts.append(Part("token records", rows * TOKEN_ROW_BYTES, f"{rows:,.0f} sampled tokens x about {TOKEN_ROW_BYTES} bytes"))
    return parts


def refusals(cfg: Config) -> list[str]:
    """Why `seedlab train` would refuse this configuration today."""
    found = []
    if cfg.env.name in PLANNED:
        found.append(f"the environment {cfg.env.name} is known but not built yet: this plan can be read, a run will refuse to start")
    elif cfg.env.name not in FAMILIES:
        found.append(f"there is no environment {cfg.env.name!r}: a run will refuse to start")
    if cfg.engine == "verl":
        try:
            refuse_unsupported(cfg)
        except ConfigError as error:
            found.append(f"{error}; a run will refuse to start")
    return found


def notes(cfg: Config) -> list[str]:
    """What is worth deciding before the run starts."""
    if cfg.model.path in MODELS and cfg.model.revision is None:
        return [f"model.revision is not set: the newest weights and tokenizer of {cfg.model.path} will be taken; pin a commit with model.revision=COMMIT"]
    return []
