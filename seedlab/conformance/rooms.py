"""Panels of generated rooms written below a folder in ALFWORLD_DATA's layout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seedlab.config.schema import EnvConfig
from seedlab.envs.base import EnvironmentSettingsError
from seedlab.envs.household.export import Rules, write_game
from seedlab.envs.household.family import HouseholdFamily
from seedlab.envs.household.official import LAYOUT
from seedlab.envs.household.tasks import parse_task_id
from seedlab.envs.textworld.client import OfficialProcess

SPLIT_OF_PANEL = {"stage1": "train", "train": "train", "dev": "train", "seen": "valid_seen", "unseen": "valid_unseen"}


def installed_rules(timeout_s: float) -> Rules:
    """Domain and grammar of the installed official engine; OfficialEngineMissing where there is none."""
    process = OfficialProcess(timeout_s)
    process.task = "rules of the installed alfworld"
    try:
        found = process.ask("rules")
    finally:
        process.close()
    return Rules(found["domain"], found["grammar"])


def export_rooms(
    env: EnvConfig, out: Path, panels: tuple[str, ...], limit: int | None, rules: Rules, progress: Callable = lambda *a: None
) -> list[Path]:
    """Write the rooms of the named panels; returns the game files.  EnvironmentSettingsError for an unknown panel."""
    family = HouseholdFamily(env.model_copy(update={"data": None}))
    known = family.panels()
    unknown = [name for name in panels if name not in known]
    if unknown:
        raise EnvironmentSettingsError(f"unknown panel {', '.join(unknown)}; the panels are {', '.join(known)}")
    tasks = [(name, task_id) for name in panels for task_id in known[name].task_ids[:limit]]
    written = []
    for number, (panel, task_id) in enumerate(tasks, 1):
        task_type, thing, place = parse_task_id(task_id)
        trial = task_id.rsplit("-", 1)[1]
        folder = out / LAYOUT / SPLIT_OF_PANEL[panel] / f"{task_type}-{thing}-None-{place}-{trial}" / f"trial_{panel}_{trial}"
        written.append(write_game(folder, family.facts(task_id), f"room_{trial}", rules))
        progress("export", number, len(tasks), "rooms")
    return written
