"""A game without its state: names, places and abilities as plain indices, numbered as the official engine does.

Everything that never changes during an episode is computed here once, so that a step touches integers only.
Objects and receptacles are indexed in the order of their ids, which is the order in which texts list them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Iterable

from seedlab.envs.household.goals import Goal
from seedlab.envs.household.texts import listing


@dataclass
class Facts:
    """A game as facts over ids, all in lower case.  `abilities` are PDDL predicates such as `cleanable`.

    `ids` lists every id that occurs in a fact: numbers depend on it.
    """

    sentence: str
    goal: Goal
    receptacle_types: dict[str, str]
    receptacle_places: dict[str, str]
    openable: set[str]
    object_types: dict[str, str]
    inside: list[tuple[str, str]]
    object_places: list[tuple[str, str]]
    abilities: dict[str, set[str]]
    can_contain: set[tuple[str, str]]
    start: str
    cool: set[str] = field(default_factory=set)
    carried_inside: list[tuple[str, str]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)


def display_names(ids: Iterable[str]) -> dict[str, str]:
    """Shown name of each id: the part before `_bar_`, and numbers that fall from the count of its kind to 1 in id order.

    An id that contains `basin` shows as `<part>basin`.
    """

    def kind(identity: str) -> str | None:
        if "_bar_" not in identity:
            return None
        return identity.split("_bar_", 1)[0] + ("basin" if "basin" in identity else "")

    ordered = sorted(ids)
    left = Counter(kind(i) for i in ordered)
    names = {}
    for identity in ordered:
        name = kind(identity)
        if name is None:
            names[identity] = f"{identity} "
            continue
        names[identity] = f"{name} {left[name]}"
        left[name] -= 1
    return names


@dataclass(frozen=True, eq=False)
class World:
    """See the module.  `places[r]` is the place of receptacle r, `at_place[p]` the receptacles of place p."""

    goal: Goal
    sentence: str
    intro: str
    receptacles: tuple[str, ...]
    receptacle_types: tuple[str, ...]
    receptacle_index: dict[str, int]
    openable: tuple[bool, ...]
    places: tuple[int, ...]
    at_place: tuple[tuple[int, ...], ...]
    go_commands: tuple[tuple[str, ...], ...]
    objects: tuple[str, ...]
    object_types: tuple[str, ...]
    object_index: dict[str, int]
    abilities: dict[str, frozenset[int]]
    fits: tuple[frozenset[int], ...]  # receptacles that may hold the object
    carried_text: dict[int, str]  # what an object that can carry others holds
    wanted: frozenset[int]  # objects of the goal's type
    lamps: frozenset[int]
    start_place: int
    start_contents: tuple[tuple[int, ...], ...]
    start_object_places: tuple[frozenset[int], ...]
    start_cool: frozenset[int]


_ABILITIES = ("pickupable", "toggleable", "cleanable", "heatable", "coolable", "sliceable", "isreceptacleobject")


def build_world(facts: Facts) -> World:
    """Index the facts of a game.  Facts about ids of unknown type are kept where texts or commands show them."""
    names = display_names(facts.ids)
    receptacles = sorted(facts.receptacle_places)
    number = {r: i for i, r in enumerate(receptacles)}
    seen = {o for o, _ in facts.inside} | {o for o, _ in facts.object_places} | set(facts.object_types)
    seen |= {i for pair in facts.carried_inside for i in pair}
    objects = sorted(seen - set(receptacles))
    index = {o: i for i, o in enumerate(objects)}
    places = sorted(set(facts.receptacle_places.values()) | {p for _, p in facts.object_places} | {facts.start})
    place_index = {p: i for i, p in enumerate(places)}
    place_of = tuple(place_index[facts.receptacle_places[r]] for r in receptacles)
    at_place = tuple(tuple(i for i, p in enumerate(place_of) if p == here) for here in range(len(places)))
    shown = tuple(names[r] for r in receptacles)
    types = tuple(facts.receptacle_types.get(r, "") for r in receptacles)
    object_types = tuple(facts.object_types.get(o, "") for o in objects)
    contents: list[list[int]] = [[] for _ in receptacles]
    for o, r in facts.inside:
        if index[o] not in contents[number[r]]:
            contents[number[r]].append(index[o])
    object_places: list[set[int]] = [set() for _ in objects]
    for o, p in facts.object_places:
        object_places[index[o]].add(place_index[p])
    abilities = {
        ability: frozenset(index[o] for o in facts.abilities.get(ability, ()) if o in index) for ability in _ABILITIES
    }
    goal = facts.goal
    lamp = goal.place if goal.task_type == "look_at_obj_in_light" else None
    start = place_index[facts.start]
    facing = [shown[r] for r in at_place[start]]
    view = (
        f"You are facing the {listing(facing)}. Next to it, you see nothing."
        if facing
        else f"You are in the middle of a room. Looking quickly around you, you see {listing([f'a {n}' for n in shown])}."
    )
    return World(
        goal=goal,
        sentence=facts.sentence,
        intro=f"-= Welcome to TextWorld, ALFRED! =-\n\n{view}\n\nYour task is to: {facts.sentence}",
        receptacles=shown,
        receptacle_types=types,
        receptacle_index={n: i for i, n in enumerate(shown)},
        openable=tuple(r in facts.openable for r in receptacles),
        places=place_of,
        at_place=at_place,
        go_commands=tuple(
            tuple(f"go to {n}" for n, p in zip(shown, place_of) if p != here) for here in range(len(places))
        ),
        objects=tuple(names[o] for o in objects),
        object_types=object_types,
        object_index={names[o]: i for i, o in enumerate(objects)},
        abilities=abilities,
        fits=tuple(
            frozenset(r for r, kind in enumerate(types) if (kind, object_kind) in facts.can_contain)
            for object_kind in object_types
        ),
        carried_text=_carried_text(facts, names, index, abilities["isreceptacleobject"]),
        wanted=frozenset(i for i, kind in enumerate(object_types) if kind == goal.object),
        lamps=frozenset(i for i, kind in enumerate(object_types) if kind == lamp and i in abilities["toggleable"]),
        start_place=start,
        start_contents=tuple(tuple(sorted(c)) for c in contents),
        start_object_places=tuple(frozenset(p) for p in object_places),
        start_cool=frozenset(index[o] for o in facts.cool if o in index),
    )


def _carried_text(facts: Facts, names, index, carriers) -> dict[int, str]:
    held: dict[int, list[str]] = {o: [] for o in carriers}
    for inner, outer in sorted(set(facts.carried_inside)):
        if index[outer] in held:
            held[index[outer]].append(f"a {names[inner]}")
    return {o: listing(inner) for o, inner in held.items()}
