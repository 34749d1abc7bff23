"""Command sequences for comparing engines: the official walkthrough, random admissible walks, junk, and a mixture.

A walk is a function of (game, kind, seed, length) and of what the official engine lists, never of our engine, so that a
recorded walk stays valid when our engine changes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from seedlab.errors import UserError

WALKS = ("walkthrough", "random", "junk", "mixed")
LONG = 2000  # characters of the very long command
_SHARE_OF_JUNK = {"walkthrough": 0.0, "random": 0.0, "junk": 0.6, "mixed": 0.35}


class WalkError(UserError, ValueError):
    """An unknown kind of walk; the message lists the known ones."""


def check_walks(names: Sequence[str]) -> tuple[str, ...]:
    """The names themselves; WalkError for an unknown or missing one."""
    unknown = [n for n in names if n not in WALKS]
    if unknown or not names:
        raise WalkError(f"unknown walk {', '.join(unknown) or '(none given)'}; known: {', '.join(WALKS)}")
    return tuple(names)


class Walker:
    """Chooses the commands of one walk.  `walkthrough` is the game's own list of winning commands, maybe empty."""

    def __init__(self, game_key: str, kind: str, seed: int, length: int, walkthrough: Sequence[str]):
        (self.kind,) = check_walks([kind])
        self.left = len(walkthrough) if kind == "walkthrough" else length
        self.script = list(walkthrough) if kind in ("walkthrough", "mixed") else []
        self.rng = random.Random(f"{game_key}|{kind}|{seed}")
        self.stale: list[str] = []  # commands that were possible before
        self.last: str | None = None  # the last one that was possible when it was sent

    def next(self, admissible: Sequence[str]) -> str | None:
        """The next command, or None at the walk's end."""
        if self.left <= 0:
            return None
        self.left -= 1
        if self.rng.random() < _SHARE_OF_JUNK[self.kind]:
            command = self._junk(admissible)
        elif self.script and (self.kind == "walkthrough" or self.rng.random() < 0.5):
            command = self.script.pop(0)
        else:
            command = self.rng.choice(admissible)
        if command in admissible:
            self.last = command
        self.stale = [*self.stale[-40:], *self.rng.sample(admissible, min(4, len(admissible)))]
        return command

    def _junk(self, admissible: Sequence[str]) -> str:
        rng, good = self.rng, self.rng.choice(admissible)
        thing, place = _names(rng, admissible)
        kind = rng.randrange(13)
        if kind == 0:
            return rng.choice((good.upper(), good.capitalize(), good.title()))
        if kind == 1:
            return rng.choice((f"take unicorn 1 from {place}", f"go to {place}0", "examine submarine 7", f"use {thing} 99"))
        if kind == 2:
            return rng.choice((f"put {thing} in/on {place}", f"put {thing} in {place}", f"put {thing} on {place}"))
        if kind == 3:
            return rng.choice(("", " ", "   ", "\n", "\t"))
        if kind == 4:
            return rng.choice((good + "  ", f"  {good}", f"{good}\n", f"\t{good} ", f"{good}\r\n", good + "\u00a0"))
        if kind == 5:
            return (f"{good} " * LONG)[:LONG]
        if kind == 6:
            return good.replace(" ", "  ", 1)
        if kind == 7:
            return good.rsplit(" ", rng.choice((1, 2)))[0]
        if kind == 8:
            return rng.choice(self.stale or ["look around"])
        if kind == 9:
            return f"{good}{rng.choice((chr(10), ';', ',', ' and ', ' '))}{rng.choice(admissible)}"
        if kind == 10:
            return rng.choice((
                f"take {thing} from {place}", f"move {thing} to {place}", f"heat {thing} with {place}",
                f"clean {thing} with {place}", f"cool {thing} with {place}", f"slice {thing} with {thing}",
                f"open {thing}", f"close {place}", f"open {place}", f"use {place}", f"examine {thing}", f"go to {place}",
            ))  # fmt: skip
        if kind == 11 and self.last is not None:
            return self.last  # what has just been done can rarely be done again
        return rng.choice(("geh zum Kühlschrank", "去 冰箱", "{o}", "#intro#", "go to {r}", "\u200blook", "None", "[]", "look.", "0"))


def _names(rng: random.Random, admissible: Sequence[str]) -> tuple[str, str]:
    """An object and a receptacle that the commands name (receptacles where no object is named)."""
    places = [c[len("go to ") :] for c in admissible if c.startswith("go to ")] or ["shelf 1"]
    things = [c.split(" from ")[0][len("take ") :] for c in admissible if c.startswith("take ")]
    things += [c.split(" to ")[0][len("move ") :] for c in admissible if c.startswith("move ")]
    return rng.choice(things or places), rng.choice(places)
