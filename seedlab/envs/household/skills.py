"""What a hindsight skill says, read back from its text, and how far two skills agree."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLACE = r"(\w+ \d+)"
_IS_IN = re.compile(rf"\bthe (\w+) is (?:in|on) {_PLACE}")
_ONE_IN = re.compile(rf"\bone (\w+) is (?:in|on) {_PLACE}")
_OTHER_IN = re.compile(rf", one is (?:in|on) {_PLACE}")
_NOT_IN = re.compile(r"\bthe (\w+) is not (?:in|on) ([^.]*)")
_TAKE = re.compile(r"\btake (?:(\w+ \d+)|both|it)")
_TREAT = re.compile(rf"\b(clean|heat|cool) (?:it|\w+ \d+) with {_PLACE}")
_MOVE = re.compile(r"\bmove (?:it|them|both|\w+ \d+) to (?:the )?(\w+(?: \d+)?)")
_USE = re.compile(rf"\buse (\w+ \d+) (?:in|on|at) {_PLACE}")
_LOOK_FOR = re.compile(r"\blook for (?:the|another) (\w+)")


@dataclass(frozen=True)
class SkillFacts:
    """`locations` are where the goal's object is (two of them in two-object tasks), `excluded` where it is not.

    `workflow` lists what to do in order, e.g. ("take", "heat microwave 1", "move shelf 1").  Unknown parts are empty.
    """

    object: str = ""
    item: str = ""
    locations: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    lamp: str = ""
    lamp_location: str = ""
    target: str = ""
    workflow: tuple[str, ...] = ()

    @property
    def location(self) -> str:
        return self.locations[0] if self.locations else ""


@dataclass(frozen=True)
class SkillAgreement:
    """`location`: the same places of the object and the lamp, or the same excluded places where none is known."""

    exact: bool
    location: bool
    workflow: bool


def normal_form(skill: str) -> str:
    """Lower case, single spaces, punctuation apart."""
    return " ".join(re.sub(r"([.,:;])", r" \1 ", skill.lower()).split())


def skill_facts(skill: str) -> SkillFacts:
    """Read a skill of :mod:`.hindsight`'s form; text of any other form gives the parts that it shares with it."""
    text = normal_form(skill)
    thing, locations, lamp, lamp_location = "", [], "", ""
    for name, place in _IS_IN.findall(text):
        if name.endswith("lamp"):
            lamp, lamp_location = name, place
        else:
            thing = thing or name
            locations.append(place)
    one = _ONE_IN.search(text)
    if one:
        thing = thing or one.group(1)
        locations.append(one.group(2))
        locations += _OTHER_IN.findall(text)
    excluded: list[str] = []
    for name, places in _NOT_IN.findall(text):
        thing = thing or name
        excluded += re.findall(_PLACE, places)
    steps: list[tuple[int, str]] = []
    item, target = "", ""
    for found in _TAKE.finditer(text):
        item = item or found.group(1) or ""
        steps.append((found.start(), "take"))
    steps += [(f.start(), f"{f.group(1)} {f.group(2)}") for f in _TREAT.finditer(text)]
    for found in _MOVE.finditer(text):
        target = target or found.group(1)
        steps.append((found.start(), f"move {found.group(1)}"))
    for found in _USE.finditer(text):
        lamp, lamp_location = found.group(1).split()[0], found.group(2)
        steps.append((found.start(), f"use {found.group(1)}"))
    steps += [(f.start(), f"look {f.group(1)}") for f in _LOOK_FOR.finditer(text)]
    return SkillFacts(
        object=thing, item=item, locations=tuple(locations), excluded=tuple(excluded), lamp=lamp,
        lamp_location=lamp_location, target=target, workflow=tuple(step for _, step in sorted(steps)),
    )  # fmt: skip


def skill_agreement(own: str, scripted: str) -> SkillAgreement:
    """How far a policy's own skill agrees with the scripted one for the same trajectory."""
    mine, right = skill_facts(own), skill_facts(scripted)

    def places(facts: SkillFacts):
        known = (sorted(facts.locations), facts.lamp_location)
        return known if any(known) else sorted(facts.excluded)

    return SkillAgreement(
        exact=normal_form(own) == normal_form(scripted),
        location=mine.object == right.object and places(mine) == places(right),
        workflow=mine.workflow == right.workflow,
    )
