"""Every method of the comparison as a bundle of switches (paper section 7); data only.

A bundle's ``settings`` go on top of a preset and below explicit overrides.  ``missing`` names what the package still
lacks for a method that it knows of; such a method resolves to nothing but an error.  ``reason`` is what a diff against
the paper's SEED says about the bundle's own settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bundle:
    name: str
    summary: str
    settings: dict[str, Any]
    reason: str
    missing: str | None = None

    @property
    def available(self) -> bool:
        return self.missing is None


_NO_STAGE1: dict[str, Any] = {"initial": "base", "stage1": {"enabled": False}}
_WITH_STAGE1: dict[str, Any] = {"initial": "stage1", "stage1": {"enabled": True}}
_SEED = {
    "rl_coef": 1.0, "opd_coef": 0.01, "beta": 5.0, "skill_from": "own", "where": "all",
    "analyzer_snapshot": "synchronised", "refresh_every": 1,
}  # fmt: skip
_STATIC = _SEED | {"skill_from": "static"}
_IN_PROMPTS = {"rollout": {"skill": "library"}}
_IN_EVALUATION = {"evaluation": {"skill": "library"}}
_WRITTEN_ONCE = {"skills": {"library": "snapshot", "retrieve": "task_type"}}
_SKILL_SD = {"opd_form": "ratio_k3", "opd_coef": 0.001}
_OFF = {"rl_coef": 1.0, "opd_coef": 0.0}
_RLSD = {
    "opd_coef": 0.0, "teacher": "once", "skill_advantage": "scaled", "scale_share": 0.5, "scale_updates": 100, "scale_low": 0.8, "scale_high": 1.2,
}  # fmt: skip
_FROZEN = {**_NO_STAGE1, "stage2": {"updates": 0}, "objective": {"opd_coef": 0.0}}
_OPID = {
    "opd_coef": 0.0, "teacher": "once", "skill_from": "external", "skill_advantage": "added", "episode_coef": 0.001, "step_coef": 0.001,
    "critical_steps": 5,
}  # fmt: skip

_NOT_TRAINED = "the method trains nothing: its frozen weights are evaluated"
_BASELINE = "a baseline without SEED's first stage and without its distillation term"
_STATIC_REASON = "the method's teacher reads a static skill, and it has no Stage 1"

_ALL = [
    Bundle("vanilla", "the frozen base policy, evaluated", _FROZEN, _NOT_TRAINED),
    Bundle(
        "skill-prompt", "the frozen base policy with a library skill in its evaluation prompt", {**_FROZEN, **_IN_EVALUATION}, _NOT_TRAINED,
    ),
    Bundle(
        "react", "the frozen base policy with a reason-act prompt, for the visual tasks", _FROZEN, _NOT_TRAINED,
        missing="the visual environments and their reason-act prompt",
    ),
    Bundle("grpo", "clipped policy loss with group-relative advantages, from the base policy",
           {**_NO_STAGE1, "objective": _OFF}, _BASELINE),
    Bundle(
        "skill-grpo", "GRPO with a library skill in the training prompt, evaluated without",
        {**_NO_STAGE1, **_IN_PROMPTS, "objective": _OFF}, _BASELINE,
    ),
    Bundle(
        "skill-grpo*", "the run of skill-grpo, evaluated with the skill",
        {**_NO_STAGE1, **_IN_PROMPTS, **_IN_EVALUATION, "objective": _OFF}, _BASELINE,
    ),
    Bundle(
        "gigpo", "GRPO with a second advantage over steps of a group that share their observation",
        {**_NO_STAGE1, "objective": _OFF | {"advantage": "gigpo", "step_weight": 1.0, "step_discount": 0.95}}, _BASELINE,
    ),
    Bundle("rloo", "the policy loss with the mean of a group's other members as the baseline",
           {**_NO_STAGE1, "objective": _OFF | {"advantage": "rloo"}}, _BASELINE),
    Bundle(
        "gspo", "GRPO with one probability ratio per row, clipped within a few ten-thousandths",
        {**_NO_STAGE1, "objective": _OFF | {"ratio": "sequence", "clip_low": 3e-4, "clip_high": 4e-4, "aggregation": "seq-mean-token-mean"}},
        _BASELINE,
    ),
    Bundle(
        "opsd", "gated distillation from a static skill, without a policy loss (as compared in the paper)",
        {**_NO_STAGE1, "objective": _STATIC | {"rl_coef": 0.0}}, _STATIC_REASON,
    ),
    Bundle(
        "grpo+opsd", "as compared in the paper: beta 0, so that the gate is 1/2 everywhere and the skill has no influence",
        {**_NO_STAGE1, "objective": _STATIC | {"beta": 0.0}}, _STATIC_REASON,
    ),
    Bundle(
        "opsd-kl", "distillation of the teacher's log-probs, without a policy loss",
        {**_NO_STAGE1, "objective": _STATIC | {"rl_coef": 0.0, "opd_form": "log_ratio"}}, _STATIC_REASON,
    ),
    Bundle(
        "grpo+opsd-kl", "GRPO beside distillation of the teacher's log-probs",
        {**_NO_STAGE1, "objective": _STATIC | {"opd_form": "log_ratio"}}, _STATIC_REASON,
    ),
    Bundle(
        "skill-sd", "GRPO beside a k3 term towards a teacher with a retrieved skill",
        {**_NO_STAGE1, "objective": _STATIC | _SKILL_SD}, _STATIC_REASON,
    ),
    Bundle(
        "skill-sd/own", "skill-sd with the policy's own summaries of its finished trajectories, as first published",
        {**_NO_STAGE1, "objective": _SEED | _SKILL_SD}, "the method has another distillation term, and no Stage 1",
    ),
    Bundle(
        "rlsd", "a self-teacher scales the size of the advantage, never its sign, and fades to GRPO",
        {**_NO_STAGE1, "objective": _STATIC | _RLSD}, "its teacher reads a static skill, once per update, and has no loss of its own; no Stage 1",
    ),
    Bundle(
        "sdar", "SEED's gate and loss with a static, retrieved skill, without Stage 1",
        {**_NO_STAGE1, "objective": _STATIC}, _STATIC_REASON,
    ),
    Bundle(
        "opid", "signed episode- and step-level skill advantages from an external analyzer",
        {**_NO_STAGE1, "objective": _SEED | _OPID}, "its skills come from an external analyzer, and change advantages instead of adding a term; no Stage 1",
    ),
    Bundle("seed", "hindsight-skill SFT, then GRPO with gated distillation from the policy's own skills",
           {**_WITH_STAGE1, "objective": _SEED}, "the paper's method"),
    Bundle("seed/no-stage1", "ablation: SEED that starts from the base policy",
           {**_NO_STAGE1, "objective": _SEED}, "the ablation leaves Stage 1 out"),
    Bundle("seed/no-opd", "ablation: GRPO that starts from the Stage-1 checkpoint",
           {**_WITH_STAGE1, "objective": _SEED | _OFF}, "the ablation leaves distillation out"),
    Bundle("seed/static", "ablation: skills written once by an early snapshot and never refreshed",
           {**_WITH_STAGE1, **_WRITTEN_ONCE, "objective": _STATIC}, "the ablation's skills are not on-policy"),
    Bundle("seed/shuffled", "control: each teacher reads the skill of another trajectory",
           {**_WITH_STAGE1, "objective": _SEED | {"skill_from": "shuffled"}}, "the control breaks the link of skill and trajectory"),
    Bundle("seed/scripted", "control: the environment's own analyzer writes the skills",
           {**_WITH_STAGE1, "objective": _SEED | {"skill_from": "scripted"}}, "the control's skills are always right"),
]  # fmt: skip

METHODS: dict[str, Bundle] = {bundle.name: bundle for bundle in _ALL}
