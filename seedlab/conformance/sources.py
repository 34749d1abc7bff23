"""Games to compare: the files of a folder, or generated rooms written in the official form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from seedlab.config.schema import EnvConfig
from seedlab.envs.household.export import Rules, game_data, problem_text, solve
from seedlab.envs.household.family import HouseholdFamily
from seedlab.envs.household.games import GameFileError, load_game
from seedlab.envs.household.official import alternate
from seedlab.envs.household.world import World, build_world


@dataclass(frozen=True)
class Source:
    """One game.  `open` gives our world and a function for its walkthrough (GameFileError refuses the game); `official`
    gives what the official engine loads: a path, or game data, for which it may need the official rules."""

    name: str
    key: str
    task_type: str
    open: Callable[[], tuple[World, Callable[[], Sequence[str]]]]
    official: Callable[[Callable[[], Rules]], str | dict]


def folder_sources(folder: Path) -> list[Source]:
    """Every `game.tw-pddl` below a folder, task types in turn.  GameFileError where there is none."""
    by_type: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("game.tw-pddl")):
        by_type.setdefault(path.parent.parent.name.split("-")[0], []).append(path)
    if not by_type:
        raise GameFileError(f"{folder}: no game.tw-pddl in it or below it; `alfworld-download` fetches the official games")
    return [_file_source(folder, path) for path in alternate(by_type)]


def _file_source(folder: Path, path: Path) -> Source:
    def open_file():
        game = load_game(path)
        return game.world, lambda: game.walkthrough

    name = str(path.parent.relative_to(folder)) if path.parent != folder else path.parent.name
    key = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return Source(name, key, path.parent.parent.name.split("-")[0], open_file, lambda rules: str(path.resolve()))


def generated_sources(count: int, env: EnvConfig | None = None) -> list[Source]:
    """The first `count` tasks of the generated `dev` panel."""
    env = env or EnvConfig()
    family = HouseholdFamily(env.model_copy(update={"panel_sizes": {**env.panel_sizes, "dev": count}}))
    return [_room_source(family, task_id) for task_id in family.panels()["dev"].task_ids]


def _room_source(family: HouseholdFamily, task_id: str) -> Source:
    facts = family.facts(task_id)
    key = hashlib.sha256(f"{facts.sentence}\n{problem_text(facts, 'room')}".encode()).hexdigest()[:16]
    return Source(
        task_id, key, facts.goal.task_type, lambda: (build_world(facts), lambda: solve(facts, task_id)),
        lambda rules: game_data(facts, "room", rules()),
    )  # fmt: skip
