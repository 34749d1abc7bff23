"""What a transcript tells: the knowledge of an agent that has read observations and nothing else.

The scripted expert acts on it and the scripted analyzer writes skills from it; neither sees the environment's state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LIST = re.compile(r"you see (.*?)\.(?:\s|$)")
_VIEW = re.compile(r"(?:on the|the) (\w+ \d+)(?:,| is open\.|\sis closed\.)")
_ITEM = re.compile(r"\ba (\w+ \d+)")


def kind_of(name: str) -> str:
    """`mug` of `mug 1`."""
    return name.split(" ", 1)[0]


def number_of(name: str) -> int:
    return int(name.rsplit(" ", 1)[1])


@dataclass
class Beliefs:
    """`contents[r]` is what was last seen in r, absent while r was never looked into.  `first_seen` is where each
    object was when it was first noticed, which a new attempt will find again."""

    receptacles: list[str] = field(default_factory=list)
    place: str | None = None
    beside: set[str] = field(default_factory=set)  # receptacles that share the place
    holding: str | None = None
    contents: dict[str, list[str]] = field(default_factory=dict)
    closed: dict[str, bool] = field(default_factory=dict)
    first_seen: dict[str, str] = field(default_factory=dict)
    treated: dict[str, tuple[str, str]] = field(default_factory=dict)  # object: (verb, appliance)
    delivered: dict[str, str] = field(default_factory=dict)  # object: where it was last moved to
    used: set[str] = field(default_factory=set)

    def at(self, receptacle: str) -> bool:
        return receptacle == self.place or receptacle in self.beside

    def of_kind(self, kind: str) -> list[str]:
        """Receptacles of a type, by rising number."""
        return sorted((r for r in self.receptacles if kind_of(r) == kind), key=number_of)

    def find(self, kind: str) -> list[tuple[str, str]]:
        """(object, receptacle) of all objects of a type that are believed to lie somewhere."""
        return [(o, r) for r, inside in self.contents.items() for o in inside if kind_of(o) == kind]

    def start(self, observation: str) -> None:
        found = _LIST.search(observation.lower())
        self.receptacles = _ITEM.findall(found.group(1)) if found else []

    def update(self, action: str, observation: str) -> None:
        """Take in the answer to an action."""
        verb, _, rest = action.strip().partition(" ")
        text = observation.lower()
        if text.startswith("nothing happens"):
            target = rest[3:]
            if verb == "go" and self.place and target in self.receptacles and target != self.place:
                self.beside.add(target)  # it shares the place, so one cannot go there
            return
        if verb == "go":
            self.place, self.beside = rest[3:], set()
        if verb in ("go", "open", "close", "examine"):
            self._look_into(text)
        if verb == "close":
            self.closed[rest] = True
        elif verb == "take":
            name, _, source = rest.partition(" from ")
            self.first_seen.setdefault(name, source)
            inside = self.contents.get(source)
            if inside and name in inside:
                inside.remove(name)
            self.holding = name
        elif verb == "move":
            name, _, target = rest.partition(" to ")
            self.contents.setdefault(target, []).append(name)
            self.delivered[name] = target
            self.holding = None
        elif verb in ("clean", "heat", "cool"):
            name, _, appliance = rest.partition(" with ")
            self.treated[name] = (verb, appliance)
        elif verb == "use":
            self.used.add(rest)

    def _look_into(self, text: str) -> None:
        view = _VIEW.search(text)
        if not view:
            return
        receptacle = view.group(1)
        if f"the {receptacle} is closed" in text:
            self.closed[receptacle] = True
            return
        if f"the {receptacle} is open" in text:
            self.closed[receptacle] = False
        found = _LIST.search(text)
        if found:
            self.contents[receptacle] = _ITEM.findall(found.group(1))
            for name in self.contents[receptacle]:
                self.first_seen.setdefault(name, receptacle)


def read_transcript(observations: list[str], actions: list[str]) -> Beliefs:
    """Beliefs after a transcript.  `observations` starts with the opening text; the answer to the last action may lack."""
    beliefs = Beliefs()
    if observations:
        beliefs.start(observations[0])
    for action, answer in zip(actions, observations[1:]):
        beliefs.update(action, answer)
    return beliefs
