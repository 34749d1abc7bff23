"""Which tasks an update sees: a function of (seed, update) alone, so that a resumed run sees the same ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from seedlab.envs.protocol import Panel
from seedlab.episodes.play import Episode
from seedlab.errors import UserError


def tasks_of_update(panel: Panel, *, seed: int, update: int, tasks_per_update: int) -> list[str]:
    """`tasks_per_update` task ids, drawn without replacement until the panel is used up, then shuffled anew.

    Every arm with the same seed sees the same tasks in the same order.
    """
    size = len(panel.task_ids)
    if tasks_per_update > size:
        raise UserError(
            f"panel {panel.name!r} has {size} tasks, fewer than stage2.tasks_per_update={tasks_per_update}; "
            "enlarge env.panel_sizes or lower stage2.tasks_per_update"
        )
    # A pass takes whole updates only: what is left of a permutation is not used, so no group meets its task twice.
    epoch, place = divmod(update, size // tasks_per_update)
    order = np.random.default_rng([seed, 17, epoch]).permutation(size)
    return [panel.task_ids[int(i)] for i in order[place * tasks_per_update : (place + 1) * tasks_per_update]]


def group_episodes(task_ids: list[str], group_size: int, skill_of: Callable[[str], str] = lambda task_id: "") -> list[Episode]:
    """`group_size` episodes of each task; `skill_of(task id)` stands in the prompts of a task's whole group."""
    return [Episode(task_id, n, skill) for task_id in task_ids for skill in [skill_of(task_id)] for n in range(group_size)]
