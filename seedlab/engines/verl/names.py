"""Names that our side and verl's configuration share; imports neither torch nor verl."""

from __future__ import annotations

from seedlab.config.schema import Config

TRAINER = "seed_sync"
AGENT = "seedlab"
TRANSFORMERS, VLLM = "transformers", "vllm"
SAMPLING_KEY = "sampling_key"  # the whole key of a random stream; vLLM takes a seed of 63 bits instead
PACKAGE = "seedlab.engines.verl"


def on_cpu(cfg: Config) -> bool:
    return cfg.model.device == "cpu"


def rollout_name(cfg: Config) -> str:
    """The rollout backend: vLLM on GPUs, our transformers replica on a CPU."""
    return TRANSFORMERS if on_cpu(cfg) else VLLM
