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
from seedlab.train.stage1_rollouts import read_trajectories


def keep_records(sft: Path, target: Path) -> list[str]:
    """Copy the records of the cached Stage 1 `sft` into `target`; returns what is no longer in the cache.

    Weights stay where they are.  Trajectories and labels have cache folders of their own, which somebody may have
    removed; the run then goes on without them.
    """
    target.mkdir(exist_ok=True)
    shutil.copyfile(sft / RECORD, target / RECORD)
    (target / "source").write_text(sft.name + "\n")
    record = read_json(sft / RECORD)
    rollouts, labels = cache_root() / record["rollouts_cache"], cache_root() / record["labels_cache"]
    _write(target / SFT_ROWS, (sft / "sft_rows.jsonl").read_bytes())
    if rollouts.is_dir():
        played = read_trajectories(rollouts / "trajectories.jsonl.gz")
        _write(target / TRAJECTORIES, b"".join((json.dumps(as_text(t), ensure_ascii=False) + "\n").encode() for t in played))
    if labels.is_dir():
        _write(target / LABELS, (labels / "labels.jsonl").read_bytes())
    return [folder.name for folder in (rollouts, labels) if not folder.is_dir()]


def as_text(trajectory: Trajectory) -> dict:
    """The trajectory without token ids: id, task, task_type, goal, success, return, steps, final_observation."""
    return {
        "id": trajectory.id, "task": trajectory.task_id, "task_type": trajectory.task_type, "goal": trajectory.goal,
        "success": trajectory.success, "return": trajectory.returned, "final_observation": trajectory.final_observation,
        "steps": [{"observation": s.observation, "action": s.action, "valid": s.parsed and s.admissible} for s in trajectory.steps],
    }  # fmt: skip


def _write(path: Path, lines: bytes) -> None:
    # No file name and no time in the header: the same records are the same bytes.
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(lines)
