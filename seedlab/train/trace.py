"""From an SFT row back to its label, verdict and trajectory: the chain of one Stage-1 sample as text."""

from __future__ import annotations

import json
from pathlib import Path

from seedlab.errors import UserError
from seedlab.store.reader import open_run
from seedlab.train.cached import cache_root
from seedlab.train.stage1 import read_skills, read_trajectories


def trace_sample(run_path: Path, sample: str) -> str:
    """Text of the chain; `sample` is the number of an SFT row or a trajectory id.  Raises UserError naming what is missing."""
    run = open_run(run_path)
    record = run.stage1
    if record is None:
        raise UserError(f"{run_path} has no Stage 1 (initial={run.config.initial}); trace a run that starts from theta_sft")
    rows = [json.loads(line) for line in (run_path / "stage1" / "sft_rows.jsonl").read_text(encoding="utf-8").splitlines()]
    if sample.isdigit():
        if int(sample) >= len(rows):
            raise UserError(f"{run_path} has {len(rows)} SFT rows, numbered from 0; there is no row {sample}")
        row = rows[int(sample)]
    else:
        found = [r for r in rows if r["trajectory"] == sample]
        row = found[0] if found else {"trajectory": sample, "split": "none: its label was rejected or did not fit"}
    folders = [cache_root() / record[key] for key in ("rollouts_cache", "labels_cache")]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder} is gone from the cache; run Stage 1 again to trace it (SEEDLAB_CACHE says where the cache is)")
    trajectory = next((t for t in read_trajectories(folders[0] / "trajectories.jsonl.gz") if t.id == row["trajectory"]), None)
    if trajectory is None:
        raise UserError(f"no trajectory {row['trajectory']!r} in {folders[0]}")
    label = next(s for s in read_skills(folders[1] / "labels.jsonl") if s.trajectory_id == trajectory.id)
    lines = [
        f"1. trajectory {trajectory.id}: {trajectory.goal} ({'success' if trajectory.success else 'failure'}, {len(trajectory.steps)} steps)"
    ]
    lines += [f"     {s.observation.splitlines()[-1] if s.observation else ''}\n   > {s.action}" for s in trajectory.steps]
    lines += [
        f"     {trajectory.final_observation}",
        f"2. label by {label.analyzer}: {label.raw!r}",
        f"3. verdict: {'accepted' if label.accepted else 'rejected'} ({label.reason})",
        f"4. SFT row: split {row['split']}" + (f", {row['target_tokens']} target tokens of {row['tokens']}" if "tokens" in row else ""),
        f"     target: {row.get('skill', '-')}",
    ]
    return "\n".join(lines)
