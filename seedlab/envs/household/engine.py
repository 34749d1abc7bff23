"""The household engine: ALFWorld's observable protocol on integers and small tuples.

Texts, admissible commands (set and order) and `won` follow the official engine, with its peculiarities: an unlisted
command answers "Nothing happens.", receptacles that share a place cannot be left for one another, a lamp reports
"turn on" each time, only the object in hand can be examined, and slicing asks only for a knife in hand.
"""

from __future__ import annotations

from seedlab.envs.base import step_result
from seedlab.envs.household.goals import LIGHT, TWO
from seedlab.envs.household.texts import HELP, NOTHING_HAPPENS, describe, listing
from seedlab.envs.household.world import World
from seedlab.envs.protocol import StepResult

# verb: (ability that the object needs, types of the receptacle that does it)
_APPLIANCES = {
    "clean": ("cleanable", ("sinkbasin", "sink")),
    "heat": ("heatable", ("microwave",)),
    "cool": ("coolable", ("fridge",)),
}
_KNIVES = ("knife", "butterknife")


class Household:
    """One episode.  The mutable state is a place, a held object, bit masks over objects and receptacles, and contents."""

    __slots__ = (
        "world", "task_id", "task_type", "goal", "max_steps", "success_reward", "steps", "done", "won",
        "place", "held", "opened", "contents", "object_places", "left", "clean", "hot", "cool", "sliced", "toggled",
    )  # fmt: skip

    def __init__(self, world: World, task_id: str, max_steps: int, success_reward: float):
        self.world, self.task_id, self.task_type = world, task_id, world.goal.task_type
        self.goal, self.max_steps, self.success_reward = world.sentence, max_steps, success_reward
        self.reset()

    def reset(self) -> str:
        """Back to the start; returns the opening text with the task sentence."""
        world = self.world
        self.steps, self.done, self.won = 0, False, False
        self.place, self.held, self.opened = world.start_place, -1, 0
        self.contents = list(world.start_contents)
        self.object_places = list(world.start_object_places)
        self.left = frozenset()  # (object, receptacle) it was taken from and is not in now
        self.clean = self.hot = self.sliced = self.toggled = 0
        self.cool = sum(1 << o for o in world.start_cool)
        return world.intro

    def step(self, action: str) -> StepResult:
        """Do a command (surrounding white space is ignored).  RuntimeError once the episode is over."""
        if self.done:
            raise RuntimeError(f"{self.task_id}: the episode is over; call reset() before another step")
        observation = self._perform(action.strip())
        admissible = observation is not None
        self.steps += 1
        self.won = self.goal_reached() if admissible else self.won
        text = observation if admissible else NOTHING_HAPPENS
        result = step_result(text, admissible, self.won, self.steps, self.max_steps, self.success_reward)
        self.done = result.done
        return result

    def holding(self) -> str | None:
        """Shown name of the object in hand, e.g. `mug 1`."""
        return None if self.held < 0 else self.world.objects[self.held]

    def clone(self) -> "Household":
        """An independent copy of the episode; only the immutable world is shared."""
        copy = object.__new__(Household)
        for name in Household.__slots__:
            setattr(copy, name, getattr(self, name))
        copy.contents, copy.object_places = list(self.contents), list(self.object_places)
        return copy

    def close(self) -> None:
        """Nothing to release."""

    def admissible(self) -> list[str]:
        """Every command that does something now, in the official (alphabetic) order."""
        world, held = self.world, self.held
        commands = {"help", "inventory", "look", *world.go_commands[self.place]}
        pickupable, toggleable = world.abilities["pickupable"], world.abilities["toggleable"]
        if held >= 0:
            thing = world.objects[held]
            commands.add(f"examine {thing}")
        for r in world.at_place[self.place]:
            name = world.receptacles[r]
            commands.add(f"examine {name}")
            accessible = self._accessible(r)
            if world.openable[r]:
                commands.add(f"close {name}" if accessible else f"open {name}")
            for o in self.contents[r]:
                if o in toggleable:
                    commands.add(f"use {world.objects[o]}")
                if accessible and held < 0 and o in pickupable:
                    commands.add(f"take {world.objects[o]} from {name}")
            if held >= 0:
                if accessible and r in world.fits[held]:
                    commands.add(f"move {thing} to {name}")
                for verb, (ability, types) in _APPLIANCES.items():
                    if held in world.abilities[ability] and world.receptacle_types[r] in types:
                        commands.add(f"{verb} {thing} with {name}")
        if held >= 0 and world.object_types[held] in _KNIVES:
            for o in world.abilities["sliceable"]:
                if self.place in self.object_places[o]:
                    commands.add(f"slice {world.objects[o]} with {thing}")
        return sorted(commands)

    def _accessible(self, r: int) -> bool:
        return not self.world.openable[r] or bool(self.opened >> r & 1)

    def _here(self, name: str) -> int | None:
        """Index of a receptacle at the agent's place; None for any other text."""
        r = self.world.receptacle_index.get(name)
        return r if r is not None and self.world.places[r] == self.place else None

    def _perform(self, command: str) -> str | None:
        """Change the state and return the feedback, or None where the command is not admissible."""
        verb, _, rest = command.partition(" ")
        if not rest:
            return self._perform_word(verb) if verb == command else None
        if verb == "go":
            return self._go(rest[3:]) if rest.startswith("to ") else None
        if verb in ("open", "close"):
            return self._open_or_close(rest, verb == "open")
        if verb == "examine":
            return self._examine(rest)
        if verb == "use":
            return self._use(rest)
        if verb == "take":
            return self._take(*_split(rest, " from "))
        if verb == "move":
            return self._move(*_split(rest, " to "))
        if verb == "slice":
            return self._slice(*_split(rest, " with "))
        if verb in _APPLIANCES:
            return self._treat(verb, *_split(rest, " with "))
        return None

    def _perform_word(self, word: str) -> str | None:
        if word == "look":
            return self._look()
        if word == "inventory":
            held = self.holding()
            return "You are not carrying anything." if held is None else f"You are carrying: a {held}."
        return HELP if word == "help" else None

    def _look(self) -> str:
        world = self.world
        here = world.at_place[self.place]
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        beside = [
            f"a {world.objects[o]}"
            for o, r in sorted(self.left)
            if world.places[r] == self.place and self.place in self.object_places[o]
        ]
        return f"You are facing the {listing([world.receptacles[r] for r in here])}. Next to it, you see {listing(beside)}."

    def _view(self, r: int) -> str:
        world = self.world
        name = world.receptacles[r]
        if not self._accessible(r):
            return f"The {name} is closed."
        inside = listing([f"a {world.objects[o]}" for o in self.contents[r]])
        return f"The {name} is open. In it, you see {inside}." if world.openable[r] else f"On the {name}, you see {inside}."

    def _go(self, name: str) -> str | None:
        r = self.world.receptacle_index.get(name)
        if r is None or self.world.places[r] == self.place:
            return None
        self.place = self.world.places[r]
        return f"You arrive at {name}. {self._view(r)}"

    def _open_or_close(self, name: str, opening: bool) -> str | None:
        r = self._here(name)
        if r is None or not self.world.openable[r] or self._accessible(r) == opening:
            return None
        self.opened ^= 1 << r
        return f"You open the {name}. {self._view(r)}" if opening else f"You close the {name}."

    def _take(self, name: str, source: str) -> str | None:
        o, r = self.world.object_index.get(name), self._here(source)
        if o is None or r is None or self.held >= 0 or o not in self.contents[r]:
            return None
        if o not in self.world.abilities["pickupable"] or not self._accessible(r):
            return None
        self.contents[r] = tuple(x for x in self.contents[r] if x != o)
        self.object_places[o] -= {self.place}
        self.left |= {(o, r)}
        self.held = o
        return f"You pick up the {name} from the {source}."

    def _move(self, name: str, target: str) -> str | None:
        o, r = self.world.object_index.get(name), self._here(target)
        if o is None or o != self.held or r is None or r not in self.world.fits[o] or not self._accessible(r):
            return None
        if o not in self.contents[r]:
            self.contents[r] = tuple(sorted((*self.contents[r], o)))
        self.object_places[o] |= {self.place}
        self.left -= {(o, r)}
        self.held = -1
        return f"You move the {name} to the {target}."

    def _treat(self, verb: str, name: str, appliance: str) -> str | None:
        o, r = self.world.object_index.get(name), self._here(appliance)
        ability, types = _APPLIANCES[verb]
        if o is None or o != self.held or r is None or o not in self.world.abilities[ability]:
            return None
        if self.world.receptacle_types[r] not in types:
            return None
        bit = 1 << o
        if verb == "clean":
            self.clean |= bit
        elif verb == "heat":
            self.hot, self.cool = self.hot | bit, self.cool & ~bit
        else:
            self.cool, self.hot = self.cool | bit, self.hot & ~bit
        return f"You {verb} the {name} using the {appliance}."

    def _use(self, name: str) -> str | None:
        o = self.world.object_index.get(name)
        if o is None or o not in self.world.abilities["toggleable"]:
            return None
        if not any(o in self.contents[r] for r in self.world.at_place[self.place]):
            return None
        self.toggled |= 1 << o
        return f"You turn on the {name}."

    def _slice(self, name: str, knife: str) -> str | None:
        o, k = self.world.object_index.get(name), self.world.object_index.get(knife)
        if o is None or k is None or k != self.held or self.world.object_types[k] not in _KNIVES:
            return None
        if o not in self.world.abilities["sliceable"] or self.place not in self.object_places[o]:
            return None
        self.sliced |= 1 << o
        return f"You sliced the {name} with the {knife}."

    def _examine(self, name: str) -> str | None:
        r = self._here(name)
        if r is not None:
            return self._view(r)
        # The official domain means to show objects in reach too, but a misspelt type there leaves the one in hand.
        o = self.world.object_index.get(name)
        return self._describe(o) if o is not None and o == self.held else None

    def _describe(self, o: int) -> str:
        bits = (self.clean, self.hot, self.cool, self.sliced, self.toggled)
        return describe(self.world.objects[o], self.world.carried_text.get(o), *(bool(mask >> o & 1) for mask in bits))

    def treated(self, o: int) -> bool:
        """Whether object o has the state that the goal asks for."""
        goal = self.world.goal
        if goal.treatment is None:
            return True
        verb = goal.treatment[0]
        mask = self.clean if verb == "clean" else self.hot if verb == "heat" else self.cool
        return bool(mask >> o & 1) and o in self.world.abilities[_APPLIANCES[verb][0]]

    def goal_reached(self) -> bool:
        """Whether the state satisfies the goal, as the official PDDL goals say it."""
        world = self.world
        goal, wanted = world.goal, world.wanted
        if goal.task_type == LIGHT:
            return self.held in wanted and any(
                o in world.lamps and self.toggled >> o & 1 for r in world.at_place[self.place] for o in self.contents[r]
            )
        needed = 2 if goal.task_type == TWO else 1
        for r, kind in enumerate(world.receptacle_types):
            if kind == goal.place and sum(o in wanted and self.treated(o) for o in self.contents[r]) >= needed:
                return True
        return False


def _split(rest: str, word: str) -> tuple[str, str]:
    first, found, second = rest.partition(word)
    return (first, second) if found else ("", "")
