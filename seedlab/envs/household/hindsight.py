"""The scripted analyzer: a hindsight skill from a transcript alone.

Skills are one or two regular sentences of at most thirty words, so that a very small policy can learn to write and to
follow them.  A success yields the workflow with the decisive location.  A failure yields a correction (where the
object was seen and what to do next) or, where it was never seen, the places that are not worth another look.
"""

from __future__ import annotations

from seedlab.envs.household.beliefs import Beliefs, kind_of, read_transcript
from seedlab.envs.household.goals import LIGHT, TWO, Goal, parse_goal

MOST_WORDS = 30  # with punctuation marks counted as words


def hindsight_skill(goal: str, observations: list[str], actions: list[str], success: bool) -> str:
    """The skill for a finished transcript.

    `goal` is the task sentence, `observations[0]` the opening text and `observations[i + 1]` the answer to
    `actions[i]`; the last answer may be missing.  ValueError if `goal` is no task sentence of this environment.
    """
    wanted = parse_goal(goal)
    beliefs = read_transcript(observations, actions)
    found = _found(beliefs, wanted, success)
    if wanted.task_type == LIGHT:
        return _light(beliefs, wanted, found, success)
    if not found:
        return _avoid(beliefs, wanted.object)
    if wanted.task_type == TWO:
        return _two(beliefs, wanted, found, success)
    item, place = found[0]
    treatment = ""
    if wanted.treatment:
        verb, appliance = wanted.treatment
        done = beliefs.treated.get(item, ("", ""))
        used = done[1] if success and done[0] == verb else (beliefs.of_kind(appliance) or [f"the {appliance}"])[0]
        treatment = f"{verb} it with {used} , "
    return f"{_begin(wanted, item, place, success)} , {treatment}then move it to {_target(beliefs, wanted, item, success)} ."


def _found(beliefs: Beliefs, goal: Goal, success: bool) -> list[tuple[str, str]]:
    """(object, where it was first seen) of the goal's objects, the decisive ones first."""
    seen = [(o, r) for o, r in beliefs.first_seen.items() if kind_of(o) == goal.object]
    # What already lay at a place of the goal's type is no help unless nothing else was seen.
    seen.sort(key=lambda pair: kind_of(pair[1]) == goal.place and goal.task_type != LIGHT)
    if success:
        last = beliefs.holding if goal.task_type == LIGHT else next(reversed(beliefs.delivered), None)
        if goal.task_type == TWO and last:
            together = [o for o, r in beliefs.delivered.items() if r == beliefs.delivered[last]]
            seen.sort(key=lambda pair: pair[0] not in together)
        else:
            seen.sort(key=lambda pair: pair[0] != last)
    return seen


def _begin(goal: Goal, item: str, place: str, success: bool) -> str:
    where = f"the {goal.object} is in {place} . "
    return where + (f"take {item} from {place}" if success else f"go there first , take {item}")


def _target(beliefs: Beliefs, goal: Goal, item: str, success: bool) -> str:
    if success and item in beliefs.delivered:
        return beliefs.delivered[item]
    return (beliefs.of_kind(goal.place) or [f"the {goal.place}"])[0]


def _avoid(beliefs: Beliefs, thing: str, before: str = "") -> str:
    """`before`, then the places that were looked into without finding `thing`, as many as fit, then where to look.

    Without any such place only the advice to look remains.
    """
    shut = [r for r, closed in beliefs.closed.items() if closed and r not in beliefs.contents]
    look = f"open {shut[0]} and look in other places ." if shut else "look in other places ."
    empty = list(beliefs.contents)
    text = f"{before}the {thing} was not found . {look}"
    for count in range(1, len(empty) + 1):
        listed = " , ".join(empty[: count - 1]) + (" or " if count > 1 else "") + empty[count - 1]
        longer = f"{before}the {thing} is not in {listed} . {look}"
        if len(longer.split()) > MOST_WORDS:
            break
        text = longer
    return text


def _light(beliefs: Beliefs, goal: Goal, found: list[tuple[str, str]], success: bool) -> str:
    lamps = [(o, r) for o, r in beliefs.first_seen.items() if kind_of(o) == goal.place]
    lamps.sort(key=lambda pair: pair[0] not in beliefs.used)
    if not found:
        known = f"the {goal.place} is in {lamps[0][1]} . " if lamps else ""
        return _avoid(beliefs, goal.object, known)
    use = f"use {lamps[0][0]} in {lamps[0][1]}" if lamps else f"look for the {goal.place}"
    return f"{_begin(goal, *found[0], success)} , then {use} ."


def _two(beliefs: Beliefs, goal: Goal, found: list[tuple[str, str]], success: bool) -> str:
    target = _target(beliefs, goal, found[0][0], success)
    if len(found) == 1:
        where = f"one {goal.object} is in {found[0][1]} . go there first , take it , "
        return f"{where}move it to {target} , then look for another {goal.object} ."
    go = "" if success else "go there first , "
    return f"one {goal.object} is in {found[0][1]} , one is in {found[1][1]} . {go}take both and move them to {target} ."
