"""What a configuration must be for a run to start, beyond what it must be to be read, compared or evaluated with."""

from __future__ import annotations

from collections.abc import Iterator

from seedlab.config.schema import Config
from seedlab.errors import ConfigError


def refuse_to_start(cfg: Config) -> None:
    """ConfigError with every fault that a run of `cfg` would meet only after its folder, or its base policy, is made."""
    faults = [text for rule in (_start, _enough_tasks, _room_for_prompts) for text in rule(cfg)]
    if faults:
        raise ConfigError("; ".join(faults))


def _start(cfg: Config) -> Iterator[str]:
    if cfg.initial == "stage1" and not cfg.stage1.enabled:
        yield "initial=stage1 needs stage1.enabled=true; set it, or initial=base to start from the base policy"


def panel_size(cfg: Config, name: str) -> int:
    """Tasks of a panel after `panel_limits` and `train_fraction`, as far as the configuration can tell."""
    size = cfg.env.panel_sizes.get(name, 0)
    if name == "train" and size and cfg.env.train_fraction < 1:
        size = max(1, round(cfg.env.train_fraction * size))
    return min(size, cfg.env.panel_limits.get(name, size))


def _enough_tasks(cfg: Config) -> Iterator[str]:
    train, asked = panel_size(cfg, "train"), cfg.stage2.tasks_per_update
    advice = "enlarge env.panel_sizes.train (env.panel_limits and env.train_fraction cut it)"
    if cfg.stage2.updates and train < asked:
        yield f"the train panel has {train} tasks, fewer than stage2.tasks_per_update={asked}; {advice}"
    elif cfg.model.path == "tiny" and not cfg.env.panel_sizes.get("train") and not cfg.env.panel_sizes.get("demonstrations"):
        yield f"env.panel_sizes.train=0 leaves the tiny policy no task for its demonstrations; {advice}"
    if cfg.initial == "stage1" and cfg.stage1.enabled:
        size = panel_size(cfg, "stage1")
        if size < cfg.stage1.tasks:
            yield f"panel stage1 has {size} tasks, stage1.tasks asks for {cfg.stage1.tasks}; enlarge env.panel_sizes.stage1 or lower stage1.tasks"


def _room_for_prompts(cfg: Config) -> Iterator[str]:
    for prompt, answer in (("rollout.max_prompt_tokens", "rollout.max_response_tokens"), ("analyzer.max_prompt_tokens", "analyzer.max_tokens")):
        a, b = (_get(cfg, key) for key in (prompt, answer))
        if a + b > cfg.model.context:
            yield f"model.context={cfg.model.context} has no room for {prompt}={a} and {answer}={b}: a prompt at its limit could not be answered; raise the context or lower the limits"


def _get(cfg: Config, key: str) -> int:
    section, name = key.split(".")
    return getattr(getattr(cfg, section), name)
