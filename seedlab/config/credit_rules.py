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
    if objective.critical_steps and objective.skill_from not in ("scripted", "external"):
        yield (
            f"objective.critical_steps={objective.critical_steps} asks for skills of single steps, which only the scripted and the external analyzer write; "
            f"set objective.skill_from=external, or critical_steps=0 with skill_from={objective.skill_from}"
        )
    if objective.schedule != "constant" and not objective.opd_coef:
        yield f"objective.schedule={objective.schedule} has nothing to change while objective.opd_coef is 0; set schedule=constant, or opd_coef above 0"
