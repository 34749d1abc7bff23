"""Any skill text, scored on tokens that a run sampled: what its gates would be under one of the run's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from seedlab.config.schema import Config
from seedlab.episodes.prompts import PromptFormat, make_prompt_format
from seedlab.episodes.records import Skill, Trajectory
from seedlab.errors import UserError
from seedlab.objective.losses import gate
from seedlab.policy.load import Policy, load_policy
from seedlab.policy.score import ScoreRow, score
from seedlab.rows.build import build_rows
from seedlab.store.checkpoint import complete_checkpoints, verify_checkpoint
from seedlab.store.reader import Run
from seedlab.train.batch import give_teacher

REFERENCE = "reference"  # the weights that Stage 2 started from


@dataclass(frozen=True)
class Snapshot:
    """Weights of a run and what is needed to put a skill into a prompt."""

    cfg: Config
    policy: Policy
    prompts: PromptFormat
    name: str

    @property
    def chat(self):
        """The template that renders its prompts."""
        return self.policy.chat


@dataclass(frozen=True)
class TypedSkill:
    """`tokens`: one row per sampled token with `step`, `position`, `token_id`, `logp_student`, `logp_teacher`, `entropy`,
    `delta`, `gate`; NaN where the token's row has no teacher, for the reasons in `without_teacher`."""

    tokens: pd.DataFrame
    checkpoint: str
    without_teacher: tuple[str, ...]


def snapshots(run: Run) -> list[str]:
    """Names of the weights that are still in the folder: numbers of updates, oldest first, and `reference`."""
    found = [str(number) for number in complete_checkpoints(run.path)]
    # the runs that ship keep the tokenizer of their start without its weights
    weights = [file for pattern in ("*.safetensors", "*.bin", "*.gguf") for file in (run.path / "checkpoints" / REFERENCE).glob(pattern)]
    return ([REFERENCE] if weights else []) + found


def nearest_snapshot(run: Run, update: int) -> str | None:
    """The newest weights not past `update`, or the oldest there are; None where the folder has none."""
    names = snapshots(run)
    numbers = [int(name) for name in names if name != REFERENCE]
    before = [number for number in numbers if number <= update]
    if before:
        return str(before[-1])
    return names[0] if names else None


def load_snapshot(run: Run, name: str | int) -> Snapshot:
    """Raises UserError where those weights are not in the folder, RunError where they are damaged."""
    name, cfg = str(name), run.config
    known = snapshots(run)
    if name not in known:
        there = f"there are: {', '.join(known)}" if known else "the folder has none, so that nothing can be scored anew"
        raise UserError(f"{run.path} has no weights {name!r}; {there} (stage2.keep_checkpoints says how many stay)")
    folder = run.path / "checkpoints" / (name if name == REFERENCE else f"{int(name):06d}")
    if name != REFERENCE:
        verify_checkpoint(folder)
    return Snapshot(cfg, load_policy(folder, cfg.model), make_prompt_format(cfg.env), name)


def score_skill(snapshot: Snapshot, trajectory: Trajectory, text: str) -> TypedSkill:
    """Delta = log-prob with `text` as the skill minus without, and gate = sigma(beta Delta), of every sampled token.

    The rows, the place of the skill and the scorer are those of training; nothing is tokenised again but the prompt
    that carries the skill.  An empty text leaves every Delta at 0 up to rounding.
    """
    cfg = snapshot.cfg
    skill = Skill(f"{trajectory.id}/typed", trajectory.id, text, True, "ok", "typed", -1, 0, raw=text)
    rows = build_rows([trajectory], cfg.env.layout)
    if not rows:
        raise UserError(f"{trajectory.id} has no sampled token to score: {trajectory.infra_failure or 'it is empty'}")
    reasons = [give_teacher(snapshot, row, trajectory, skill) for row in rows]
    student = _score(snapshot, [row.student for row in rows])
    taught = [i for i, reason in enumerate(reasons) if not reason]
    teacher = dict(zip(taught, _score(snapshot, [rows[i].teacher for i in taught])))
    frames = []
    for i, row in enumerate(rows):
        logp, entropy = student[i]
        with_skill = teacher[i][0] if i in teacher else torch.full_like(logp, torch.nan)
        delta = with_skill - logp
        frames.append(
            pd.DataFrame(
                {
                    "step": row.step, "position": row.place, "token_id": [row.ids[p] for p in row.positions], "logp_student": logp.numpy(),
                    "logp_teacher": with_skill.numpy(), "entropy": entropy.numpy(), "delta": delta.numpy(),
                    "gate": gate(delta, cfg.objective.beta).numpy(),
                }
            )
        )  # fmt: skip
    tokens = pd.concat(frames, ignore_index=True).sort_values(["step", "position"], ignore_index=True)
    return TypedSkill(tokens, snapshot.name, tuple(sorted({reason for reason in reasons if reason})))


def _score(snapshot: Snapshot, rows: Sequence[ScoreRow]):
    policy = snapshot.policy
    if not rows:
        return []
    with policy.compute():
        return score(
            policy.model, rows, temperature=snapshot.cfg.rollout.temperature, pad_id=policy.pad_id,
            micro_batch_tokens=snapshot.cfg.stage2.micro_batch_tokens,
        )
