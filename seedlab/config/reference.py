"""What the paper says (Tables 3 and 5, sections 2 and 3) and where its public code differs; data only.

The paper is SEED, arXiv 2607.14777 v1.  :mod:`seedlab.config.diff` compares a configuration with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Reference:
    """A value of the paper and where it stands.  `shown` replaces `value` in print; `accept` allows several values."""

    value: Any
    source: str
    shown: str | None = None
    accept: Callable[[Any], bool] | None = None

    def agrees(self, value: Any) -> bool:
        return self.accept(value) if self.accept else value == self.value

    def __str__(self) -> str:
        return str(self.value) if self.shown is None else self.shown


TEXT_BACKBONES = ("Qwen/Qwen2.5-3B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-1.7B")
VISUAL_BACKBONES = ("Qwen/Qwen2.5-VL-3B-Instruct",)

_T5, _T3 = "Table 5", "Table 3"
_PROTOCOL = "protocol of the paper's runs"
_STAGE1, _STAGE2 = "section 2 (Stage 1)", "section 3 (Stage 2)"


def _model(names: tuple[str, ...]) -> Reference:
    return Reference(names, "section 4", shown=" or ".join(names), accept=lambda value: value in names)


_COMMON: dict[str, Reference] = {
    "stage1.enabled": Reference(True, _STAGE1),
    "stage1.tasks": Reference(180, _T5),
    "stage1.rollouts_per_task": Reference(8, _T5),
    "stage1.epochs": Reference(3, _T5),
    "stage1.transcript_weight": Reference(0.0, _STAGE1, shown="0.0 (loss on skill tokens only)"),
    "stage1.replay_ratio": Reference(0.0, _STAGE1, shown="0.0 (no replay)"),
    "external.kind": Reference("openai", _STAGE1, shown="a large external model"),
    "external.model": Reference("glm-5.2", _STAGE1),
    "external.temperature": Reference(0.0, _STAGE1),
    "external.max_tokens": Reference(4096, _STAGE1),
    "initial": Reference("stage1", _STAGE2),
    "stage2.updates": Reference(150, _T5),
    "stage2.group_size": Reference(8, _T5),
    "stage2.learning_rate": Reference(1e-6, _T5),
    "env.layout": Reference("step", _PROTOCOL),
    "env.success_reward": Reference(1.0, _STAGE2),
    "env.train_fraction": Reference(1.0, _T3),
    "env.panel_limits": Reference({}, _T3, shown="whole panels"),
    "rollout.temperature": Reference(1.0, _PROTOCOL),
    "rollout.max_response_tokens": Reference(512, _T5),
    "rollout.skill": Reference("none", _STAGE2),
    "evaluation.skill": Reference("none", "section 1", shown="none (no skill at deployment)"),
    "analyzer.drop_unusable": Reference(False, _STAGE2, shown="no filter on skills"),
    "analyzer.min_words": Reference(1, _STAGE1, shown="1 (non-empty)"),
    "analyzer.max_copied_fraction": Reference(1.0, _STAGE1, shown="1.0 (copies are not looked for)"),
    "objective.rl_coef": Reference(1.0, _STAGE2),
    "objective.opd_coef": Reference(0.01, _T5),
    "objective.beta": Reference(5.0, _T5),
    "objective.kl_coef": Reference(0.01, _T5),
    "objective.kl_estimator": Reference("k2", _STAGE2, shown="KL(policy, reference), which is k2's gradient"),
    "objective.reference": Reference("initial", _STAGE2),
    "objective.entropy_coef": Reference(0.0, _STAGE2),
    "objective.clip_low": Reference(0.2, _T5),
    "objective.clip_high": Reference(0.2, _T5),
    "objective.dual_clip": Reference(None, _STAGE2, shown="off"),
    "objective.advantage": Reference("grpo", _STAGE2),
    "objective.advantage_scale": Reference("std", _STAGE2),
    "objective.advantage_ddof": Reference(0, _STAGE2),
    "objective.group_statistics": Reference("trajectories", _STAGE2),
    "objective.group_of_one": Reference("zero", _STAGE2),
    "objective.invalid_penalty": Reference(0.0, _STAGE2),
    "objective.aggregation": Reference("token-mean", _STAGE2, shown="expectation over tokens"),
    "objective.teacher": Reference("live", _STAGE2),
    "objective.skill_from": Reference("own", _STAGE2),
    "objective.analyzer_snapshot": Reference("synchronised", _STAGE2),
    "objective.refresh_every": Reference(1, _STAGE2),
    "objective.where": Reference("all", _STAGE2),
    "objective.ratio": Reference("token", _STAGE2),
    "objective.average_skills": Reference(1, _STAGE2),
    "objective.support": Reference("sampled", _STAGE2),
    "objective.baseline": Reference("none", _STAGE2),
    "objective.schedule": Reference("constant", _STAGE2),
    "objective.skill_advantage": Reference("none", _STAGE2),
    "objective.opd_form": Reference("gate", _STAGE2),
}

_ALFWORLD = {
    "model.path": _model(TEXT_BACKBONES),
    "env.name": Reference("household", _T3, shown="ALFWorld (household)"),
    "env.data": Reference("$ALFWORLD_DATA", _T3, shown="the official games", accept=lambda value: value is not None),
    "env.max_steps": Reference(30, _T5),
    "env.history_window": Reference(5, _PROTOCOL),
    "env.panel_sizes.train": Reference(2400, _T3),
    "env.panel_sizes.seen": Reference(140, _T3),
    "env.panel_sizes.unseen": Reference(134, _T3),
    "evaluation.panels": Reference(["seen", "unseen"], _T3),
    "stage2.tasks_per_update": Reference(16, _T5),
    "rollout.max_prompt_tokens": Reference(2048, _T5),
}
_WEBSHOP = {
    "model.path": _model(TEXT_BACKBONES),
    "env.name": Reference("webshop", _T3),
    "env.max_steps": Reference(15, _T5),
    "env.history_window": Reference(2, _PROTOCOL),
    "env.panel_sizes.train": Reference(2400, _T3),
    "env.panel_sizes.unseen": Reference(128, _T3),
    "evaluation.panels": Reference(["unseen"], _T3, shown="128 fixed test tasks"),
    "stage2.tasks_per_update": Reference(16, _T5),
    "rollout.max_prompt_tokens": Reference(4096, _T5),
}
_SEARCH = {
    "model.path": _model(TEXT_BACKBONES),
    "env.name": Reference("search", _T3),
    "env.max_steps": Reference(4, _T5),
    "env.history_window": Reference(4, _PROTOCOL),
    "env.panel_sizes.train": Reference(19200, _T3),
    "env.panel_sizes.unseen": Reference(51713, _T3),
    "evaluation.panels": Reference(["unseen"], _T3, shown="7 sets, 51,713 questions"),
    "stage2.tasks_per_update": Reference(128, _T5),
    "rollout.max_prompt_tokens": Reference(4096, _T5),
}
# Table 5 has no column for the visual tasks: their sizes stand in the public code only and are not judged here.
_VISUAL_OPEN = ("stage2.updates", "external.max_tokens")
_SOKOBAN = {"model.path": _model(VISUAL_BACKBONES), "env.name": Reference("sokoban", "section 4")}
_EZPOINTS = {"model.path": _model(VISUAL_BACKBONES), "env.name": Reference("ezpoints", "section 4")}


def _visual(own: dict[str, Reference]) -> dict[str, Reference]:
    return {key: value for key, value in _COMMON.items() if key not in _VISUAL_OPEN} | own


# by env.name of the configuration
PAPER: dict[str, dict[str, Reference]] = {
    "household": _COMMON | _ALFWORLD,
    "webshop": _COMMON | _WEBSHOP,
    "search": _COMMON | _SEARCH,
    "sokoban": _visual(_SOKOBAN),
    "ezpoints": _visual(_EZPOINTS),
}


@dataclass(frozen=True)
class CodeDifference:
    """A question on which paper and public code part, or that the paper leaves open.

    `keys` are the configuration's own answers; empty where no option is offered, and `note` says why.
    """

    question: str
    paper: str
    code: str
    keys: tuple[str, ...] = ()
    note: str = ""


PUBLIC_CODE: tuple[CodeDifference, ...] = (
    CodeDifference("policy updates", "150", "160 on ALFWorld and WebShop, 150 on Search and Sokoban, 100 on EZPoints",
                   ("stage2.updates",)),
    CodeDifference("teacher log-probs", "live weights in every minibatch", "once per update, under the rollout weights",
                   ("objective.teacher",)),
    CodeDifference("group statistics", "over the N trajectories",
                   "over all step samples, ddof 1; a group of one has mean 0 and deviation 1",
                   ("objective.group_statistics", "objective.advantage_ddof", "objective.group_of_one")),
    CodeDifference("WebShop's advantage", "divided by the deviation", "only the mean is subtracted",
                   ("objective.advantage_scale",)),
    CodeDifference("loss aggregation", "expectation", "token mean per micro-batch, then averaged over micro-batches",
                   ("objective.aggregation",),
                   "the code's rule is not offered: its gradient depends on the micro-batch size"),
    CodeDifference("dual clip", "not mentioned", "3.0", ("objective.dual_clip",)),
    CodeDifference("entropy bonus", "not mentioned", "0.001 except on Search", ("objective.entropy_coef",)),
    CodeDifference("KL estimator", "KL(policy, reference)", "k3 in the loss, whose gradient is that of KL(reference, policy)",
                   ("objective.kl_estimator",)),
    CodeDifference("KL weight on Search", "0.01", "0.001", ("objective.kl_coef",)),
    CodeDifference("invalid actions", "no penalty", "0.1 (Search 0.01) off the step's own sample",
                   ("objective.invalid_penalty",)),
    CodeDifference("past turns in the prompt", "not mentioned", "`[Observation 1: '...', Action 1: '...']`, a line each",
                   ("env.history_lines", "env.history_window")),
    CodeDifference("task line of ALFWorld's first step", "not mentioned", "left out: the first observation names the task",
                   ("env.task_line",)),
    CodeDifference("`help` among ALFWorld's listed commands", "not mentioned", "left out", ("env.list_help",)),
    CodeDifference("a response without action tags", "not mentioned", "its last 30 characters are sent, on WebShop 20",
                   ("env.fallback_characters",)),
    CodeDifference("return of a success", "1", "10 (Search 1)", ("env.success_reward",)),
    CodeDifference("minibatch in rows", "not mentioned", "ALFWorld 256, WebShop 64, Search 512, Sokoban 64, EZPoints 128",
                   ("stage2.minibatch_rows", "stage2.minibatches")),
    CodeDifference("tokens of a Stage-1 label", "up to 4,096", "1,024", ("external.max_tokens",)),
    CodeDifference("Stage-1 rollouts", "temperature not mentioned", "temperature 0.4", ("stage1.rollout_temperature",)),
    CodeDifference("Stage-1 training", "3 epochs",
                   "batch 8, learning rate 5e-6 (visual 2e-6), cosine, warm-up 0.1, 10 % held out",
                   ("stage1.batch_size", "stage1.learning_rate", "stage1.warmup_ratio", "stage1.held_out")),
    CodeDifference("analyzer decoding", "not mentioned", "temperature 0, up to 4,096 tokens (visual 2,048), no retry",
                   ("analyzer.temperature", "analyzer.max_tokens")),
    CodeDifference("unusable skill", "no filter", "no distillation for that trajectory; under five words is unusable",
                   ("analyzer.drop_unusable", "analyzer.min_words")),
    CodeDifference("place of the skill", "appended to the history", "after the task line; a long prompt loses its head",
                   (), "after the task line here, for static skills too; whole old turns are dropped, never silently"),
    CodeDifference("place of a static skill", "not mentioned", "before the whole templated prompt", (),
                   "where hindsight skills stand, so that methods differ in the skill's source alone"),
    CodeDifference("checking of skills", "format only", "format only", ("analyzer.max_copied_fraction",)),
)  # fmt: skip
