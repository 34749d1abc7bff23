"""The weak base policy of the embedded default: noisy scripted demonstrations, a third of them with a skill.

A real instruct model brings along that it follows a text in its context.  Here that ability has to be taught: without
skill-conditioned demonstrations a skill changes no log-probability and every gate stays at one half.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from seedlab.config.schema import Config
from seedlab.envs import make_family
from seedlab.episodes.prompts import COMPACT_WORDS, History, make_prompt_format
from seedlab.policy.load import Policy, wrap
from seedlab.policy.tiny import build_model
from seedlab.policy.tiny_tokenizer import build_tokenizer
from seedlab.train.cached import build_once, content_key
from seedlab.train.session import Progress, silent
from seedlab.train.sft import Document, SftSettings, batches_by_tokens, train_documents

# Fields that came later, with the value at which they change nothing: results made before keep their names.
_NEUTRAL = {"sort_window": 1}


def base_key(cfg: Config) -> str:
    return content_key(
        "base", tiny=tiny_settings(cfg), env=task_settings(cfg), context=cfg.model.context, threads=cfg.threads
    )


def tiny_settings(cfg: Config) -> dict:
    """The section `tiny` as part of a content key."""
    return {k: v for k, v in cfg.tiny.model_dump().items() if k not in _NEUTRAL or v != _NEUTRAL[k]}


def task_settings(cfg: Config) -> dict:
    """Settings of the environment that decide what a cached result saw, with the games' contents in place of the folder
    they lie in.

    Panel limits and the share of train tasks that RL uses do not; nor does which of two equal engines played, nor what
    only prompts of another kind show.
    """
    without = {"panel_limits", "train_fraction", "backend", "official_timeout_s", "incomplete"}
    if cfg.env.prompt != "instruct":
        without |= {"task_line", "history_lines", "fallback_characters"}
    if not cfg.env.show_admissible:
        without |= {"list_help"}
    settings = cfg.env.model_dump(exclude=without)
    return settings if cfg.env.data is None else settings | {"data": make_family(cfg.env).data_hash()}


def demonstration_documents(
    cfg: Config, policy: Policy, progress: Progress = silent, *, count: int, skill_fraction: float,
    noise: tuple[float, float], seed: int,
) -> list[Document]:
    """Demonstrations on the family's demonstration tasks as documents: weight 1 on actions, `observation_weight` elsewhere.

    Noise rises linearly over the documents, so that near-expert ones come first.  A skill, where there is one, was
    written by the scripted analyzer from another, noisy attempt at the same task.
    """
    family = make_family(cfg.env)
    prompts = make_prompt_format(cfg.env)
    tasks = family.demonstration_tasks()
    rng = np.random.default_rng([seed, 1])
    low, high = noise
    marker = policy.tokenizer.convert_tokens_to_ids("<|assistant|>")
    end = policy.tokenizer.eos_token_id
    documents = []
    for number in range(count):
        task_id = tasks[int(rng.integers(len(tasks)))]
        level = low + (high - low) * number / max(1, count - 1)
        skill = ""
        if rng.random() < skill_fraction:
            attempt = family.demonstrate(family.make(task_id), rng, float(rng.uniform(0.0, 0.9)))
            skill = family.hindsight_skill(attempt.goal, attempt.observations, attempt.actions, attempt.success)
        # A followed skill is a near-expert document: only then does the policy learn that skills are worth following.
        shown = family.demonstrate(family.make(task_id), rng, min(level, 0.15) if skill else level, skill or None)
        ids = policy.chat.render(prompts.messages(demonstration_history(shown), skill=skill), generation_prompt=False)
        weights = _weights(ids, marker, end, cfg.tiny.observation_weight, shown.by_noise)
        # What lies past the context could not be attended to when acting either.
        documents.append(Document(f"demo/{number}", ids[: cfg.model.context], weights[: cfg.model.context]))
        if number % 200 == 0:
            progress("demonstrations", number, count, "")
    return documents


def demonstration_history(shown) -> History:
    """A whole demonstration as a history, every action answered."""
    return History(
        goal=shown.goal, observations=list(shown.observations[: len(shown.actions)]), responses=list(shown.actions),
        actions=list(shown.actions), holding=list(shown.holding[: len(shown.actions)]), admissible=[], name="demonstration",
    )


def _weights(ids: list[int], marker: int, end: int, elsewhere: float, by_noise: list[bool]) -> list[float]:
    """1 on the expert's own actions.  A random action is context: imitating it would only teach to act at random."""
    weights, inside, turn = [], False, -1
    for token in ids:
        weights.append(1.0 if inside and not by_noise[turn] else elsewhere)
        if token == marker:
            inside, turn = True, turn + 1
        elif token == end:
            inside = False
    return weights


def initial_policy_path(cfg: Config, progress: Progress = silent) -> str:
    """Where pi_base is: the tiny recipe's cached folder, or the folder or hub id of the configuration."""
    return str(build_tiny_base(cfg, progress)) if cfg.model.path == "tiny" else cfg.model.path


def build_tiny_base(cfg: Config, progress: Progress = silent) -> Path:
    """Folder of the pretrained tiny policy (Hugging Face layout), from the cache or made now."""

    def build(folder: Path) -> None:
        family = make_family(cfg.env)
        tokenizer = build_tokenizer([*family.vocabulary(), *COMPACT_WORDS], cfg.model.context)
        model = build_model(
            cfg.tiny, len(tokenizer), cfg.model.context, eos=tokenizer.eos_token_id, pad=tokenizer.pad_token_id
        )
        policy = wrap(model, tokenizer, cfg.model)
        documents = demonstration_documents(
            cfg, policy, progress, count=cfg.tiny.documents, skill_fraction=cfg.tiny.skill_fraction,
            noise=cfg.tiny.expert_noise, seed=cfg.tiny.seed,
        )
        batches = batches_by_tokens([len(d.ids) for d in documents], cfg.tiny.batch_tokens, window=cfg.tiny.sort_window, seed=cfg.tiny.seed)
        settings = SftSettings(cfg.tiny.learning_rate, 0.1, 0.05, 0.01, (0.9, 0.98), 1.0, 8192)
        model.train()
        losses = train_documents(
            model, documents, batches, settings, pad_id=policy.pad_id,
            on_step=lambda step, total, loss: progress("base policy", step, total, f"loss {loss:.3f}"),
            called="the base policy's pretraining", rate_key="tiny.learning_rate",
        )
        model.eval()
        policy.save(folder)
        record = {
            "documents": len(documents), "tokens": sum(len(d.ids) for d in documents), "steps": len(losses),
            "first_loss": losses[0], "last_loss": float(np.mean(losses[-20:])), "parameters": policy.parameters,
        }
        (folder / "pretraining.json").write_text(json.dumps(record, indent=1))

    return build_once(base_key(cfg), build)
