"""A scripted expert that sees only observations: it searches, takes, treats and delivers, and may follow a skill."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from seedlab.envs.household import names
from seedlab.envs.household.beliefs import Beliefs, kind_of
from seedlab.envs.household.engine import Household
from seedlab.envs.household.goals import LIGHT, TWO, Goal, parse_goal
from seedlab.envs.household.skills import SkillFacts, skill_facts

_CONTAINS = {name.lower(): frozenset(o.lower() for o in objects) for name, objects in names.CONTAINS.items()}
_CLOSED_KINDS = frozenset(name.lower() for name in names.OPENABLE)
_LAMP_STANDS = frozenset(("desk", "sidetable", "dresser", "shelf", "coffeetable"))
_ALL_KINDS = tuple(sorted(_CONTAINS))


@dataclass
class Demonstration:
    """One attempt.  `observations` and `holding` have one entry per action and a last one after the last action."""

    goal: str
    skill: str | None
    observations: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    holding: list[str] = field(default_factory=list)
    by_noise: list[bool] = field(default_factory=list)  # which actions were drawn at random
    success: bool = False


def demonstrate(env: Household, rng: np.random.Generator, noise: float, skill: str | None = None) -> Demonstration:
    """Play `env` from its start to the end of the episode.

    `noise` is the chance per step of a stray command (never `help`, whose answer is longer than an episode).  `skill` is followed: the places that it names are visited first, those that it excludes last; where it
    misleads, the search goes on without it.
    """
    out = Demonstration(goal=env.goal, skill=skill)
    observation = env.reset()
    beliefs = Beliefs()
    beliefs.start(observation)
    expert = Expert(parse_goal(env.goal), beliefs, skill_facts(skill) if skill else SkillFacts())
    while True:
        out.observations.append(observation)
        out.holding.append(env.holding() or "")
        if env.done:
            out.success = env.won
            return out
        out.by_noise.append(bool(noise > 0 and rng.random() < noise))
        if out.by_noise[-1]:
            action = _stray_command(env, beliefs, expert.goal, rng)
        else:
            action = expert.act()
        observation = env.step(action).observation
        out.actions.append(action)
        beliefs.update(action, observation)


def _stray_command(env: Household, beliefs: Beliefs, goal: Goal, rng: np.random.Generator) -> str:
    """A random command: half of the time an admissible one, else one of the mistakes that a weak policy makes.

    Without mistakes no demonstration would show how to go on after "Nothing happens.", and a policy trained on them is
    lost after its first one.
    """
    if rng.random() < 0.5:
        commands = [c for c in env.admissible() if c != "help"]
        return commands[int(rng.integers(len(commands)))]
    somewhere = beliefs.receptacles[int(rng.integers(len(beliefs.receptacles)))]
    elsewhere = f"{_ALL_KINDS[int(rng.integers(len(_ALL_KINDS)))]} 1"
    here = beliefs.place or somewhere
    mistakes = (
        f"go to {here}", f"go to {elsewhere}", f"take {goal.object} 1 from {here}", f"take {goal.object} 1 from {somewhere}",
        f"open {somewhere}", f"move {beliefs.holding or goal.object + ' 1'} to {somewhere}",
    )
    return mistakes[int(rng.integers(len(mistakes)))]


class Expert:
    """Chooses the next command from beliefs.

    It searches in the order in which the room was described, plausible places first: an order that a small policy can
    read off its prompt.  (A random order made demonstrations of which little could be learnt.)
    """

    def __init__(self, goal: Goal, beliefs: Beliefs, skill: SkillFacts):
        self.goal, self.beliefs, self.skill = goal, beliefs, skill
        order = list(beliefs.receptacles)
        self.order = sorted(order, key=self._object_rank)
        self.lamp_order = sorted(order, key=self._lamp_rank)

    def _object_rank(self, receptacle: str) -> int:
        """Search order: told by the skill, plausible and open, plausible and closed, implausible, excluded."""
        if receptacle in self.skill.locations:
            return self.skill.locations.index(receptacle) - 9
        if receptacle in self.skill.excluded:
            return 9
        kind = kind_of(receptacle)
        if self.goal.object not in _CONTAINS.get(kind, ()):
            return 3
        if kind == self.goal.place:
            return 2
        return 1 if kind in _CLOSED_KINDS else 0

    def _lamp_rank(self, receptacle: str) -> int:
        if receptacle == self.skill.lamp_location:
            return -1
        return 0 if kind_of(receptacle) in _LAMP_STANDS else 1

    def act(self) -> str:
        held, goal = self.beliefs.holding, self.goal
        if held is None:
            return self._fetch()
        if kind_of(held) != goal.object:
            return self._put_away(held)
        if goal.task_type == LIGHT:
            return self._light()
        if goal.treatment and self.beliefs.treated.get(held, ("",))[0] != goal.treatment[0]:
            return self._treat(held, *goal.treatment)
        return self._deliver(held)

    def _fetch(self) -> str:
        target = self._target() if self.goal.task_type == TWO else None
        known = [(o, r) for o, r in self.beliefs.find(self.goal.object) if r != target]
        if not known:
            return self._search(self.order)
        # Here before elsewhere: a step saved.
        thing, place = min(known, key=lambda pair: (not self.beliefs.at(pair[1]), pair[0] != self.skill.item))
        return self._reach(place) or f"take {thing} from {place}"

    def _put_away(self, held: str) -> str:
        fits = [r for r in self.order if kind_of(held) in _CONTAINS.get(kind_of(r), ())]
        fits.sort(key=lambda r: (not self.beliefs.at(r), self.beliefs.closed.get(r, kind_of(r) in _CLOSED_KINDS)))
        return (self._reach(fits[0]) or f"move {held} to {fits[0]}") if fits else "look"

    def _light(self) -> str:
        known = self.beliefs.find(self.goal.place)
        if not known:
            return self._search(self.lamp_order)
        lamp, place = known[0]
        return f"use {lamp}" if self.beliefs.at(place) else f"go to {place}"

    def _treat(self, held: str, verb: str, appliance: str) -> str:
        places = self.beliefs.of_kind(appliance)
        if not places:
            return "look"
        place = next((p for p in places if self.beliefs.at(p)), places[0])
        return f"{verb} {held} with {place}" if self.beliefs.at(place) else f"go to {place}"

    def _deliver(self, held: str) -> str:
        target = self._target()
        return (self._reach(target) or f"move {held} to {target}") if target else "look"

    def _target(self) -> str | None:
        """Where to deliver: with its like, or as the skill says, or here, or the first of its type."""
        places = self.beliefs.of_kind(self.goal.place)
        if self.goal.task_type == TWO:
            begun = [r for o, r in self.beliefs.find(self.goal.object) if r in places]
            if begun:
                return begun[0]
        if self.skill.target in places:
            return self.skill.target
        return next((p for p in places if self.beliefs.at(p)), places[0] if places else None)

    def _search(self, order: list[str]) -> str:
        for place in order:
            if place not in self.beliefs.contents:
                return self._reach(place) or f"examine {place}"
        # Everything was seen and the object is not where it was: look again.
        self.beliefs.contents.clear()
        return "look"

    def _reach(self, place: str) -> str | None:
        """The next command on the way to the open receptacle `place`; None once there."""
        if not self.beliefs.at(place):
            return f"go to {place}"
        return f"open {place}" if self.beliefs.closed.get(place, False) else None
