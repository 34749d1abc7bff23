import pandas as pd
import pytest

from seedlab.analysis.frames import Arm
from seedlab.analysis.signals import RULES, warning_signals
from seedlab.store.metrics import describe


class FakeArm(Arm):
    def __init__(self, curves):
        super().__init__("arm")
        self._curves = curves

    def curve(self, metric):
        return pd.DataFrame(self._curves.get(metric, {}))


def reading(metric, *seeds):
    found = warning_signals([FakeArm({metric: dict(enumerate(seeds))})])
    assert len(found) == 1
    return found[0]


def test_every_rule_reads_a_registered_metric():
    assert [describe(rule.metric)[0] for rule in RULES] == ["nats", "nats", "share", "1", "share", "share"]


@pytest.mark.parametrize(
    "metric, calm, beyond",
    [
        ("policy/entropy", [0.30, 0.3, 0.2, 0.18], [0.30, 0.3, 0.2, 0.17]),
        ("policy/kl", [0.0, 0.1, 0.2, 0.30], [0.0, 0.1, 0.2, 0.31]),
        ("rollout/tie_rate", [0.9, 0.9, 0.9, 0.49], [0.1, 0.1, 0.1, 0.5]),
        ("signal/gate_progress_correlation", [0.2, 0.2, 0.2, 0.05], [0.2, 0.2, 0.2, -0.3]),
        ("analyzer/exact", [0.4, 0.1, 0.1, 0.29], [0.4, 0.4, 0.4, 0.27]),
    ],
)
def test_each_threshold_from_both_sides(metric, calm, beyond):
    assert reading(metric, calm).verdict == "no warning"
    bad = reading(metric, beyond)
    assert bad.warns and bad.verdict.startswith("warning in the only seed: ") and bad.rule.metric == metric


def test_seeds_are_judged_one_by_one():
    # The mean over seeds (0.25) is calm; seed 1 alone is not.
    found = reading("policy/kl", [0.0, 0.0, 0.0, 0.1], [0.0, 0.0, 0.0, 0.4], [0.0, 0.0, 0.0, 0.25])
    assert found.beyond == (1,) and found.late.estimate == pytest.approx(0.25)
    assert found.verdict == "warning in 1 of 3 seeds: the policy has moved far from its start"


def test_short_runs_and_absent_metrics_have_no_reading():
    assert warning_signals([FakeArm({"policy/kl": {0: [9.0, 9.0, 9.0]}})]) == []
    assert warning_signals([FakeArm({})]) == []
