"""The in-process engine and the verl path on one fixed batch: equal advantages, gates, losses, gradients, steps."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


OPID = ("objective.skill_advantage=added", "objective.episode_coef=0.3", "objective.step_coef=0.7", "objective.critical_steps=2")
CASES = [
    ("conversation", "token-mean", ()), ("step", "seq-mean-token-mean", ()), ("conversation", "token-mean", (*OPID, "objective.baseline=mean")),
    ("step", "seq-mean-token-mean", ("objective.ratio=sequence", "objective.skill_advantage=scaled", "objective.schedule=ramp", "objective.schedule_updates=2")),
]  # fmt: skip


@pytest.mark.parametrize("layout, aggregation, more", CASES)
def test_two_ranks_equal_the_in_process_engine(under_verl, tmp_path, layout, aggregation, more):
    """Rank 1 has no OPD token at all (case C7), and the rows are no multiple of the ranks."""
    script = Path(__file__).parent / "parity_ranks.py"
    under_verl("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script, layout, aggregation, tmp_path, *more, timeout=800)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["opd_tokens"] > 0 and report["tokens"] > report["opd_tokens"]
    assert report["micro_batches"] > 1
    assert report["gradient_size"] > 1e-2 and report["moved"] > 1e-4 and report["clear"] > 0.2
    for name in ("advantage", "gate", "logp", "entropy", "ratio", "loss", "gradient", "parameters"):
        assert report[name] < 1e-5, (name, report)
    assert report["equal_ranks"]
    assert (report["changed_advantages"] > 0) == bool(more)
    assert (report["sequence_ratio"] == 1) == ("objective.ratio=sequence" in more)
