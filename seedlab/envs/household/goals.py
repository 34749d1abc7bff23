"""The six task types: what each asks for, and its two official sentences."""

from __future__ import annotations

import re
from dataclasses import dataclass

SIMPLE = "pick_and_place_simple"
LIGHT = "look_at_obj_in_light"
CLEAN = "pick_clean_then_place_in_recep"
HEAT = "pick_heat_then_place_in_recep"
COOL = "pick_cool_then_place_in_recep"
TWO = "pick_two_obj_and_place"
TASK_TYPES = (SIMPLE, LIGHT, CLEAN, HEAT, COOL, TWO)

# What has to be done to the object on its way: the verb of the command and the type that does it.
TREATMENT = {CLEAN: ("clean", "sinkbasin"), HEAT: ("heat", "microwave"), COOL: ("cool", "fridge")}

SENTENCES = {
    SIMPLE: ("put a {object} in {place}.", "put some {object} on {place}."),
    LIGHT: ("look at {object} under the {place}.", "examine the {object} with the {place}."),
    CLEAN: ("put a clean {object} in {place}.", "clean some {object} and put it in {place}."),
    HEAT: ("put a hot {object} in {place}.", "heat some {object} and put it in {place}."),
    COOL: ("put a cool {object} in {place}.", "cool some {object} and put it in {place}."),
    TWO: ("put two {object} in {place}.", "find two {object} and put them in {place}."),
}
_PATTERNS = [
    (kind, re.compile(text.rstrip(".").format(object=r"(\w+)", place=r"(\w+)") + r"\.?$"))
    for kind, texts in SENTENCES.items()
    for text in texts
]


@dataclass(frozen=True)
class Goal:
    """`object` and `place` are lower-case type names; in LIGHT `place` is the kind of lamp."""

    task_type: str
    object: str
    place: str

    @property
    def treatment(self) -> tuple[str, str] | None:
        return TREATMENT.get(self.task_type)

    @property
    def count(self) -> int:
        return 2 if self.task_type == TWO else 1


def parse_goal(sentence: str) -> Goal:
    """The goal of a task sentence (with or without its full stop); ValueError for any other text."""
    text = " ".join(sentence.lower().split()).replace(" .", ".")
    for kind, pattern in _PATTERNS:
        found = pattern.match(text)
        if found:
            return Goal(kind, found.group(1), found.group(2))
    raise ValueError(f"{sentence!r} is not one of the task sentences of the household environment")
