"""Official game files (`game.tw-pddl`): facts out of PDDL, refused where domain, grammar or goal are not the known ones.

No PDDL is interpreted while playing.  The engine implements one domain; a file with any other domain, grammar or goal
shape is refused by name instead of being played wrongly.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from seedlab.envs.household.goals import CLEAN, COOL, HEAT, LIGHT, SIMPLE, TWO, Goal
from seedlab.envs.household.world import Facts, World, build_world
from seedlab.errors import UserError


class GameFileError(UserError, ValueError):
    """A game file or folder is missing, damaged or of an unknown kind; the message names it."""


# Fingerprints of the domain and grammar that ALFWorld released with its games, and of those in its 0.4 package.
_DOMAINS = {"54e29bce2933d7dc", "da18d44ab1bcf831"}
_GRAMMARS = {"5e0be1433cc3300c", "11add5b029b5e88b"}
# Fingerprints of the six goals with their types masked.
_GOALS = {
    "00d81ef4a3bf6f6d": SIMPLE,
    "6d6dd42217df7c9e": LIGHT,
    "b4956e8b1842c6db": CLEAN,
    "bb0d4b9bde1664bc": HEAT,
    "6f3146e19ba0578c": COOL,
    "2b1e3af5ec57b162": TWO,
}
_TASK_LINE = re.compile(r'Your task is to: ([^"\n]*)"')
_FACT = re.compile(r"\((\w+)((?:\s+[^()\s]+)+)\s*\)")
_TYPE = re.compile(r"(\?\w+\s+)(\w+)type\b")
_ABILITIES = ("pickupable", "toggleable", "cleanable", "heatable", "coolable", "sliceable", "isreceptacleobject")
_PAIRS = (
    "receptacletype", "receptacleatlocation", "objecttype", "inreceptacle", "objectatlocation", "cancontain",
    "inreceptacleobject",
)  # fmt: skip
_IGNORED = ("wasinreceptacle", "moveable", "checked", "examined")
_KEYS = ("pddl_domain", "grammar", "pddl_problem")


@dataclass(frozen=True)
class Game:
    """A loaded game; `walkthrough` is the list of winning commands that the file gives, empty where it gives none."""

    path: Path
    world: World
    walkthrough: tuple[str, ...]


def read_game_json(path: Path) -> dict:
    """The content of a game file with its three texts; GameFileError names the file and what is wrong with it."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise GameFileError(f"{path}: no such game file; check env.data and the task id") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise GameFileError(f"{path}: not a JSON game file ({error}); download it again") from None
    missing = [key for key in _KEYS if not isinstance(data, dict) or not isinstance(data.get(key), str)]
    if missing:
        raise GameFileError(f"{path}: not an ALFWorld game file, it lacks {', '.join(missing)}")
    return data


def load_game(path: Path) -> Game:
    """Read one `game.tw-pddl`.  GameFileError names the file and what is wrong with it."""
    data = read_game_json(path)
    check_rules(path, data)
    facts = read_facts(path, data["pddl_problem"], _TASK_LINE.search(data["grammar"]).group(1))
    return Game(Path(path), build_world(facts), tuple(data.get("walkthrough") or ()))


def check_rules(path: Path, data: dict) -> None:
    """Refuse a game whose text grammar or PDDL domain is not the one that the engine implements."""
    grammar = data["grammar"]
    if re.search(r'template\s*::\s*"put \{o\} in/on \{r\}"', grammar):
        raise GameFileError(
            f"{path}: a game from before ALFWorld 0.4, with the command 'put X in/on Y'; "
            "get the current games with `alfworld-download`"
        )
    if not _TASK_LINE.search(grammar):
        raise GameFileError(f"{path}: its grammar has no line 'Your task is to: ...'")
    if fingerprint(_TASK_LINE.sub('"', grammar)) not in _GRAMMARS:
        raise GameFileError(f"{path}: unknown text grammar; only ALFWorld 0.4 games are supported")
    if fingerprint(re.sub(r";[^\n]*", "", data["pddl_domain"])) not in _DOMAINS:
        raise GameFileError(f"{path}: unknown PDDL domain; only ALFWorld's household domain is supported")


def fingerprint(text: str) -> str:
    """Hash of a text up to case and white space."""
    return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:16]


def read_facts(path: Path, problem: str, sentence: str) -> Facts:
    """Facts of a PDDL problem text; ids and types in lower case, as the official engine keeps them."""
    text = problem.lower()
    start, end = text.find("(:init"), text.find("(:goal")
    if start < 0 or end < start:
        raise GameFileError(f"{path}: its PDDL problem has no :init before its :goal")
    by: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for predicate, arguments in _FACT.findall(text[start + len("(:init") : end]):
        by[predicate].append(tuple(arguments.split()))
    known = {*_ABILITIES, *_PAIRS, *_IGNORED, "openable", "atlocation", "iscool"}
    unknown = sorted(set(by) - known)
    if unknown:
        raise GameFileError(f"{path}: initial facts that are not supported: {', '.join(unknown)}")
    bad = [p for p in _PAIRS if any(len(arguments) != 2 for arguments in by[p])]
    if bad or len(by["atlocation"]) != 1:
        raise GameFileError(f"{path}: malformed initial facts ({', '.join(bad) or 'one agent location expected'})")
    return Facts(
        sentence=sentence,
        goal=_read_goal(path, text[end:]),
        receptacle_types={r: _type_name(t) for r, t in by["receptacletype"]},
        receptacle_places=dict(by["receptacleatlocation"]),
        openable={r for (r,) in by["openable"]},
        object_types={o: _type_name(t) for o, t in by["objecttype"]},
        inside=[(o, r) for o, r in by["inreceptacle"]],
        object_places=[(o, p) for o, p in by["objectatlocation"]],
        abilities={ability: {o for (o,) in by[ability]} for ability in _ABILITIES},
        can_contain={(_type_name(r), _type_name(o)) for r, o in by["cancontain"]},
        start=by["atlocation"][0][1],
        cool={o for (o,) in by["iscool"]},
        carried_inside=[(inner, outer) for inner, outer in by["inreceptacleobject"]],
        ids={i for facts in by.values() for arguments in facts for i in arguments},
    )


def _type_name(name: str) -> str:
    return name.removesuffix("type")


def _read_goal(path: Path, goal: str) -> Goal:
    task_type = _GOALS.get(fingerprint(re.sub(r"[()]", " ", _TYPE.sub(r"\1type", goal))))
    if task_type is None:
        raise GameFileError(f"{path}: its goal is none of the six task types")
    types = [name for _, name in _TYPE.findall(goal)]
    thing, place = (types[1], types[0]) if task_type == LIGHT else (types[0], types[1])
    return Goal(task_type, thing, place)
