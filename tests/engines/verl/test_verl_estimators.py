"""GRPO, RLOO, the clipped loss and GSPO's ratio against verl's own functions on random groups."""

import json
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


def test_our_estimators_are_verls(under_verl):
    done = under_verl(Path(__file__).parent / "estimator_values.py", timeout=280)
    report = json.loads(done.stdout.strip().splitlines()[-1])
    assert len(report["worst"]) == 3 + 2 * 2 * 3 and report["smallest_gradient"] > 1e-3
    for name, gap in report["worst"].items():
        assert gap < 1e-6, (name, report)
