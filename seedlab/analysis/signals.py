"""Early-warning signals of a run, each against a threshold, in plain words.

The thresholds come from collapses seen on the embedded default.  They say where to look, not what is wrong; a larger
policy may need others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seedlab.analysis.frames import Arm
from seedlab.analysis.statistics import Interval, mean_interval

ENTROPY_KEPT = 0.6  # share of the first quarter's entropy; a collapse went from .30 to .17 nats
KL_LIMIT = 0.3  # nats against the reference; a collapse had .31 and more
TIES_LIMIT = 0.5  # working runs had up to .34 of their groups tied, collapsing ones .5 to .84
PROGRESS_LIMIT = 0.05  # a gate taught by shuffled skills still correlates .10 with progress
ACCURACY_KEPT = 0.7  # share of the first quarter's agreement with the scripted analyzer


@dataclass(frozen=True)
class Rule:
    """`trips(early, late)` on a run's means over its first and its last quarter; `means` says what that would mean."""

    metric: str
    name: str
    limit: str
    trips: Callable[[float, float], bool]
    means: str


RULES = (
    Rule("policy/entropy", "entropy", f"below {ENTROPY_KEPT:.0%} of its start", lambda early, late: late < ENTROPY_KEPT * early, "the policy stops exploring"),
    Rule("policy/kl", "KL to the reference", f"above {KL_LIMIT:g} nats", lambda early, late: late > KL_LIMIT, "the policy has moved far from its start"),
    Rule("rollout/tie_rate", "tied groups", f"{TIES_LIMIT:.0%} or more", lambda early, late: late >= TIES_LIMIT, "most groups give GRPO no gradient"),
    Rule(
        "signal/gate_progress_correlation", "gate–progress correlation", f"below {PROGRESS_LIMIT:g}", lambda early, late: late < PROGRESS_LIMIT,
        "the gate does not know good steps",
    ),
    Rule(
        "analyzer/exact", "skills that are exactly right", f"below {ACCURACY_KEPT:.0%} of its start", lambda early, late: late < ACCURACY_KEPT * early,
        "the analyzer forgets",
    ),
    Rule(
        "analyzer/location", "skills with the right location", f"below {ACCURACY_KEPT:.0%} of its start",
        lambda early, late: late < ACCURACY_KEPT * early, "the analyzer forgets",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """One signal of one arm: means over seeds of the first and the last quarter, and the seeds beyond the limit."""

    arm: str
    rule: Rule
    early: Interval
    late: Interval
    beyond: tuple[int, ...]

    @property
    def warns(self) -> bool:
        return bool(self.beyond)

    @property
    def verdict(self) -> str:
        if not self.warns:
            can_fall = self.early.estimate != 0 or not self.rule.limit.startswith("below")
            return "no warning" if can_fall else "not judged: it was 0 from the start"
        of = f"in {len(self.beyond)} of {self.late.n} seeds" if self.late.n > 1 else "in the only seed"
        return f"warning {of}: {self.rule.means}"


def warning_signals(arms: Sequence[Arm]) -> list[Reading]:
    """A reading per rule and arm that has the metric over at least four updates; shorter runs have no quarters."""
    out = []
    for rule in RULES:
        for arm in arms:
            long = {s for s, column in arm.curve(rule.metric).items() if column.notna().sum() >= 4}
            early = {s: v for s, v in arm.early_mean(rule.metric).items() if s in long}
            late = {s: v for s, v in arm.late_mean(rule.metric).items() if s in long}
            if late:
                beyond = tuple(s for s in late if rule.trips(early[s], late[s]))
                out.append(Reading(arm.name, rule, mean_interval(early.values()), mean_interval(late.values()), beyond))
    return out
