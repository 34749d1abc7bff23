"""From the cache into the run folder: what a run keeps of its Stage 1 (`store.stage1_files` says what that is)."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

from seedlab.episodes.records import Trajectory
from seedlab.store.files import read_json
from seedlab.store.stage1_files import LABELS, RECORD, SFT_ROWS, TRAJECTORIES
from seedlab.train.cached import cache_root
from seedlab.train.stage1 import read_trajectories


def keep_records(sft: Path, target: Path) -> list[str]:
    """Copy the records of the cached Stage 1 `sft` into `target`; returns what is no longer in the cache.

    Weights stay where they are.  Trajectories and labels have cache folders of their own, which somebody may have
    removed; the run then goes on without them.
    """
    target.mkdir(exist_ok=True)
    for name in (RECORD, SFT_ROWS):
        shutil.copyfile(sft / name, target / name)
    (target / "source").write_text(sft.name + "\n")
    record = read_json(sft / RECORD)
    rollouts, labels = cache_root() / record["rollouts_cache"], cache_root() / record["labels_cache"]
    gone = [folder.name for folder in (rollouts, labels) if not folder.is_dir()]
    if rollouts.is_dir():
        _write(target / TRAJECTORIES, [as_text(t) for t in read_trajectories(rollouts / TRAJECTORIES)])
    if labels.is_dir():
        shutil.copyfile(labels / LABELS, target / LABELS)
    return gone


def as_text(trajectory: Trajectory) -> dict:
    """The trajectory without token ids: id, task, task_type, goal, success, return, steps, final_observation."""
    return {
        "id": trajectory.id, "task": trajectory.task_id, "task_type": trajectory.task_type, "goal": trajectory.goal,
        "success": trajectory.success, "return": trajectory.returned, "final_observation": trajectory.final_observation,
        "steps": [{"observation": s.observation, "action": s.action, "valid": s.parsed and s.admissible} for s in trajectory.steps],
    }  # fmt: skip


def _write(path: Path, rows: list[dict]) -> None:
    # No file name and no time in the header: the same records are the same bytes.
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.writelines((json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows)
