"""Files of a run's Stage 1, keyed by trajectory ids, so that every sample can be traced in the run folder alone.

    stage1/stage1.json              acceptance, losses, acting before and after
    stage1/trajectories.jsonl.gz    the base policy's trajectories as text: goal, observations, actions, outcome
    stage1/labels.jsonl.gz          one label per trajectory: raw answer, skill, verdict and its reason
    stage1/sft_rows.jsonl.gz        one row per accepted label that fits the context

The trajectories' token ids and log-probs are in the cache alone.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from seedlab.store.errors import RunError
from seedlab.store.shapes import COUNT, FLAG, OBJECT, TEXT, check_fields, several

RECORD, TRAJECTORIES, LABELS, SFT_ROWS = "stage1.json", "trajectories.jsonl.gz", "labels.jsonl.gz", "sft_rows.jsonl.gz"
_FIELDS = {
    TRAJECTORIES: {"id": TEXT, "task": TEXT, "task_type": TEXT, "goal": TEXT, "success": FLAG, "steps": several(OBJECT), "final_observation": TEXT},
    LABELS: {"trajectory_id": TEXT, "accepted": FLAG, "reason": TEXT, "text": TEXT, "raw": TEXT, "analyzer": TEXT},
    SFT_ROWS: {"trajectory": TEXT, "split": TEXT, "tokens": COUNT, "target_tokens": COUNT, "skill": TEXT},
}  # fmt: skip


def read_rows(run: Path, name: str) -> list[dict]:
    """One dictionary per line; RunError where the run has no such file, or where it is damaged."""
    path = Path(run) / "stage1" / name
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [check_fields(json.loads(line), _FIELDS.get(name, {}), f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    except FileNotFoundError as error:
        raise RunError(f"{path} is not there: the run has no Stage 1, or Stage 1's cache had been emptied when the run began") from error
    except (OSError, EOFError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it from a copy") from error
