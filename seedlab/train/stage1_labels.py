"""Stage 1's second result: one label per rollout by the external analyzer, with its verdict and the reason for it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from seedlab.config.schema import Config
from seedlab.episodes.keys import stream_key
from seedlab.episodes.records import Skill
from seedlab.errors import UserError
from seedlab.policy.load import load_policy
from seedlab.skills import write_skills
from seedlab.train.base import initial_policy_path
from seedlab.train.external import external_analyzer
from seedlab.train.session import Progress, Session, silent
from seedlab.train.stage1_rollouts import read_trajectories


def label(cfg: Config, rollouts: Path, folder: Path, progress: Progress = silent) -> None:
    """One label per trajectory by the external analyzer, with its verdict and the reason for it."""
    session = Session(cfg, load_policy(initial_policy_path(cfg), cfg.model), progress)
    trajectories = read_trajectories(rollouts / "trajectories.jsonl.gz")
    analyzer, contract, settings = external_analyzer(cfg, session.family)
    done = 0

    def count(_):
        nonlocal done
        done += 1
        progress("stage 1: labels", done, len(trajectories), "")

    batch = write_skills(
        trajectories, analyzer, session.prompts, session.policy.chat, settings, contract=contract, snapshot=-1,
        key=lambda t: stream_key(cfg.stage1.seed, "labels", t.id), on_done=count,
    )
    with open(folder / "labels.jsonl", "w", encoding="utf-8") as out:
        for skill in batch.skills:
            out.write(json.dumps(asdict(skill), ensure_ascii=False) + "\n")
    totals = asdict(analyzer.totals) if cfg.external.kind == "openai" else {}
    (folder / "labels.json").write_text(
        json.dumps({"prompt_tokens": batch.prompt_tokens, "completion_tokens": batch.completion_tokens, "totals": totals}, default=str)
    )


def read_skills(path: Path) -> list[Skill]:
    try:
        return [Skill(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not a readable skill file: {error}") from error
