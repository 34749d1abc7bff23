"""What the analyzer reads: one template, for Stage 1's training rows and for Stage 2 alike (paper section 2).

`marker`: the episode's own conversation, its outcome and a marker line, so that the keys and values of the rollout
are an exact prefix and can be used again.  `json`: one message with the serialized trajectory x_tau, and instructions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from seedlab.config.schema import AnalyzerConfig
from seedlab.episodes.prompts import History, PromptFormat, fit_turns
from seedlab.episodes.records import Trajectory
from seedlab.policy.chat import ChatRenderer

SUMMARY_KEY, SKILL_KEY, STEPS_KEY = "episode_summary", "episode_skill", "critical_steps"
MARKER = "skill :"

_LEAD = "Below is one finished attempt at a task in an interactive environment, turn by turn."
_AFTER_SUCCESS = (
    "The attempt reached its goal. Write down what made it work, so that the same kind of task can be solved again: the "
    "order of the steps that mattered, and the observations that decided what to do. Leave detours out."
)
_AFTER_FAILURE = (
    "The attempt did not reach its goal. Find the mistake that mattered most, and write a rule that would have avoided or "
    "corrected it: in which situation it applies, what not to do there, and what to do instead."
)
_ANSWER = (
    "Answer with one JSON object and nothing else. Its two keys hold text:\n"
    f'"{SUMMARY_KEY}": what happened in the attempt, in one or two sentences;\n'
    f'"{SKILL_KEY}": the advice itself, two to four sentences that speak to someone who is about to start this task.'
)
_STEPS = (
    f'\nA third key "{STEPS_KEY}" holds a list of at most {{most}} objects, one for each action that decided how the attempt went: "step", '
    'the number of the action, and "skill", one sentence of advice for that very moment.'
)


@dataclass(frozen=True)
class AnalyzerPrompt:
    """The prompt of one trajectory's analysis.  `dropped` oldest turns were left out, because all were too long."""

    messages: list[dict]
    ids: list[int]
    dropped: int


def outcome(trajectory: Trajectory) -> str:
    return "success" if trajectory.success else "failure"


def whole_history(trajectory: Trajectory, *, extracted: bool = False) -> History:
    """Every turn and the final observation; responses as sampled, or only the commands `extracted` from them."""
    actions = [s.action for s in trajectory.steps]
    return History(
        goal=trajectory.goal,
        observations=[s.observation for s in trajectory.steps] + [trajectory.final_observation],
        responses=actions if extracted else [s.response for s in trajectory.steps],
        actions=actions,
        holding=[s.holding for s in trajectory.steps],
        name=trajectory.id,
    )


def transcript(trajectory: Trajectory) -> str:
    """Goal, observations and actions as plain text, one a line."""
    lines = [trajectory.goal]
    for step in trajectory.steps:
        lines += [step.observation, step.action]
    return "\n".join([*lines, trajectory.final_observation])


def analyzer_messages(
    trajectory: Trajectory, prompts: PromptFormat, contract: str, *, kept_from: int = 0, critical_steps: int = 0
) -> list[dict]:
    """Messages that ask for the skill of a trajectory, without its turns before `kept_from`.

    `critical_steps` above 0 asks the JSON contract for skills of so many single steps too.
    """
    if contract == "json":
        return [{"role": "user", "content": _serialized(trajectory, kept_from, critical_steps)}]
    if contract != "marker":
        raise ValueError(f"unknown analyzer contract {contract!r}; use marker or json")
    history = whole_history(trajectory, extracted=prompts.layout == "step")
    messages = prompts.conversation(history, skill=trajectory.prompt_skill, kept_from=kept_from)
    last = messages[-1]
    ending = f"{last['content']}\noutcome : {outcome(trajectory)}\n{MARKER}"
    return [*messages[:-1], {**last, "content": ending}]


def analyzer_prompt(
    trajectory: Trajectory, prompts: PromptFormat, chat: ChatRenderer, cfg: AnalyzerConfig, *, contract: str | None = None,
    critical_steps: int = 0,
) -> AnalyzerPrompt:
    """Messages and ids within `cfg.max_prompt_tokens`; whole oldest turns are left out where needed.

    In the marker contract the ids continue those of the last step where they can, so that sampled ids stay as they
    were.  Raises PromptTooLong where the task with the newest turn alone does not fit.
    """
    contract = contract or cfg.contract
    messages, dropped = fit_turns(
        lambda kept: analyzer_messages(trajectory, prompts, contract, kept_from=kept, critical_steps=critical_steps), chat.render, 0,
        len(trajectory.steps), cfg.max_prompt_tokens, f"{trajectory.id} (analyzer)",
        key="analyzer.max_prompt_tokens",
    )
    if contract == "marker" and prompts.extends and trajectory.steps and trajectory.steps[-1].kept_from == dropped:
        last = trajectory.steps[-1]
        ids = chat.extend(last.prompt_ids, last.response_ids, messages[:-2], messages)
        if ids is not None and len(ids) <= cfg.max_prompt_tokens:
            return AnalyzerPrompt(messages, ids, dropped)
    return AnalyzerPrompt(messages, chat.render(messages), dropped)


def completion_text(text: str, contract: str, *, summary: str = "", steps: Mapping[int, str] | None = None) -> str:
    """The answer that carries skill `text` under a contract: what Stage 1 trains the analyzer to write.

    `steps` are skills of critical steps by their index (from 0; the answer counts from 1): a list of objects in the JSON
    contract, a line each in the marker contract.
    """
    told = sorted((steps or {}).items())
    if contract == "json":
        more = {STEPS_KEY: [{"step": step + 1, "skill": advice} for step, advice in told]} if told else {}
        return json.dumps({SUMMARY_KEY: summary, SKILL_KEY: text, **more}, ensure_ascii=False)
    return "\n".join([text, *(f"step {step + 1} : {advice}" for step, advice in told)])


def _serialized(trajectory: Trajectory, kept_from: int, critical_steps: int) -> str:
    lines = [_LEAD, "", f"Task: {trajectory.goal}", f"Outcome: {outcome(trajectory)}", f"Total reward: {trajectory.returned:g}", ""]
    if kept_from:
        lines.append(f"(turns 1 to {kept_from} are left out)")
    for number, step in enumerate(trajectory.steps[kept_from:], kept_from + 1):
        lines += [
            f"Observation {number}: {_one_line(step.observation)}",
            f"Action {number}: {_one_line(step.action)}",
            f"Reward {number}: {step.reward:g}",
        ]
    if trajectory.final_observation:
        lines.append(f"Final observation: {_one_line(trajectory.final_observation)}")
    answer = _ANSWER + (_STEPS.format(most=critical_steps) if critical_steps else "")
    return "\n".join([*lines, "", _AFTER_SUCCESS if trajectory.success else _AFTER_FAILURE, "", answer])


def _one_line(text: str) -> str:
    return " ".join(text.split())
