"""Task ids and panels of a folder of official games in ALFWORLD_DATA's layout.

`json_2.1.1/<split>/<task folder>/<trial>/game.tw-pddl` has the task id `alfworld/<split>/<task folder>/<trial>`.
`seen` and `unseen` are the whole splits valid_seen and valid_unseen, whose games are known by name; stage1, train and dev
are disjoint parts of train.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from seedlab.envs.household.games import GameFileError
from seedlab.envs.household.goals import TASK_TYPES
from seedlab.envs.household.tasks import DEMONSTRATIONS
from seedlab.envs.protocol import Panel

SPLITS = ("train", "valid_seen", "valid_unseen")
OFFICIAL_COUNTS = {"train": 3553, "valid_seen": 140, "valid_unseen": 134}
DOWNLOAD = (
    "`make alfworld && .venv-alfworld/bin/alfworld-download` fetches the games (its pins clash with ours, so that it has an environment of its "
    "own); then set ALFWORLD_DATA to their folder"
)
_GAME = "game.tw-pddl"
_NAMED = 8  # missing games that a message lists
LAYOUT = "json_2.1.1"


@dataclass(frozen=True)
class Split:
    """Playable games of a split: task ids per task type, each sorted.  `notes` say what is missing from the release."""

    name: str
    by_type: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]

    @property
    def count(self) -> int:
        return sum(len(ids) for ids in self.by_type.values())


def games_root(data: str) -> Path:
    """The folder that holds the splits: `data` itself or its `json_2.1.1`.  GameFileError where there is none."""
    folder = Path(os.path.expandvars(data)).expanduser()
    for root in (folder / LAYOUT, folder):
        if any((root / split).is_dir() for split in SPLITS):
            return root
    unset = re.search(r"\$\{?(\w+)", os.path.expandvars(data))
    if unset:
        raise GameFileError(f"env.data={data!r}: the environment variable {unset[1]} is not set; {DOWNLOAD}")
    raise GameFileError(f"env.data={data!r}: neither it nor its {LAYOUT} has one of the folders {', '.join(SPLITS)}; {DOWNLOAD}")


def game_path(root: Path, task_id: str) -> Path:
    """File of a task id; GameFileError for an id of another form or a file that is not there."""
    parts = task_id.split("/")
    if len(parts) != 4 or parts[0] != "alfworld" or parts[1] not in SPLITS or not all(p.strip(".") for p in parts[2:]):
        raise GameFileError(
            f"{task_id!r} is not a task id such as alfworld/valid_seen/<task folder>/<trial>; "
            "with env.data set, tasks are official games"
        )
    path = root.joinpath(*parts[1:], _GAME)
    if not path.is_file():
        raise GameFileError(f"{task_id}: {path} does not exist")
    return path


def list_split(root: Path, name: str) -> Split:
    """Games of a split as the official loader finds them: no movable receptacles or slices, and solvable."""
    folder = root / name
    if not folder.is_dir():
        raise GameFileError(f"{folder} does not exist: the split {name} is missing from env.data")
    by_type: dict[str, list[str]] = {task_type: [] for task_type in TASK_TYPES}
    without_game = []
    for task in sorted(p for p in folder.iterdir() if p.is_dir()):
        kind = task.name.split("-", 1)[0]
        if "Sliced" in task.name or kind not in by_type:  # movable receptacles are a type of their own
            continue
        for trial in sorted(p for p in task.iterdir() if p.is_dir()):
            if not (trial / _GAME).is_file():
                without_game.append(f"{task.name}/{trial.name}")
            elif _solvable(trial / _GAME):
                by_type[kind].append(f"alfworld/{name}/{task.name}/{trial.name}")
    split = Split(name, {kind: tuple(ids) for kind, ids in by_type.items()}, ())
    if not split.count:
        raise GameFileError(f"{folder} holds no playable {_GAME}")
    if name in official_games():
        return Split(name, split.by_type, split_faults(split))
    notes = []
    if split.count != OFFICIAL_COUNTS[name]:
        notes.append(f"{name}: {split.count} of the {OFFICIAL_COUNTS[name]} official games are in {folder}")
    if without_game:
        shown = ", ".join(without_game[:3]) + (", ..." if len(without_game) > 3 else "")
        notes.append(f"{name}: {len(without_game)} trial folders have no {_GAME}: {shown}")
    return Split(name, split.by_type, tuple(notes))


@lru_cache(maxsize=1)
def official_games() -> dict[str, frozenset[str]]:
    """`task folder/trial` of every game of the two evaluation splits, as ALFWorld released them."""
    listed = json.loads(Path(__file__).with_name("official_splits.json").read_text(encoding="utf-8"))
    return {name: frozenset(games) for name, games in listed.items()}


def split_faults(split: Split) -> tuple[str, ...]:
    """Sentences on what an evaluation split lacks, and what it has too much; empty where it is the official one."""
    here = {i.split("/", 2)[2] for ids in split.by_type.values() for i in ids}
    wanted = official_games()[split.name]
    faults = []
    for what, games in (("lacks", wanted - here), ("has, beyond the official ones,", here - wanted)):
        if games:
            shown = ", ".join(sorted(games)[:_NAMED]) + (f", ... ({len(games)} in all)" if len(games) > _NAMED else "")
            faults.append(f"{split.name}: {len(here & wanted)} of {len(wanted)} official games; it {what} {shown}")
    return tuple(faults)


def _solvable(path: Path) -> bool:
    """The file's `solvable` flag; it stands near the end, so that the whole file need not be read."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        for start in (max(0, size - 4096), 0):
            file.seek(start)
            found = re.search(rb'"solvable"\s*:\s*(true|false)', file.read())
            if found:
                return found.group(1) == b"true"
    return False  # as in the official loader, a file without the flag is not a checked game


