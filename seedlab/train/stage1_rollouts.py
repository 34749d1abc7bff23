"""Stage 1's first result: rollouts of the unmodified base policy, and the file they are kept in."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict
from pathlib import Path
from typing import Iterable

from seedlab.config.schema import Config
from seedlab.episodes.play import Episode
from seedlab.episodes.records import Skill, Step, Trajectory
from seedlab.errors import UserError
from seedlab.policy.load import load_policy
from seedlab.train.base import initial_policy_path
from seedlab.train.session import Progress, Session, silent

ROLLOUTS_AT_ONCE = 192  # episodes per batch of Stage 1's rollouts; floating point aside it changes nothing


def collect(cfg: Config, folder: Path, progress: Progress = silent) -> None:
    """K0 rollouts of the unmodified base policy on each of the M tasks of the `stage1` panel."""
    session = Session(cfg, load_policy(initial_policy_path(cfg, progress), cfg.model), progress, sampler=cfg.cluster.generator)
    tasks = session.panels["stage1"].task_ids
    if len(tasks) < cfg.stage1.tasks:
        raise UserError(
            f"panel stage1 has {len(tasks)} tasks, stage1.tasks asks for {cfg.stage1.tasks}; enlarge env.panel_sizes.stage1"
        )
    episodes = [Episode(task, n) for task in tasks[: cfg.stage1.tasks] for n in range(cfg.stage1.rollouts_per_task)]
    trajectories = []
    for start in range(0, len(episodes), ROLLOUTS_AT_ONCE):
        part = session.play(
            episodes[start : start + ROLLOUTS_AT_ONCE], phase="s1-", update=0, seed=cfg.stage1.seed,
            temperature=cfg.stage1.rollout_temperature,
        )
        session.forget(part)
        trajectories += part
        progress("stage 1: rollouts", len(trajectories), len(episodes), f"{sum(t.success for t in trajectories)} successes")
    session.generator.close()
    write_trajectories(folder / "trajectories.jsonl.gz", trajectories)


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> None:
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=3) as out:
        for trajectory in trajectories:
            out.write(json.dumps(asdict(trajectory), ensure_ascii=False) + "\n")


def read_trajectories(path: Path) -> list[Trajectory]:
    """Raises UserError naming the file where it is missing or damaged."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError) as error:
        raise UserError(f"{path} is not a readable trajectory file: {error}; remove its folder and run again") from error
    return [trajectory_of(record) for record in records]


def trajectory_of(record: dict) -> Trajectory:
    """A Trajectory from its JSON form; raises UserError where a field is missing or unknown."""
    try:
        steps = [Step(**{**s, "admissible_commands": tuple(s["admissible_commands"])}) for s in record["steps"]]
        skill = Skill(**record["skill"]) if record.get("skill") else None
        return Trajectory(**{**record, "steps": steps, "skill": skill})
    except (KeyError, TypeError) as error:
        raise UserError(f"trajectory {record.get('id', '?')}: {error}") from error
