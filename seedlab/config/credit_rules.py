"""Which switches of advantages and of the teacher's weight contradict one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seedlab.config.schema import Config


def credit_faults(cfg: Config) -> Iterator[str]:
    """One sentence per fault, with the keys and what to set instead."""
    objective = cfg.objective
    if objective.skill_advantage != "none" and not objective.rl_coef:
        yield (
            f"objective.skill_advantage={objective.skill_advantage} changes the advantages of the policy loss, which objective.rl_coef=0 leaves out; "
            "set rl_coef above 0, or skill_advantage=none"
        )
    if objective.baseline != "none" and (objective.opd_form != "gate" or not objective.opd_coef):
        yield (
            f"objective.baseline={objective.baseline} is subtracted from the gate, and opd_form={objective.opd_form} with opd_coef={objective.opd_coef:g} has none; "
            "set baseline=none, or opd_form=gate and opd_coef above 0"
        )
    if objective.baseline == "context":
        yield from _context_faults(cfg)
    if objective.support != "sampled":
        yield from _support_faults(cfg)
    if objective.average_skills > 1:
        yield from _average_faults(cfg)
    if objective.skill_from == "mate" and objective.uses_teacher and cfg.stage2.group_size == 1 and cfg.stage2.updates:
        yield "objective.skill_from=mate needs another attempt at the same task, and stage2.group_size=1 makes none; take at least 2"
    if objective.critical_steps and objective.skill_from not in ("scripted", "external"):
        yield (
            f"objective.critical_steps={objective.critical_steps} asks for skills of single steps, which only the scripted and the external analyzer write; "
            f"set objective.skill_from=external, or critical_steps=0 with skill_from={objective.skill_from}"
        )
    if objective.schedule != "constant" and not objective.opd_coef:
        yield f"objective.schedule={objective.schedule} has nothing to change while objective.opd_coef is 0; set schedule=constant, or opd_coef above 0"


def _average_faults(cfg: Config) -> Iterator[str]:
    objective, key = cfg.objective, f"objective.average_skills={cfg.objective.average_skills}"
    if not objective.opd_coef or objective.opd_form != "gate" or objective.skill_advantage != "none" or objective.critical_steps:
        yield f"{key} averages gates: it needs objective.opd_form=gate with opd_coef above 0, skill_advantage=none and critical_steps=0"
    if objective.skill_from not in ("own", "mate", "sibling"):
        yield f"{key} needs several skills for a trajectory, and objective.skill_from={objective.skill_from} has one; take own, mate or sibling"
    if objective.skill_from == "own" and cfg.analyzer.temperature == 0:
        yield f"{key} of one's own analyzer at analyzer.temperature=0 would be the same skill each time; set a temperature above 0, or skill_from=mate"
    if objective.skill_from == "mate" and cfg.stage2.group_size <= objective.average_skills:
        yield f"{key} asks for more group mates than stage2.group_size={cfg.stage2.group_size} leaves; take at most {cfg.stage2.group_size - 1}"
    if cfg.engine == "verl":
        yield f"engine=verl does not offer {key}: its loss gets one log-prob per token from the teacher; set average_skills=1, or engine=local"


def _support_faults(cfg: Config) -> Iterator[str]:
    objective, key = cfg.objective, f"objective.support={cfg.objective.support}"
    if not objective.opd_coef or objective.opd_form != "gate":
        yield f"{key} sums the gated term over the vocabulary: it needs objective.opd_form=gate with opd_coef above 0"
    if objective.teacher != "live":
        yield f"{key} needs the teacher's whole distribution beside the student's, and objective.teacher=once keeps one log-prob per token; set teacher=live"
    if objective.average_skills > 1 or objective.critical_steps:
        yield f"{key} reads one skill per row; set objective.average_skills=1 and critical_steps=0"
    if objective.baseline != "none":
        yield f"{key} has no use for objective.baseline={objective.baseline}: over the whole distribution a constant has no gradient; set baseline=none"
    if cfg.engine == "verl":
        yield f"engine=verl does not offer {key}: its workers return the sampled tokens' log-probs alone; set support=sampled, or engine=local"


def _context_faults(cfg: Config) -> Iterator[str]:
    key = "objective.baseline=context"
    if not cfg.objective.writes_skills:
        yield f"{key} reads a group mate's skill, and with objective.skill_from={cfg.objective.skill_from} none is written; set baseline=mean, or another skill_from"
    if cfg.stage2.group_size == 1:
        yield f"{key} reads a group mate's skill, and stage2.group_size=1 makes none; take at least 2"
    if cfg.engine == "verl":
        yield f"engine=verl does not offer {key}: its workers return the sampled tokens' log-probs alone; set baseline=mean, or engine=local"