def alternate(by_type: dict[str, tuple[str, ...]]) -> list[str]:
    """Ids of all types in turn, so that any first k of them cover the types."""
    longest = max((len(ids) for ids in by_type.values()), default=0)
    return [ids[i] for i in range(longest) for ids in by_type.values() if i < len(ids)]


def official_panels(
    root: Path, sizes: dict[str, int], panel_seed: int, incomplete: bool = False
) -> tuple[dict[str, Panel], tuple[str, ...]]:
    """The five panels (and `demonstrations` where it has a size) and notes on what is missing.

    An evaluation split that is not exactly the official one is refused with what it lacks, unless `incomplete`.
    The train split is put in a hashed order by `panel_seed`, type by type in turn, and cut into stage1, train, dev and
    demonstrations, whose sizes alone count.
    """
    parts = {name: sizes[name] for name in ("stage1", "train", "dev", DEMONSTRATIONS) if name in sizes}
    needed, notes, pool = sum(parts.values()), [], []
    if needed:
        train = list_split(root, "train")
        notes += train.notes
        if train.count < needed:
            raise GameFileError(
                f"{root / 'train'} has {train.count} games, but env.panel_sizes asks for "
                + " + ".join(f"{name} {size}" for name, size in parts.items())
                + f" = {needed}; lower env.panel_sizes"
            )
        pool = alternate(
            {kind: tuple(sorted(ids, key=lambda i: _order(panel_seed, i))) for kind, ids in train.by_type.items()}
        )
    panels, start = {}, 0
    for name, size in parts.items():
        panels[name] = Panel(name, tuple(pool[start : start + size]))
        start += size
    for name, split_name in (("seen", "valid_seen"), ("unseen", "valid_unseen")):
        split = list_split(root, split_name)
        faults = split_faults(split)
        if faults and not incomplete:
            raise GameFileError(
                f"{root}: {'; '.join(faults)}. {DOWNLOAD}; or set env.incomplete=true to evaluate on what is there, "
                "which is then another panel with another hash"
            )
        notes += split.notes
        panels[name] = Panel(name, tuple(alternate(split.by_type)))
    return panels, tuple(notes)


def games_hash(root: Path, task_ids: list[str]) -> str:
    """Hash over the contents of the tasks' files, in the order given; where the folder lies does not matter."""
    found = hashlib.sha256()
    for task_id in task_ids:
        found.update(f"{task_id}|{hashlib.sha256(game_path(root, task_id).read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()[:16]


def _order(panel_seed: int, task_id: str) -> str:
    return hashlib.sha256(f"{panel_seed}|{task_id}".encode()).hexdigest()
