"""Generated rooms as official game files: what `generate_facts` says, written in the form that ALFWorld loads.

Domain and grammar are ALFWorld's own; they are taken from an installation or from any official game and never shipped.
A file is written only after our own search has solved it, and is read back before it counts.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from seedlab.envs.household.engine import Household
from seedlab.envs.household.games import GameFileError, check_rules, load_game, read_game_json
from seedlab.envs.household.goals import CLEAN, COOL, HEAT, LIGHT, TWO, Goal
from seedlab.envs.household.oracle import oracle_plan
from seedlab.envs.household.world import Facts, build_world

_TASK_LINE = re.compile(r'(Your task is to: )[^"\n]*(")')
_TREATED = {CLEAN: ("cleanable", "isClean"), HEAT: ("heatable", "isHot"), COOL: ("coolable", "isCool")}


@dataclass(frozen=True)
class Rules:
    """PDDL domain and text grammar of ALFWorld 0.4; the grammar's task sentence is replaced for each game."""

    domain: str
    grammar: str

    @classmethod
    def of_game(cls, path: Path) -> "Rules":
        """The rules that an official game file carries.  GameFileError names a file that is none, or of another kind."""
        data = read_game_json(path)
        check_rules(path, data)
        return cls(data["pddl_domain"], data["grammar"])


def goal_text(goal: Goal) -> str:
    """The PDDL goal of a task type, in the shape of the official games."""
    thing, place = f"(objectType {{}} {goal.object}Type)", f"(receptacleType ?r {goal.place}Type)"
    if goal.task_type == LIGHT:
        return (
            "(exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and "
            f"(objectType ?ot {goal.place}Type) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) "
            "(atLocation ?a ?l) (inReceptacle ?ot ?r))) "
            f"(exists (?o - object ?a - agent) (and {thing.format('?o')} (holds ?a ?o)))"
        )
    if goal.task_type == TWO:
        first, second = (f"{thing.format(o)} {place} (inReceptacle {o} ?r)" for o in ("?o1", "?o2"))
        return (
            f"(exists (?r - receptacle) (exists (?o1 - object) (and {first} "
            f"(exists (?o2 - object) (and (not (= ?o1 ?o2)) {second})))))"
        )
    inside = "(inReceptacle ?o ?r)"
    if goal.task_type in _TREATED:
        able, done = _TREATED[goal.task_type]
        wanted = f"({able} ?o) {thing.format('?o')} {place} ({done} ?o) {inside}"
    else:
        wanted = f"{inside} {thing.format('?o')} {place}"
    return f"(exists (?r - receptacle) (exists (?o - object) (and {wanted})))"


def problem_text(facts: Facts, name: str) -> str:
    """The PDDL problem of a room.  Facts stand in sorted order, so that the same room gives the same text."""
    receptacles, things = sorted(facts.receptacle_types), sorted(facts.object_types)
    places = sorted({*facts.receptacle_places.values(), facts.start})
    kinds = sorted({*facts.receptacle_types.values(), *(r for r, _ in facts.can_contain)})
    thing_kinds = sorted({*facts.object_types.values(), *(o for _, o in facts.can_contain), facts.goal.object})
    objects = ["agent1 - agent"]
    for names, kind in ((things, "object"), (receptacles, "receptacle"), (places, "location")):
        objects += [f"{n} - {kind}" for n in names]
    objects += [f"{k}Type - rtype" for k in kinds] + [f"{k}Type - otype" for k in thing_kinds]
    init = [f"(receptacleType {r} {k}Type)" for r, k in sorted(facts.receptacle_types.items())]
    init += [f"(objectType {o} {k}Type)" for o, k in sorted(facts.object_types.items())]
    init += [f"(canContain {r}Type {o}Type)" for r, o in sorted(facts.can_contain)]
    for ability, names in sorted({**facts.abilities, "openable": facts.openable}.items()):
        init += [f"({ability} {n})" for n in sorted(names)]
    init.append(f"(atLocation agent1 {facts.start})")
    init += [f"(inReceptacle {o} {r})" for o, r in sorted(facts.inside)]
    init += [f"(receptacleAtLocation {r} {p})" for r, p in sorted(facts.receptacle_places.items())]
    init += [f"(objectAtLocation {o} {p})" for o, p in sorted(facts.object_places)]
    lines = "\n    ".join
    return (
        f"(define (problem {name})\n  (:domain alfred)\n  (:objects\n    {lines(objects)}\n  )\n"
        f"  (:init\n    {lines(init)}\n  )\n  (:goal (and {goal_text(facts.goal)}))\n)\n"
    )


def game_data(facts: Facts, name: str, rules: Rules) -> dict:
    """The content of a `game.tw-pddl`; its walkthrough is a shortest plan of our own search."""
    grammar, found = _TASK_LINE.subn(lambda m: m.group(1) + facts.sentence + m.group(2), rules.grammar)
    if found != 1:
        raise GameFileError(f"{name}: the grammar has {found} lines 'Your task is to: ...', not one; take another --rules")
    return {
        "pddl_domain": rules.domain, "grammar": grammar, "pddl_problem": problem_text(facts, name), "solvable": True,
        "walkthrough": solve(facts, name),
    }  # fmt: skip


def solve(facts: Facts, name: str) -> list[str]:
    """A plan that wins, proven by playing it."""
    env = Household(build_world(facts), name, 10**6, 1.0)
    plan = oracle_plan(env)
    results = [env.step(command) for command in plan]
    if not results or not results[-1].info.won:
        raise GameFileError(f"{name}: the search found no plan that wins; the room is not written")
    return plan


def write_game(folder: Path, facts: Facts, name: str, rules: Rules) -> Path:
    """`folder`/game.tw-pddl with its traj_data.json, complete or not at all, and read back by our own loader."""
    folder.mkdir(parents=True, exist_ok=True)
    final, partial = folder / "game.tw-pddl", folder / "game.tw-pddl.partial"
    partial.write_text(json.dumps(game_data(facts, name, rules)), encoding="utf-8")
    if load_game(partial).world.intro != build_world(facts).intro:
        raise GameFileError(f"{partial}: read back, the room opens with another text than the one generated")
    (folder / "traj_data.json").write_text(json.dumps(_trajectory_data(facts, name)), encoding="utf-8")
    os.replace(partial, final)
    return final


def _trajectory_data(facts: Facts, name: str) -> dict:
    """What the official loader and its scripted expert read beside the game."""
    goal = facts.goal
    lit = goal.task_type == LIGHT
    return {
        "task_id": name, "task_type": goal.task_type,
        "pddl_params": {
            "object_target": goal.object, "parent_target": "" if lit else goal.place,
            "toggle_target": goal.place if lit else "", "mrecep_target": "", "object_sliced": False,
        },
        "turk_annotations": {"anns": []},
    }  # fmt: skip
