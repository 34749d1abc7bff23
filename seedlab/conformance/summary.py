"""What a comparison found, as text and as a row for results/*.jsonl."""

from __future__ import annotations

import time
from collections import Counter

from seedlab.conformance.transcripts import Reference
from seedlab.conformance.verify import Outcome
from seedlab.conformance.walks import WALKS

SHOWN_DIFFERENCES = 5


def _by_walk(counts: Counter, task_type: str) -> dict[str, int]:
    return {walk: counts[task_type, walk] for walk in WALKS if counts[task_type, walk]}


def summary_text(outcome: Outcome) -> str:
    """Counts by task type and kind of walk, then differences, refusals and failures, each named."""
    lines = []
    for task_type in sorted({t for t, _ in outcome.walks}):
        walks, turns = _by_walk(outcome.walks, task_type), sum(_by_walk(outcome.turns, task_type).values())
        lines.append(f"{task_type:<32} {sum(walks.values()):>5} walks {turns:>7} turns   " + "  ".join(f"{w} {n}" for w, n in walks.items()))
    total, turns = sum(outcome.walks.values()), sum(outcome.turns.values())
    lines.append(f"{'in all':<32} {total:>5} walks {turns:>7} turns   {len(outcome.games)} games, {outcome.recorded} walks played officially now")
    for difference in outcome.differences[:SHOWN_DIFFERENCES]:
        lines += ["", str(difference)]
    if len(outcome.differences) > SHOWN_DIFFERENCES:
        lines.append(f"... and {len(outcome.differences) - SHOWN_DIFFERENCES} more differences")
    lines += [f"refused: {reason}" for reason in outcome.refused.values()]
    lines += [f"not compared: {name}: {reason}" for name, reason in outcome.failed.items()]
    if outcome.identical:
        lines.append("no difference")
    elif not (outcome.differences or outcome.refused or outcome.failed):
        lines.append("nothing was compared")
    return "\n".join(lines)


def summary_row(outcome: Outcome, reference: Reference, settings: dict) -> dict:
    """A JSON row: what was compared with which engine, and the counts that `summary_text` prints."""
    return {
        "schema_version": 1, "time": time.strftime("%Y-%m-%d", time.gmtime()), "settings": settings, "versions": reference.versions,
        "games": len(outcome.games), "walks": sum(outcome.walks.values()), "turns": sum(outcome.turns.values()),
        "by_type": {
            t: {"walks": _by_walk(outcome.walks, t), "turns": _by_walk(outcome.turns, t)} for t in sorted({t for t, _ in outcome.walks})
        },
        "differences": len(outcome.differences), "refused": len(outcome.refused), "failed": len(outcome.failed),
    }  # fmt: skip
