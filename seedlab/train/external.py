"""The external analyzer of both stages: the environment's scripted one, or an endpoint with its answers on disk."""

from __future__ import annotations

from seedlab.config.schema import AnalyzerConfig, Config
from seedlab.skills import Analyzer, ScriptedAnalyzer
from seedlab.train.cached import cache_root


def external_analyzer(cfg: Config, family, *, critical_steps: int = 0) -> tuple[Analyzer, str, AnalyzerConfig]:
    """(analyzer, contract of its answers, limits of a skill) as `external.kind` says."""
    settings = cfg.analyzer.model_copy(update={"max_tokens": cfg.external.max_tokens})
    if cfg.external.kind == "scripted":
        return ScriptedAnalyzer(family, cfg.analyzer.contract, critical_steps), cfg.analyzer.contract, settings
    from seedlab.skills.openai import ExternalAnalyzer

    # An endpoint is an instruct model whatever the policy is: it reads the serialized trajectory and answers in JSON.
    return ExternalAnalyzer(cfg.external, cache_root() / "answers"), "json", settings
