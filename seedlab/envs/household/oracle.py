"""A shortest plan with full knowledge of the state, and what an action does to its length.

Plans of these tasks have few shapes (drop what is in the way, fetch, treat, deliver), so the shortest is found by
trying every object, appliance and target; no search over states.
"""

from __future__ import annotations

from itertools import permutations
from typing import Iterator, NamedTuple

from seedlab.envs.household.engine import Household
from seedlab.envs.household.goals import LIGHT, TWO


class NoPlan(ValueError):
    """No sequence of commands reaches the goal from here."""


class _Plan(NamedTuple):
    """Commands so far, where they lead, and which receptacles are then open (bit mask)."""

    commands: tuple[str, ...]
    place: int
    opened: int

    def visit(self, world, r: int, inside: bool) -> "_Plan":
        """Go to receptacle r, and open it where `inside` asks to reach into it."""
        commands, opened = self.commands, self.opened
        if world.places[r] != self.place:
            commands += (f"go to {world.receptacles[r]}",)
        if inside and world.openable[r] and not opened >> r & 1:
            commands, opened = (*commands, f"open {world.receptacles[r]}"), opened | 1 << r
        return _Plan(commands, world.places[r], opened)

    def then(self, command: str) -> "_Plan":
        return self._replace(commands=(*self.commands, command))


def oracle_plan(env: Household) -> list[str]:
    """A shortest list of commands that wins from here; empty where the goal holds.  NoPlan where none exists."""
    if env.goal_reached():
        return []
    plans = (done for start in _freed(env) for done in _finish(env, *start))
    best = min(plans, key=lambda plan: (len(plan.commands), plan.commands), default=None)
    if best is None:
        raise NoPlan(f"{env.task_id}: no plan reaches the goal {env.goal!r}")
    return list(best.commands)


def oracle_distance(env: Household) -> int:
    """Number of commands of a shortest plan.

    In official games a few things (a paper towel roll) can be taken and fit no receptacle, so that whoever holds one is
    stuck.  Such a state counts as one command further than the same state with empty hands: taking the thing is then a
    step back, and what follows is judged as before.
    """
    try:
        return len(oracle_plan(env))
    except NoPlan:
        if env.held < 0:
            raise
        freed = env.clone()
        freed.held = -1
        return 1 + len(oracle_plan(freed))


def progress(env_before: Household, action: str) -> float:
    """+1, 0 or -1: the action shortens the plan, leaves its length, or lengthens it.  `env_before` is not changed."""
    before, after = oracle_distance(env_before), env_before.clone()
    after.step(action)
    change = before - oracle_distance(after)
    return float((change > 0) - (change < 0))


def _freed(env: Household) -> Iterator[tuple[_Plan, int]]:
    """Plans that leave the hands empty or with an object of the goal, and that object (-1 for empty hands)."""
    here = _Plan((), env.place, env.opened)
    if env.held < 0 or env.held in env.world.wanted:
        yield here, env.held
        return
    thing = env.world.objects[env.held]
    for r in env.world.fits[env.held]:
        yield here.visit(env.world, r, True).then(f"move {thing} to {env.world.receptacles[r]}"), -1


def _finish(env: Household, plan: _Plan, held: int) -> Iterator[_Plan]:
    world, goal = env.world, env.world.goal
    targets = [r for r, kind in enumerate(world.receptacle_types) if kind == goal.place]
    if goal.task_type == TWO:
        for target in targets:
            yield from _bring_two(env, plan, held, target)
        return
    for o, source, in_hand in _in_hand(env, plan, held):
        if goal.task_type == LIGHT:
            for r, inside in enumerate(env.contents):
                for lamp in world.lamps.intersection(inside):
                    lit = in_hand.visit(world, r, False)
                    yield lit if env.toggled >> lamp & 1 else lit.then(f"use {world.objects[lamp]}")
            continue
        # In some official games an object lies in two receptacles at once and stays in the one it is not taken from.
        still_there = any(o in env.contents[target] for target in targets if target != source)
        for treated in _treat(env, in_hand, o):
            if still_there:
                yield treated
                continue
            for target in targets:
                if target in world.fits[o]:
                    yield _deliver(env, treated, o, target)


def _in_hand(env: Household, plan: _Plan, held: int) -> Iterator[tuple[int, int, _Plan]]:
    """(object, receptacle it is taken from or -1, plan) for every way to hold an object of the goal."""
    if held >= 0:
        yield held, -1, plan
        return
    for r, inside in enumerate(env.contents):
        for o in env.world.wanted.intersection(inside):
            if o in env.world.abilities["pickupable"]:
                yield o, r, _fetch(env, plan, o, r)


def _fetch(env: Household, plan: _Plan, o: int, r: int) -> _Plan:
    return plan.visit(env.world, r, True).then(f"take {env.world.objects[o]} from {env.world.receptacles[r]}")


def _deliver(env: Household, plan: _Plan, o: int, r: int) -> _Plan:
    return plan.visit(env.world, r, True).then(f"move {env.world.objects[o]} to {env.world.receptacles[r]}")


def _treat(env: Household, plan: _Plan, o: int) -> Iterator[_Plan]:
    treatment = env.world.goal.treatment
    if treatment is None or env.treated(o):
        yield plan
        return
    verb, appliance = treatment
    if o in env.world.abilities[verb + "able"]:
        for r, kind in enumerate(env.world.receptacle_types):
            if kind == appliance:
                command = f"{verb} {env.world.objects[o]} with {env.world.receptacles[r]}"
                yield plan.visit(env.world, r, False).then(command)


def _bring_two(env: Household, plan: _Plan, held: int, target: int) -> Iterator[_Plan]:
    world = env.world
    there = world.wanted.intersection(env.contents[target])
    elsewhere = [
        (o, r)
        for r, inside in enumerate(env.contents)
        for o in world.wanted.intersection(inside)
        if o not in there and o in world.abilities["pickupable"]
    ]
    missing = 2 - len(there)
    if held >= 0:
        if target not in world.fits[held]:
            return
        plan, missing = _deliver(env, plan, held, target), missing - 1
    for chosen in permutations(elsewhere, max(0, missing)):
        if len({o for o, _ in chosen}) == len(chosen) and all(target in world.fits[o] for o, _ in chosen):
            done = plan
            for o, r in chosen:
                done = _deliver(env, _fetch(env, done, o, r), o, target)
            yield done
