"""Task ids of generated rooms and the five panels made of them."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from seedlab.envs.household.goals import TASK_TYPES
from seedlab.envs.household.rooms import combinations, room_kinds
from seedlab.envs.protocol import Panel

PANELS = ("stage1", "train", "dev", "seen", "unseen")
DEMONSTRATIONS = "demonstrations"  # optional: tasks of the tiny policy's demonstrations, which are else those of `train`
_DEMONSTRATION_NUMBERS = 1_000_000  # rooms of demonstrations are numbered from here, so that no panel has one of them
HELD_OUT_SHARE = 0.2
_TASK_ID = re.compile(r"household/(\w+)-(\w+)-(\w+)-(\d+)$")


def parse_task_id(task_id: str) -> tuple[str, str, str]:
    """(task type, object, receptacle or lamp) of a generated task's id; ValueError says what is wrong with it."""
    found = _TASK_ID.match(task_id)
    if not found:
        raise ValueError(f"{task_id!r} is not a task id such as household/pick_heat_then_place_in_recep-Mug-Shelf-0123")
    task_type, thing, place, _ = found.groups()
    if task_type not in TASK_TYPES:
        raise ValueError(f"{task_id!r}: task type {task_type!r} is not one of {', '.join(TASK_TYPES)}")
    if not room_kinds(task_type, thing, place):
        raise ValueError(f"{task_id!r}: no room poses {task_type} with {thing!r} and {place!r}")
    return task_type, thing, place


def _hash(*parts: object) -> str:
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()


@lru_cache(maxsize=16)
def split_combinations(panel_seed: int) -> dict[str, tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]]:
    """Per task type: (combinations of the other panels, combinations of `unseen`), each in a hashed order.

    A fifth of each type is held out, one at least.  A combination is held out only while its object and its
    receptacle still occur in a kept one, so that `unseen` asks for new pairs and not for unknown words.
    """
    out = {}
    for task_type in TASK_TYPES:
        kept = sorted(combinations(task_type), key=lambda pair: _hash(panel_seed, task_type, *pair))
        wanted = max(1, round(HELD_OUT_SHARE * len(kept)))
        held: list[tuple[str, str]] = []
        for strict in (True, False):  # lamps: one lamp, each object once, so no pair qualifies strictly
            for pair in list(kept):
                rest = [p for p in kept if p != pair]
                known = any(p[0] == pair[0] for p in rest) and any(p[1] == pair[1] for p in rest)
                if len(held) < wanted and rest and (known or not strict):
                    kept, held = rest, [*held, pair]
            if held:
                break
        out[task_type] = (tuple(kept), tuple(held))
    return out


def generated_panels(sizes: dict[str, int], panel_seed: int) -> dict[str, Panel]:
    """The five panels, and `demonstrations` where it has a size.  Types alternate; each panel walks the combinations in the same order with rooms of its own.

    A panel's first k ids do not depend on its size or on other panels.
    """
    split = split_combinations(panel_seed)
    panels = {}
    for place, name in enumerate((*PANELS, DEMONSTRATIONS) if DEMONSTRATIONS in sizes else PANELS):
        ids = []
        for i in range(sizes[name]):
            task_type = TASK_TYPES[i % len(TASK_TYPES)]
            pairs = split[task_type][1 if name == "unseen" else 0]
            turn, which = divmod(i // len(TASK_TYPES), len(pairs))
            thing, target = pairs[which]
            number = _DEMONSTRATION_NUMBERS + turn if name == DEMONSTRATIONS else turn * len(PANELS) + place
            ids.append(f"household/{task_type}-{thing}-{target}-{number:04d}")
        panels[name] = Panel(name, tuple(ids))
    return panels


