"""Generated rooms: a task id and the room settings determine everything, by a hash and never by global randomness.

A room is one of ALFWorld's four kinds.  It holds the goal's receptacle, what the task needs (microwave, fridge, sink
basin, lamp), places where the object can be, and distractors.  The object starts in a receptacle of another type than
the goal's, so a task is never solved at the start and always solvable.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

from seedlab.envs.household import names
from seedlab.envs.household.goals import CLEAN, COOL, HEAT, LIGHT, SENTENCES, TWO, Goal
from seedlab.envs.household.world import Facts


@dataclass(frozen=True)
class RoomKind:
    """Receptacle types with the most of each that a room has, and the object types found in such rooms."""

    receptacles: dict[str, int]
    objects: tuple[str, ...]


def _kind(receptacles: str, objects: str) -> RoomKind:
    pairs = (item.split("*") for item in receptacles.split())
    return RoomKind({name: int(most) for name, most in pairs}, tuple(objects.split()))


KINDS = {
    "kitchen": _kind(
        "Cabinet*4 CounterTop*2 Drawer*3 Fridge*1 Microwave*1 SinkBasin*1 StoveBurner*2 CoffeeMachine*1 GarbageCan*1 "
        "DiningTable*1 Shelf*2 SideTable*1",
        "Apple Bowl Bread ButterKnife Cup DishSponge Egg Fork Glassbottle Kettle Knife Ladle Lettuce Mug Pan PepperShaker "
        "Plate Pot Potato SaltShaker SoapBottle Spatula Spoon Tomato Vase WineBottle",
    ),
    "bedroom": _kind(
        "Bed*1 Desk*1 Drawer*4 Dresser*1 Shelf*3 SideTable*2 GarbageCan*1 LaundryHamper*1 Safe*1 ArmChair*1 Cabinet*1",
        "AlarmClock BaseballBat BasketBall Book Bowl Box CD CellPhone Cloth CreditCard KeyChain Laptop Mug Pen Pencil "
        "Pillow Statue TennisRacket TissueBox Vase Watch",
    ),
    "living": _kind(
        "Sofa*1 ArmChair*2 SideTable*2 Drawer*3 CoffeeTable*1 DiningTable*1 Shelf*2 Dresser*1 TVStand*1 Cabinet*2 "
        "GarbageCan*1 Ottoman*1 Safe*1",
        "Book Bowl Box Candle CellPhone CreditCard KeyChain Laptop Newspaper Pen Pencil Pillow Plate RemoteControl Statue "
        "TissueBox Vase Watch WateringCan",
    ),
    "bathroom": _kind(
        "BathtubBasin*1 Cabinet*3 CounterTop*1 Drawer*3 SinkBasin*1 Toilet*1 ToiletPaperHanger*1 HandTowelHolder*1 "
        "TowelHolder*1 GarbageCan*1 Shelf*2 Cart*1 SideTable*1",
        "Candle Cloth DishSponge HandTowel Plunger SoapBar SoapBottle SprayBottle TissueBox ToiletPaper Towel",
    ),
}
_LAMP_STANDS = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable")
_NEEDS = {CLEAN: "SinkBasin", HEAT: "Microwave", COOL: "Fridge"}
_ABLE = {CLEAN: names.CLEANABLE, HEAT: names.HEATABLE, COOL: names.COOLABLE}
_ABILITY_TABLES = {
    "toggleable": names.TOGGLEABLE,
    "cleanable": names.CLEANABLE,
    "heatable": names.HEATABLE,
    "coolable": names.COOLABLE,
    "sliceable": names.SLICEABLE,
    "isreceptacleobject": names.CARRIERS,
}


def room_kinds(task_type: str, thing: str, place: str) -> list[str]:
    """Kinds of room in which the task can be posed: the object fits, can be treated, and has somewhere else to start."""
    kinds = []
    for name, kind in KINDS.items():
        if thing not in kind.objects or thing not in _ABLE.get(task_type, kind.objects):
            continue
        if task_type == LIGHT:
            if place == "DeskLamp" and name in ("bedroom", "living") and _sources(kind, thing, place):
                kinds.append(name)
            continue
        need = _NEEDS.get(task_type)
        if place not in kind.receptacles or thing not in names.CONTAINS[place] or place == need:
            continue
        if (need is None or need in kind.receptacles) and _sources(kind, thing, place):
            kinds.append(name)
    return kinds


def _sources(kind: RoomKind, thing: str, place: str) -> list[str]:
    return [r for r in kind.receptacles if r != place and thing in names.CONTAINS[r]]


def combinations(task_type: str) -> list[tuple[str, str]]:
    """All (object, receptacle) pairs of a task type that some room can pose, sorted."""
    places = ("DeskLamp",) if task_type == LIGHT else names.RECEPTACLES
    return [(o, p) for o in names.OBJECTS for p in places if room_kinds(task_type, o, p)]


def generate_facts(
    task_id: str, task_type: str, thing: str, place: str, receptacles: tuple[int, int], distractors: tuple[int, int]
) -> Facts:
    """Facts of the room: receptacles at places of their own, the object(s) of the goal, a lamp, distractors."""
    seed = hashlib.sha256(f"{task_id}|{list(receptacles)}|{list(distractors)}".encode()).digest()
    rng = random.Random(int.from_bytes(seed[:16], "big"))
    kind = KINDS[rng.choice(room_kinds(task_type, thing, place))]
    types = _choose_receptacles(rng, kind, task_type, thing, place, rng.randint(*receptacles))
    placed: list[tuple[str, int]] = []  # (object type, index into types)
    sources = [i for i, r in enumerate(types) if r != place and thing in names.CONTAINS[r]]
    for _ in range(2 if task_type == TWO else 1):
        placed.append((thing, rng.choice(sources)))
    if task_type == LIGHT:
        placed.append((place, rng.choice([i for i, r in enumerate(types) if r in _LAMP_STANDS])))
    homes = {o: [i for i, r in enumerate(types) if o in names.CONTAINS[r]] for o in kind.objects if o != thing}
    others = [o for o, at in homes.items() if at]
    for _ in range(rng.randint(*distractors) if others else 0):
        other = rng.choice(others)
        placed.append((other, rng.choice(homes[other])))
    sentence = rng.choice(SENTENCES[task_type]).format(object=thing.lower(), place=place.lower())
    return _facts(Goal(task_type, thing.lower(), place.lower()), sentence, types, placed)


def _choose_receptacles(rng: random.Random, kind: RoomKind, task_type: str, thing: str, place: str, size: int) -> list[str]:
    """`size` receptacle types (with repeats), among them what the task needs and at least two possible sources."""
    left = dict(kind.receptacles)
    chosen: list[str] = []

    def add(name: str) -> None:
        left[name] -= 1
        if not left[name]:
            del left[name]
        chosen.append(name)

    if task_type == LIGHT:
        add(rng.choice([r for r in _LAMP_STANDS if r in left]))
    else:
        add(place)
    if task_type in _NEEDS:
        add(_NEEDS[task_type])
    sources = _sources(kind, thing, place)
    while sum(r in sources for r in chosen) < 2 and any(r in left for r in sources):
        add(rng.choice([r for r in sources if r in left]))
    while len(chosen) < size and left:
        pool = [r for r, most in left.items() for _ in range(most)]
        add(rng.choice(pool))
    return chosen


def _facts(goal: Goal, sentence: str, types: list[str], placed: list[tuple[str, int]]) -> Facts:
    """Facts in the official id form, so that numbers and order come out as the official engine's."""
    receptacles = [_identity(name, number) for name, number in _numbered(types)]
    objects = [_identity(name, number) for name, number in _numbered([name for name, _ in placed])]
    places = [f"loc_bar_{i + 1:02d}" for i in range(len(types))]
    start = "loc_bar_00"
    object_types = {o: name.lower() for o, (name, _) in zip(objects, placed)}
    by_type: dict[str, set[str]] = {}
    for o, (name, _) in zip(objects, placed):
        by_type.setdefault(name, set()).add(o)
    abilities = {
        ability: set().union(*(ids for name, ids in by_type.items() if name in table))
        for ability, table in _ABILITY_TABLES.items()
    }
    abilities["pickupable"] = {o for name, ids in by_type.items() if name in names.OBJECTS for o in ids}
    return Facts(
        sentence=sentence,
        goal=goal,
        receptacle_types={r: name.lower() for r, name in zip(receptacles, types)},
        receptacle_places=dict(zip(receptacles, places)),
        openable={r for r, name in zip(receptacles, types) if name in names.OPENABLE},
        object_types=object_types,
        inside=[(o, receptacles[i]) for o, (_, i) in zip(objects, placed)],
        object_places=[(o, places[i]) for o, (_, i) in zip(objects, placed)],
        abilities=abilities,
        can_contain={(r.lower(), o.lower()) for r in set(types) for o in names.CONTAINS[r]},
        start=start,
        ids={*receptacles, *objects, *places, start},
    )


def _numbered(types: list[str]) -> list[tuple[str, int]]:
    count: dict[str, int] = {}
    out = []
    for name in types:
        count[name] = count.get(name, 0) + 1
        out.append((name, count[name]))
    return out


def _identity(name: str, number: int) -> str:
    # A basin's id ends in its full name: the shown name is the first part followed by "basin".
    if name.endswith("Basin"):
        return f"{name[: -len('Basin')]}_bar_{number:02d}_bar_{name}".lower()
    return f"{name}_bar_{number:02d}".lower()
