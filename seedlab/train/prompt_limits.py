"""Whether prompts fit their limits, found out before a base policy is trained or an episode is played.

Which length a prompt has depends on the environment and on the tokenizer, so that the configuration alone cannot tell.
Only the tokenizer is needed: a tiny policy's is built here, a folder's is read; that of a hub id is not fetched for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seedlab.config.schema import Config
from seedlab.envs import FamilyBase, make_family
from seedlab.episodes.prompts import COMPACT_WORDS, History, make_prompt_format
from seedlab.episodes.records import Trajectory
from seedlab.errors import ConfigError
from seedlab.policy.chat import ChatRenderer
from seedlab.policy.load import load_chat
from seedlab.skills.prompts import analyzer_messages
from seedlab.train.library import library_of, skill_of_task

TASKS_PER_PANEL = 16  # evenly spread; their openings differ by a few things that a room holds


def refuse_small_limits(cfg: Config) -> None:
    """ConfigError where a limit holds no prompt of a task that the run would play: its key, its value, and the least
    that the tasks looked at need."""
    chat = _chat(cfg)
    if chat is None:
        return
    family, prompts = make_family(cfg.env.model_copy(update={"backend": "household"})), make_prompt_format(cfg.env)
    first, analysis, taught = 0, 0, 0
    for opening, skill, lesson in _openings(cfg, family):
        first = max(first, len(chat.render(prompts.messages(opening, skill=skill))))
        taught = max(taught, len(chat.render(prompts.messages(opening, skill=lesson))) if lesson else 0)
        # without a turn and with nothing said at the end: what every trajectory's prompt holds
        nothing = Trajectory(opening.name, opening.name, "", opening.goal, update=0, n=0, seed=0)
        analysis = max(analysis, len(chat.render(analyzer_messages(nothing, prompts, cfg.analyzer.contract))))
    faults = [_fault("rollout.max_prompt_tokens", cfg.rollout.max_prompt_tokens, first, "the first prompt of a task")]
    if cfg.stage1.enabled or cfg.objective.uses_teacher:
        faults.append(_fault("analyzer.max_prompt_tokens", cfg.analyzer.max_prompt_tokens, analysis, "an analyzer's prompt without any turn"))
    # one token more: without room for any, every teacher would be left out, and the method would be another one
    faults.append(_fault("model.context", cfg.model.context, taught + 1 if taught else 0, "the first prompt of a task with the teacher's static skill"))
    if any(faults):
        raise ConfigError("; ".join(filter(None, faults)))


def _fault(key: str, value: int, needed: int, what: str) -> str:
    return f"{key}={value} is too small: {what} takes {needed} tokens here; set it to {needed} at least" if needed > value else ""


def _chat(cfg: Config) -> ChatRenderer | None:
    """Chat rendering of the policy that the configuration starts from, where this machine has its tokenizer."""
    if cfg.model.path == "tiny":
        from seedlab.policy.tiny_tokenizer import build_tokenizer

        tokenizer = build_tokenizer([*make_family(cfg.env).vocabulary(), *COMPACT_WORDS], cfg.model.context)
        return ChatRenderer(tokenizer, enable_thinking=cfg.model.enable_thinking)
    if Path(cfg.model.path).is_dir() and not cfg.model.gguf_file:
        return load_chat(cfg.model.path, cfg.model)
    return None


def _openings(cfg: Config, family: FamilyBase) -> Iterator[tuple[History, str, str]]:
    """The first observation of some tasks of every panel that the run would play, the static skill in its prompt, and that
    in its teacher's."""
    panels, library = family.panels(), library_of(cfg, family)
    wanted = {"stage1": "none", "dev": "none"} if cfg.stage1.enabled else {}
    wanted |= {"train": cfg.rollout.skill} if cfg.stage2.updates else {}
    wanted |= {name: cfg.evaluation.skill for name in cfg.evaluation.panels}
    for name, skill in wanted.items():
        skill_of = skill_of_task(library if skill == "library" else None, family)
        taught = name == "train" and cfg.objective.uses_teacher and cfg.objective.skill_from == "static"
        lesson_of = skill_of_task(library if taught else None, family)
        ids = panels[name].task_ids if name in panels else ()
        for task in ids[:: max(1, len(ids) // TASKS_PER_PANEL)][:TASKS_PER_PANEL]:
            env = family.make(task)
            try:
                observation = env.reset()
                history = History(env.goal, [observation], holding=[env.holding() or ""], admissible=list(env.admissible()), name=task)
                yield history, skill_of(task), lesson_of(task)
            finally:
                env.close()
