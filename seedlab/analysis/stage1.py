"""Stage 1 of a run as frames: labels with their verdicts, acting before and after, the loss, and one sample's chain."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from seedlab.errors import UserError
from seedlab.store.reader import Run, open_run
from seedlab.store.stage1_files import LABELS, SFT_ROWS, TRAJECTORIES, read_rows

# What is measured before and after the fine-tuning: (key of the record, sentence).
MEASURED = (
    ("held_out_loss", "loss on held-out skill tokens, nats"),
    ("own_skills_accepted", "own skills that pass validation"),
    ("own_skills_exact", "own skills that say exactly what the scripted analyzer says"),
    ("own_skills_location", "own skills that name its location"),
    ("own_skills_workflow", "own skills with its workflow"),
    ("success_with_own_skill", "success with the own skill in the prompt"),
    ("success_with_scripted_skill", "success with the scripted skill in the prompt"),
    ("dev_success_micro", "success on dev without a skill, micro"),
    ("dev_success_macro", "the same, macro"),
)


def stage1_record(run: Run | Path | str) -> dict:
    """The run's stage1.json.  Raises UserError where the run has no Stage 1."""
    run = _open(run)
    if run.stage1 is None:
        raise UserError(f"{run.path} has no Stage 1 (initial={run.config.initial}); choose a run that starts from theta_sft")
    return run.stage1


def collected(run: Run | Path | str) -> pd.DataFrame:
    """Base rollouts by task type: tasks, trajectories, successes, success (share), steps (mean)."""
    rows = pd.DataFrame([
        (t["task_type"], t["task"], t["success"], len(t["steps"])) for t in read_rows(_open(run).path, TRAJECTORIES)
    ], columns=["task_type", "task", "success", "steps"])  # fmt: skip
    by_type = rows.groupby("task_type", sort=True)
    return by_type.agg(
        tasks=("task", "nunique"), trajectories=("task", "size"), successes=("success", "sum"), success=("success", "mean"), steps=("steps", "mean")
    ).reset_index()


def labels(run: Run | Path | str) -> pd.DataFrame:
    """One row per label: trajectory, task_type, goal, success, steps, accepted, reason, split, words, text, raw.

    `split` is train, held_out, or empty for a label that was rejected or did not fit the context.
    """
    path = _open(run).path
    played = {t["id"]: t for t in read_rows(path, TRAJECTORIES)}
    split = {row["trajectory"]: row["split"] for row in read_rows(path, SFT_ROWS)}
    columns = ["trajectory", "task_type", "goal", "success", "steps", "accepted", "reason", "split", "words", "text", "raw"]
    rows = []
    for label in read_rows(path, LABELS):
        name = label["trajectory_id"]
        t = played[name]
        rows.append((
            name, t["task_type"], t["goal"], t["success"], len(t["steps"]), label["accepted"], label["reason"], split.get(name, ""),
            len(label["text"].split()), label["text"], label["raw"],
        ))  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def verdicts(run: Run | Path | str) -> pd.DataFrame:
    """One row per (analyzer, reason): the external labels, and the policy's own skills before and after the SFT.

    Columns analyzer, reason, skills, share (of that analyzer's).  `ok` is acceptance.
    """
    record = stage1_record(run)
    own = {f"own, {when} SFT": record[when].get("own_skill_reasons", {}) for when in ("before", "after")}
    counts = {f"external ({record['external_analyzer']})": record["reasons"], **own}
    rows = [
        (name, reason, count, count / sum(reasons.values()))
        for name, reasons in counts.items()
        for reason, count in Counter(reasons).most_common()
    ]
    return pd.DataFrame(rows, columns=["analyzer", "reason", "skills", "share"])


def before_after(run: Run | Path | str) -> pd.DataFrame:
    """Columns measure, before, after, of: what the fine-tuning changed; counts become shares of `of` skills."""
    record = stage1_record(run)
    before, after = record["before"], record["after"]
    rows = []
    for key, sentence in MEASURED:
        if key not in before and key not in after:
            continue
        values = [side.get(key) for side in (before, after)]
        of = record["held_out_rows"] if key == "held_out_loss" else before.get("dev_episodes" if key.startswith("dev") else "own_skills", 0)
        if key == "own_skills_accepted":
            values = [None if v is None else v / max(1, of) for v in values]
        rows.append((sentence, *values, of))
    return pd.DataFrame(rows, columns=["measure", "before", "after", "of"]).astype({"before": float, "after": float})


def sft_losses(run: Run | Path | str) -> pd.DataFrame:
    """Columns step, loss: mean loss of each optimizer step's documents, in nats per weighted token.

    Raises UserError where the record has only the first and the last loss.
    """
    record = stage1_record(run)
    if "losses" not in record:
        raise UserError(f"{_open(run).path} was made before Stage 1 kept its losses: first {record['first_loss']:.3f}, last {record['last_loss']:.3f}")
    return pd.DataFrame({"step": range(1, len(record["losses"]) + 1), "loss": record["losses"]})


@dataclass(frozen=True)
class Sample:
    """One Stage-1 sample: its trajectory (text only), its label with the verdict, and its SFT row, where it has one."""

    trajectory: dict
    label: dict
    row: dict | None

    def __str__(self) -> str:
        t, label, row = self.trajectory, self.label, self.row
        lines = [f"1. trajectory {t['id']}: {t['goal']} ({'success' if t['success'] else 'failure'}, {len(t['steps'])} steps)"]
        lines += [f"     {(s['observation'].splitlines() or [''])[-1]}\n   > {s['action']}" for s in t["steps"]]
        lines += [
            f"     {t['final_observation']}",
            f"2. label by {label['analyzer']}: {label['raw']!r}",
            f"3. verdict: {'accepted' if label['accepted'] else 'rejected'} ({label['reason']})",
        ]
        if row is None:
            return "\n".join([*lines, "4. SFT row: none: its label was rejected or did not fit"])
        lines.append(f"4. SFT row: split {row['split']}, {row['target_tokens']} target tokens of {row['tokens']}")
        return "\n".join([*lines, f"     target: {row['skill']}"])


def sample(run: Run | Path | str, which: int | str = 0) -> Sample:
    """The chain of SFT row number `which`, or of the trajectory with that id.  Raises UserError naming what is missing."""
    run = _open(run)
    stage1_record(run)
    rows = read_rows(run.path, SFT_ROWS)
    if isinstance(which, int) or which.isdecimal():
        if int(which) >= len(rows):
            raise UserError(f"{run.path} has {len(rows)} SFT rows, numbered from 0; there is no row {which}")
        row = rows[int(which)]
    else:
        row = next((r for r in rows if r["trajectory"] == which), None)
    name = which if row is None else row["trajectory"]
    trajectory = next((t for t in read_rows(run.path, TRAJECTORIES) if t["id"] == name), None)
    if trajectory is None:
        raise UserError(f"Stage 1 of {run.path} has no trajectory {name!r}; `seedlab.analysis.labels` lists them")
    return Sample(trajectory, next(s for s in read_rows(run.path, LABELS) if s["trajectory_id"] == name), row)


def _open(run: Run | Path | str) -> Run:
    return run if isinstance(run, Run) else open_run(run)
