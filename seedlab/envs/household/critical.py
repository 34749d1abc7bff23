"""The scripted analyzer's critical steps: which commands of a finished transcript decided it, and advice for each.

Like the hindsight skill, the advice is read off the transcript alone.  Of a success, the steps that found, took, treated
and delivered the object count; of a failure, the steps that passed it by, skipped its treatment, or did nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from seedlab.envs.household.beliefs import Beliefs, kind_of
from seedlab.envs.household.goals import LIGHT, Goal, parse_goal

_IDLE = "nothing happens"


def step_skills(goal: str, observations: list[str], actions: list[str], success: bool, limit: int) -> dict[int, str]:
    """{index of an action: advice for it}, at most `limit` steps, in order of the steps.

    `goal` is the task sentence, `observations[0]` the opening text and `observations[i + 1]` the answer to
    `actions[i]`; the last answer may be missing.  ValueError if `goal` is no task sentence of this environment.
    """
    wanted = parse_goal(goal)
    beliefs = Beliefs()
    beliefs.start(observations[0])
    found: list[tuple[int, int, str]] = []  # (rank, step, advice)
    decisive = _Decisive(wanted, actions) if success else None
    for step, action in enumerate(actions):
        answer = observations[step + 1] if step + 1 < len(observations) else ""
        known = set(beliefs.first_seen)
        advice = [] if decisive else list(_mistakes(wanted, beliefs, action, answer.lower().startswith(_IDLE)))
        beliefs.update(action, answer)
        if decisive:
            advice = list(decisive.at(step, beliefs, known))
        found += [(rank, step, text) for rank, text in advice]
    chosen: dict[int, str] = {}
    for _, step, text in sorted(found, key=lambda entry: entry[:2]):
        if len(chosen) == limit:
            break
        chosen.setdefault(step, text)
    return dict(sorted(chosen.items()))


class _Decisive:
    """The commands of a success on an object that was delivered, or held under the lamp, at the end."""

    def __init__(self, goal: Goal, actions: list[str]):
        self.goal, self.actions = goal, actions
        self.last = {kind: step for step, kind in enumerate(map(self._kind, actions)) if kind}

    def _kind(self, action: str) -> str | None:
        verb, _, rest = action.partition(" ")
        thing = rest.split(" from ")[0].split(" to ")[0].split(" with ")[0]
        if verb == "use" and self.goal.task_type == LIGHT and kind_of(rest) == self.goal.place:
            return "use"
        if verb in ("take", "move", "clean", "heat", "cool") and kind_of(thing) == self.goal.object:
            return f"{verb} {thing}"
        return None

    def at(self, step: int, beliefs: Beliefs, known: set[str]) -> Iterator[tuple[int, str]]:
        action = self.actions[step]
        kind = self._kind(action)
        if kind and self.last[kind] == step:
            verb, _, rest = action.partition(" ")
            if verb == "take":
                yield 0, f"take {rest} now , it is what the task asks for ."
            elif verb == "move" and kind_of(rest.split(" to ")[1]) == self.goal.place:
                yield 1, f"move {rest} now , it belongs there ."
            elif self.goal.treatment and verb == self.goal.treatment[0]:
                yield 2, f"{verb} {rest} before it is moved to the {self.goal.place} ."
            elif verb == "use":
                yield 1, f"use {rest} now , with the {self.goal.object} in hand ."
        new = [(o, r) for o, r in beliefs.first_seen.items() if o not in known and kind_of(o) == self.goal.object and f"take {o}" in self.last]
        if new and not action.startswith("take"):
            yield 3, f"{action} now , the {self.goal.object} is in {new[0][1]} ."


def _mistakes(goal: Goal, beliefs: Beliefs, action: str, idle: bool) -> Iterator[tuple[int, str]]:
    """`beliefs` are those before the action."""
    target = {r for r in beliefs.receptacles if kind_of(r) == goal.place and goal.task_type != LIGHT}
    here = [(o, r) for o, r in beliefs.find(goal.object) if beliefs.at(r) and r not in target]
    if here and beliefs.holding is None and not action.startswith(f"take {goal.object} "):
        yield 0, f"take {here[0][0]} from {here[0][1]} now , it is what the task asks for ."
    held = beliefs.holding
    if goal.treatment and held and kind_of(held) == goal.object and action.startswith("move "):
        verb, appliance = goal.treatment
        if beliefs.treated.get(held, ("",))[0] != verb:
            yield 1, f"{verb} {held} with {(beliefs.of_kind(appliance) or [f'the {appliance}'])[0]} before it is moved ."
    if idle:
        yield 2, "this command does nothing here , so do something else ."
    elif action.startswith("go to ") and action[6:] in beliefs.contents and held is None:
        if not any(r == action[6:] for _, r in beliefs.find(goal.object)):
            yield 3, f"{action[6:]} was already searched , so go to another place ."
