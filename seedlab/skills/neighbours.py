"""Skills of other trajectories of the same update: a group mate's, or one of a sibling task of the same type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from seedlab.episodes.records import Skill, Trajectory

NEIGHBOURS = ("mate", "sibling")


def neighbour_skills(trajectories: Sequence[Trajectory], usable: Mapping[str, Skill], kind: str, rng_key: int, count: int = 1) -> dict[str, Skill]:
    """{trajectory id: the skill its teacher reads}, drawn evenly from the `usable` ones {trajectory id: skill} of others.

    `mate`: of another attempt at the same task.  `sibling`: of an attempt at another task of the same type, so that only
    what transfers between tasks is of use.  Never its own; a trajectory without such a neighbour is left out.  With
    `count` above 1 so many different ones, as far as there are, the further ones as `others`.  A function of `rng_key` and of the order of the trajectories.
    """
    found: dict[str, Skill] = {}
    for number, taker in enumerate(trajectories):
        givers = [usable[t.id] for t in trajectories if t.id in usable and _is_neighbour(taker, t, kind)]
        if givers:
            drawn = np.random.default_rng([rng_key, number]).permutation(len(givers))[:count]
            first, *others = [
                replace(givers[i], id=f"{taker.id}/{kind}{place or ''}", trajectory_id=taker.id, analyzer=f"{kind}:{givers[i].trajectory_id}")
                for place, i in enumerate(drawn)
            ]
            found[taker.id] = replace(first, others=others)
    return found


def averaged_skills(batches: Sequence[Mapping[str, Skill | None]]) -> dict[str, Skill | None]:
    """Of several skills per trajectory (one {trajectory id: skill} per draw): the first usable one, the rest as `others`."""
    found: dict[str, Skill | None] = {}
    for name in batches[0]:
        usable = [batch[name] for batch in batches if batch[name] is not None]
        found[name] = replace(usable[0], others=usable[1:]) if usable else None
    return found


def with_contrasts(
    assigned: Mapping[str, Skill | None], trajectories: Sequence[Trajectory], written: Sequence[Skill], rng_key: int
) -> dict[str, Skill | None]:
    """`assigned` with a usable skill of a group mate beside each, for the gate's baseline in the same contexts."""
    played = [t for t in trajectories if not t.infra_failure]
    found = neighbour_skills(played, {s.trajectory_id: s for s in written if s.accepted}, "mate", rng_key)
    return {name: None if skill is None else replace(skill, contrast=found.get(name)) for name, skill in assigned.items()}


def _is_neighbour(taker: Trajectory, giver: Trajectory, kind: str) -> bool:
    if kind == "mate":
        return giver.task_id == taker.task_id and giver.id != taker.id
    return giver.task_type == taker.task_type and giver.task_id != taker.task_id


def written_from(skill: Skill) -> str | None:
    """Id of the trajectory that a teacher's skill was written from; None where it was written from none of the update's."""
    if skill.analyzer in ("static", "empty", "library"):
        return None
    source, _, giver = skill.analyzer.partition(":")
    return giver if source in ("shuffled", *NEIGHBOURS) else skill.trajectory_id
