"""What the fields of a configuration must be to one another, and how large a number may be: nonsense that a bound of
one field cannot see is refused when the configuration is made, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seedlab.config.credit_rules import credit_faults
from seedlab.config.names import flatten

if TYPE_CHECKING:
    from seedlab.config.schema import Config

LARGEST_COUNT = 2**31 - 1  # what the tables of a run count in
LARGEST_NUMBER = 1e12  # far above any weight, price or time that means something, far below where float32 overflows
COOLEST = 1e-3  # logits / temperature stay finite in float32
TRAINING_PANELS = ("stage1", "train", "demonstrations")


def contradictions(cfg: Config) -> list[str]:
    """One sentence per fault, each with the key, why it is one and what to set instead; empty for a sound configuration."""
    rules = (_sizes, _temperatures, _ranges, _panels, _signal, _skills, _shapes, credit_faults)
    return [text for rule in rules for text in rule(cfg)]


def _sizes(cfg: Config) -> Iterator[str]:
    for key, value in flatten(cfg.model_dump(mode="json")).items():
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, bool) or not isinstance(number, (int, float)):
                continue
            last = key.rpartition(".")[2]
            if last == "learning_rate":
                continue  # too large a one shows as a loss that is no number, and the run then says so
            if isinstance(number, int):
                most = 2**63 - 1 if last in ("seed", "panel_seed") else LARGEST_COUNT
            else:
                most = LARGEST_NUMBER
            if number > most:
                yield f"{key}={number} is more than {most:,}, the largest number that a run can work with"


def _temperatures(cfg: Config) -> Iterator[str]:
    for key, value, zero in (
        ("rollout.temperature", cfg.rollout.temperature, False), ("stage1.rollout_temperature", cfg.stage1.rollout_temperature, False),
        ("evaluation.temperature", cfg.evaluation.temperature, True), ("analyzer.temperature", cfg.analyzer.temperature, True),
    ):  # fmt: skip
        if 0 < value < COOLEST:
            yield f"{key}={value:g} is below {COOLEST:g}, where logits divided by it overflow" + ("; 0 is greedy" if zero else "")


def _ranges(cfg: Config) -> Iterator[str]:
    low, high = cfg.tiny.expert_noise
    if not 0 <= low <= high <= 1:
        yield f"tiny.expert_noise={low:g},{high:g} must be two shares of random actions with 0 <= first <= last <= 1: noise rises over the documents"
    if cfg.analyzer.min_words > cfg.analyzer.max_words:
        yield f"analyzer.min_words={cfg.analyzer.min_words} is more than analyzer.max_words={cfg.analyzer.max_words}, so that every skill would be unusable"


def _panels(cfg: Config) -> Iterator[str]:
    sizes, limits = cfg.env.panel_sizes, cfg.env.panel_limits
    for key, values in (("panel_sizes", sizes), ("panel_limits", limits)):
        yield from (f"env.{key}.{name}={count} is negative; it counts tasks" for name, count in values.items() if count < 0)
    for name in cfg.evaluation.panels:
        if name in TRAINING_PANELS:
            yield f"evaluation.panels names {name!r}, whose tasks are trained on, so that its success says nothing on new tasks; take dev, seen or unseen"


def _signal(cfg: Config) -> Iterator[str]:
    objective, stage2 = cfg.objective, cfg.stage2
    if not stage2.updates:
        return
    by_steps = objective.group_statistics == "steps" and objective.invalid_penalty > 0  # steps of one episode still differ
    if stage2.group_size == 1 and objective.rl_coef and objective.group_of_one == "zero" and not by_steps:
        yield (
            "stage2.group_size=1 leaves a group-relative advantage nothing to compare with, so that it is 0 throughout and the policy loss "
            "learns nothing; take at least 2, or set objective.rl_coef=0 (distillation alone) or objective.group_of_one=identity"
        )
    if not (objective.rl_coef or objective.opd_coef or objective.entropy_coef):
        yield "objective.rl_coef, objective.opd_coef and objective.entropy_coef are all 0, so that nothing is learned; set one of them, or stage2.updates=0 to evaluate alone"


def _skills(cfg: Config) -> Iterator[str]:
    if cfg.rollout.skill == "library" and cfg.objective.uses_teacher:
        yield (
            "rollout.skill=library puts a skill into the student's own prompt, at the place where a teacher's stands, so that a teacher would see another "
            "skill instead of one more; set objective.opd_coef=0 and objective.skill_advantage=none (skill-grpo), or rollout.skill=none"
        )
    if cfg.uses_library and cfg.skills.library == "snapshot" and cfg.skills.retrieve != "task_type":
        yield f"skills.library=snapshot writes a skill per task type and no general one, which skills.retrieve={cfg.skills.retrieve} asks for; set skills.retrieve=task_type"


def _shapes(cfg: Config) -> Iterator[str]:
    tiny = cfg.tiny
    if tiny.hidden % (2 * tiny.heads):
        yield f"tiny.hidden={tiny.hidden} is not an even multiple of tiny.heads={tiny.heads}: each head needs an even width"
    if tiny.heads % tiny.kv_heads:
        yield f"tiny.heads={tiny.heads} is not a multiple of tiny.kv_heads={tiny.kv_heads}"
