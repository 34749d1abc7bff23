"""One episode on the official engine, with the interface of every other environment."""

from __future__ import annotations

import re

from seedlab.envs.base import step_result
from seedlab.envs.protocol import InfrastructureError, StepResult
from seedlab.envs.textworld.client import OfficialProcess, ProcessPool

_TASK = re.compile(r"Your task is to: ([^\n]*)$")
_TAKEN = re.compile(r"You pick up the (.+) from the .+\.$")
_MOVED = re.compile(r"You move the .+ to the .+\.$")


class OfficialEpisode:
    """Leases a process at its first reset and gives it back at `close`.

    `game` is a path or game data.  Every method raises InfrastructureError, naming the task, when the process dies,
    hangs or fails; the episode is then lost, never scored.
    """

    def __init__(self, game: str | dict, task_id: str, task_type: str, pool: ProcessPool, max_steps: int, success_reward: float):
        self.game, self.task_id, self.task_type, self.pool = game, task_id, task_type, pool
        self.max_steps, self.success_reward = max_steps, success_reward
        self.goal = ""  # known once the game is opened
        self.actions: list[str] = []
        self.done, self.won = False, False
        self._process: OfficialProcess | None = None
        self._admissible: list[str] = []
        self._held: str | None = None

    def reset(self) -> str:
        """Back to the start; returns the opening text with the task sentence."""
        if self._process is None:
            self._process = self.pool.lease(self.task_id)
            self._process.ask("load", game=self.game)
        state = self._process.ask("reset")
        found = _TASK.search(state["feedback"])
        if found is None:
            raise InfrastructureError(f"{self.task_id}: the official engine's opening text names no task")
        self.goal = found.group(1)
        self.actions, self.done, self.won = [], False, False
        self._admissible, self._held = state["admissible"], None
        return state["feedback"]

    @property
    def steps(self) -> int:
        return len(self.actions)

    def step(self, action: str) -> StepResult:
        """Do a command.  RuntimeError once the episode is over, or before it began."""
        if self._process is None or self.done:
            raise RuntimeError(f"{self.task_id}: the episode is over or not begun; call reset() before another step")
        # The official engine strips white space before it looks a command up.
        admissible = action.strip() in self._admissible
        state = self._process.ask("step", command=action)
        self.actions.append(action)
        self._admissible, self.won = state["admissible"], state["won"]
        self._follow_hand(state["feedback"])
        result = step_result(state["feedback"], admissible, self.won, self.steps, self.max_steps, self.success_reward)
        self.done = result.done
        return result

    def _follow_hand(self, feedback: str) -> None:
        # The engine does not say what is in hand; taking and moving are the only ways to change it.
        taken = _TAKEN.match(feedback)
        if taken:
            self._held = taken.group(1)
        elif _MOVED.match(feedback):
            self._held = None

    def admissible(self) -> list[str]:
        return list(self._admissible)

    def holding(self) -> str | None:
        return self._held

    def clone(self) -> "OfficialEpisode":
        """An independent copy, in another process that replays the actions (about a second)."""
        copy = OfficialEpisode(self.game, self.task_id, self.task_type, self.pool, self.max_steps, self.success_reward)
        copy.reset()
        for action in self.actions:
            copy.step(action)
        return copy

    def close(self) -> None:
        """Give the process back; safe to call again."""
        if self._process is not None:
            self.pool.give_back(self._process)
            self._process = None
        self.done = True
