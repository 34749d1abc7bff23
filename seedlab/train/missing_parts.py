"""What a run needs beside its configuration and would miss late: packages of its later links, an endpoint's key."""

from __future__ import annotations

from seedlab.config.schema import Config
from seedlab.store.layout import LINKS
from seedlab.train.cached import is_built
from seedlab.train.stage1_keys import labels_key, sft_key


def refuse_missing_parts(cfg: Config, last: str) -> None:
    """UserError where a link up to `last` (of `store.layout.LINKS`) needs what is not here; what the cache has, needs none."""
    reached = LINKS[: LINKS.index(last) + 1]
    if cfg.cluster.generator == "vllm" and last != "base":
        from seedlab.engines.vllm_generator import require_vllm, settings_of

        settings_of(cfg, cfg.model.path)
        require_vllm()
    labelled = cfg.initial == "stage1" and "labels" in reached and not is_built(labels_key(cfg))
    asked = "stage2" in reached and bool(cfg.stage2.updates) and cfg.objective.uses_teacher and cfg.objective.skill_from == "external"
    if cfg.external.kind == "openai" and (labelled or asked):
        from seedlab.skills.openai import require_key

        require_key(cfg.external)
    if cfg.initial == "stage1" and "sft" in reached and not is_built(sft_key(cfg)) and cfg.cluster.sft_zero_stage:
        from seedlab.engines.deepspeed_launch import require_deepspeed

        require_deepspeed()
    if cfg.model.lora_rank and "stage2" in reached:
        from seedlab.policy.lora import require_lora

        require_lora()
