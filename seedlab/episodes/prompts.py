"""From an episode's history to chat messages, and from a response to an action.

`conversation`: one message per turn.  `step`: a single fresh message with the last few pairs.  Both place a skill
right behind the task line of the first user message, so that only this block differs between h and H(h, s), and
H(h, "") is h.  When a prompt does not fit, whole oldest turns are left out; no turn is ever cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Callable, Sequence

from seedlab.config.schema import EnvConfig
from seedlab.errors import UserError

# Words of the compact form beside those of the environment: a tokenizer with whole words must know them.
COMPACT_WORDS = ("task", "skill", "hold", "nothing", "saw", "did", "can", "outcome", "success", "failure", ":", ";")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_BANNER = re.compile(r"^\s*-=.*?=-\s*")
_TASK_SENTENCE = re.compile(r"\s*Your task is to:[^\n]*", re.IGNORECASE)
_PUNCTUATION = re.compile(r"([.,:;!?\"()\[\]])")
# What each form of the short prompt leaves out of observations and goals.
_LEFT_OUT = {
    "compact": frozenset(),
    "terse": frozenset(("a", "an", "the", "and", ",")),
    "brief": frozenset(("a", "an", "the", "and", ",", ".", "!", ":")),
}


class PromptTooLong(UserError):
    """Not even the task line with the newest turn fits the limit."""


@dataclass
class History:
    """What an agent has seen and done.  `observations`, `holding` are one longer than `responses`, `actions` while the
    agent is to act, and equally long once every observation is answered.  `admissible` belongs to the newest one."""

    goal: str
    observations: list[str] = field(default_factory=list)
    responses: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    holding: list[str] = field(default_factory=list)
    admissible: list[str] = field(default_factory=list)
    name: str = ""

    @property
    def newest(self) -> int:
        return len(self.observations) - 1


# Every turn renders all earlier ones again, so the same observations come back many times.
@lru_cache(maxsize=16384)
def compact_text(observation: str, form: str = "compact") -> str:
    """An observation for the tiny policy: no banner, no task sentence, lower case, words and punctuation apart; `terse`
    and `brief` leave filling words and marks out, about half the tokens of a long list of things."""
    return _short(_TASK_SENTENCE.sub("", _BANNER.sub("", observation)), form)


@lru_cache(maxsize=4096)
def _compact_goal(goal: str, form: str) -> str:
    return _short(goal, form)


def spaced_text(text: str) -> str:
    """A text in the words of the short prompts: lower case, marks apart from words, nothing left out."""
    return _short(text, "compact")


def _short(text: str, form: str) -> str:
    left_out = _LEFT_OUT[form]
    return " ".join(word for word in _PUNCTUATION.sub(r" \1 ", text.lower()).split() if word not in left_out)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


@dataclass(frozen=True)
class CompactWording:
    """Short lines for the tiny policy.  `form` brief has no colons and says what is held only while something is held."""

    restate: bool
    form: str = "compact"

    def opening(self, goal: str, skill: str) -> str:
        return _lines(self._line("task", _compact_goal(goal, self.form)), self._line("skill", _one_line(skill)) if skill else "")

    def first(self, goal, skill, observation, holding, commands) -> str:
        return _lines(self.opening(goal, skill), self._current(observation, holding, commands))

    def later(self, goal, observation, holding, commands) -> str:
        return _lines(self.opening(goal, "") if self.restate else "", self._current(observation, holding, commands))

    def step(self, goal, skill, pairs, first_number, observation, holding, commands) -> str:
        past = [_lines(self._line("saw", compact_text(o, self.form)), self._line("did", _one_line(a))) for o, a in pairs]
        return _lines(self.opening(goal, skill), *past, self._current(observation, holding, commands))

    def _current(self, observation, holding, commands) -> str:
        said = self.restate and holding is not None and (holding or self.form != "brief")
        hold = self._line("hold", _one_line(holding) or "nothing") if said else ""
        can = self._line("can", " ; ".join(commands)) if commands else ""
        return _lines(hold, compact_text(observation, self.form), can)

    def _line(self, label: str, text: str) -> str:
        return f"{label} {text}" if self.form == "brief" else f"{label} : {text}"


_ROLE = "You control an agent that works on a task in a text environment. Each turn you read an observation and send one command."
_FORM = (
    "First reason about what to do next between <think> and </think>. "
    "Then give exactly one command between <action> and </action>."
)
_REMINDER = "Answer with <think>...</think><action>...</action>."


@dataclass(frozen=True)
class InstructWording:
    """Full sentences for instruct models, which answer with think and action tags.

    `task_line` and `history_lines` are env.task_line and env.history_lines: where this protocol differs from that of
    the family of public code bases, either side can be chosen.
    """

    task_line: str = "always"
    history_lines: str = "plain"

    def opening(self, goal: str, skill: str, observation: str = "") -> str:
        stated = self.task_line == "unless_stated" and _TASK_SENTENCE.search(observation)
        advice = f"Advice from an earlier attempt at this task:\n{skill.strip()}" if skill else ""
        return _lines(_ROLE, "" if stated else f"Task: {goal.strip()}", advice)

    def first(self, goal, skill, observation, holding, commands) -> str:
        return _lines(self.opening(goal, skill, observation), self._current(observation, commands), _FORM)

    def later(self, goal, observation, holding, commands) -> str:
        return _lines(self._current(observation, commands), _REMINDER)

    def step(self, goal, skill, pairs, first_number, observation, holding, commands) -> str:
        past = [self._turn(k, o, a) for k, (o, a) in enumerate(pairs, first_number)]
        if past:
            past = ["Your latest turns:", *past]
        return _lines(self.opening(goal, skill, observation), *past, self._current(observation, commands), _FORM)

    def _turn(self, number: int, observation: str, action: str) -> str:
        if self.history_lines == "bracketed":
            return f"[Observation {number}: '{observation}', Action {number}: '{action}']"
        return f"Observation {number}: {_one_line(observation)}\nCommand {number}: {_one_line(action)}"

    def _current(self, observation, commands) -> str:
        can = "Commands that are possible now:\n" + "\n".join(commands) if commands else ""
        return _lines(f"Observation: {observation.strip()}" if observation.strip() else "", can)


@dataclass(frozen=True)
class PromptFormat:
    """How histories of one environment become messages.  `extends`: a prompt continues the ids of the one before.

    With `show_admissible` only the newest turn lists its commands, so that prompts do not extend one another.
    """

    wording: CompactWording | InstructWording
    layout: str
    history_window: int | None
    show_admissible: bool
    list_help: bool = True

    @property
    def extends(self) -> bool:
        return self.layout == "conversation" and not self.show_admissible

    def first_turn(self, history: History) -> int:
        """First turn that `history_window` keeps; fewer turns than that are kept only where the prompt is too long."""
        return 0 if self.history_window is None else max(0, history.newest - self.history_window)

    def messages(self, history: History, *, skill: str = "", kept_from: int = 0) -> list[dict]:
        """Messages of turns `kept_from` and later (B11), with `skill` right after the task line (H(h, s) of the paper)."""
        if not history.observations:
            raise ValueError(f"{history.name}: a history without an observation gives no prompt")
        start = min(max(kept_from, self.first_turn(history)), history.newest)
        if self.layout == "step":
            return self._step(history, skill, start)
        return self.conversation(history, skill=skill, kept_from=start)

    def conversation(self, history: History, *, skill: str = "", kept_from: int = 0) -> list[dict]:
        """One user message per observation, one assistant message per response, whatever the layout and the window."""
        out = []
        for turn in range(min(kept_from, history.newest), len(history.observations)):
            facts = (history.observations[turn], _at(history.holding, turn), self._commands(history, turn))
            if not out:
                content = self.wording.first(history.goal, skill, *facts)
            else:
                content = self.wording.later(history.goal, *facts)
            out.append({"role": "user", "content": content})
            if turn < len(history.responses):
                out.append({"role": "assistant", "content": history.responses[turn]})
        return out

    def _step(self, history: History, skill: str, start: int) -> list[dict]:
        now = history.newest
        pairs = list(zip(history.observations[start:now], history.actions[start:now]))
        facts = (history.observations[now], _at(history.holding, now), self._commands(history, now))
        out = [{"role": "user", "content": self.wording.step(history.goal, skill, pairs, start + 1, *facts)}]
        if now < len(history.responses):
            out.append({"role": "assistant", "content": history.responses[now]})
        return out

    def _commands(self, history: History, turn: int) -> list[str]:
        if not self.show_admissible or turn != history.newest:
            return []
        return [c for c in history.admissible if self.list_help or c != "help"]

    def fit(
        self, render: Callable[[list[dict]], Sequence[int]], history: History, limit: int, *, skill: str = ""
    ) -> tuple[list[dict], int]:
        """Messages whose ids number at most `limit`, and the first turn that is still in them.

        Whole oldest turns are left out, as few as needed.  Raises PromptTooLong where the task line with the newest
        turn alone is longer.
        """
        return fit_turns(
            lambda kept: self.messages(history, skill=skill, kept_from=kept), render, self.first_turn(history),
            history.newest, limit, history.name or history.goal, key="rollout.max_prompt_tokens",
        )


def fit_turns(make, render, first: int, newest: int, limit: int, name: str, *, key: str) -> tuple[list[dict], int]:
    """`make(kept)` for the smallest `kept` in first..newest that renders to at most `limit` ids (B10, B11).

    Raises PromptTooLong, naming the setting `key` that the limit comes from.
    """
    length = 0
    for kept in range(first, newest + 1):
        messages = make(kept)
        length = len(render(messages))
        if length <= limit:
            return messages, kept
    raise PromptTooLong(
        f"{name}: the task line with the newest turn alone takes {length} tokens, more than {key}={limit}; set it to {length} at "
        "least (and model.context with it), or shorten the skill or the observation"
    )


def make_prompt_format(env: EnvConfig) -> PromptFormat:
    """The prompt format that the environment section asks for."""
    if env.prompt == "instruct":
        wording = InstructWording(env.task_line, env.history_lines)
    else:
        wording = CompactWording(env.restate, env.prompt)
    return PromptFormat(wording, env.layout, env.history_window, env.show_admissible, env.list_help)


def parse_action(response: str, prompt_kind: str, fallback_characters: int = 30) -> tuple[str, bool]:
    """The command of a response, and whether the response had the required form.

    compact, terse and brief: the whole response, one non-empty line.  instruct: both think tags, both action tags (these in any case)
    and no Chinese character; the command is what stands between the first action tags, in lower case.  Without action
    tags the last `fallback_characters` are sent.  The form says nothing about admissibility.
    """
    if prompt_kind in _LEFT_OUT:
        action = response.strip()
        return action, bool(action) and len(action.splitlines()) == 1
    if prompt_kind != "instruct":
        raise ValueError(f"unknown prompt kind {prompt_kind!r}; use {', '.join(_LEFT_OUT)} or instruct")
    lowered = response.lower()
    start, end = lowered.find("<action>"), lowered.find("</action>")
    if start < 0 or end < 0:
        return lowered[-fallback_characters:], False
    action = lowered[start + len("<action>") : end].strip()
    return action, "<think>" in response and "</think>" in response and not _CHINESE.search(response)


def _at(values: Sequence[str], index: int) -> str | None:
    return values[index] if index < len(values) else None
