import json
import subprocess
import sys

import pytest

from seedlab import theory
from seedlab.errors import UserError
from seedlab.theory import bulk, run
from seedlab.theory.claims import ClaimResult


def test_all_claims_hold():
    claims = theory.run_all(seed=3, instances=120, vocabulary=12, quick=True)
    assert [c.name for c in claims if c.verdict == "fail"] == []
    assert len({c.name for c in claims}) == len(claims) == 25


def test_the_same_arguments_give_the_same_numbers():
    assert bulk.claims(1, 60, 9) == bulk.claims(1, 60, 9) != bulk.claims(2, 60, 9)


def test_bad_arguments():
    for bad, match in (({"vocabulary": 1}, "vocabulary"), ({"instances": 0}, "instances"), ({"beta": 0.0}, "beta")):
        with pytest.raises(UserError, match=match):
            run.run_all(**bad)
    assert theory.main(["--vocabulary", "1"]) == 2


def fake(error):
    return ClaimResult("claim", "a = b", 7, error, 1e-9)


def test_command_line(monkeypatch, capsys):
    monkeypatch.setattr(run, "run_all", lambda *a: [fake(1e-12)])
    assert theory.main(["--json"]) == 0
    (claim,) = json.loads(capsys.readouterr().out)["claims"]
    assert claim["verdict"] == "pass" and claim["instances"] == 7 and claim["worst_error"] == 1e-12
    assert set(claim) >= {"name", "instances", "worst_error", "tolerance", "verdict"}
    monkeypatch.setattr(run, "run_all", lambda *a: [fake(1e-12), fake(1.0)])
    assert theory.main([]) == 1
    captured = capsys.readouterr()
    assert "1 of 2 claims hold" in captured.out and "failed: claim" in captured.err


def test_a_nan_or_an_empty_claim_fails(monkeypatch, capsys):
    assert fake(float("nan")).verdict == "fail" and ClaimResult("c", "", 0, 0.0, 1.0).verdict == "fail"
    monkeypatch.setattr(run, "run_all", lambda *a: [fake(float("nan"))])
    assert theory.main(["--json"]) == 1
    json.loads(capsys.readouterr().out)  # valid JSON without NaN


def test_the_command_module_imports_no_torch():
    code = "import sys, seedlab.theory, seedlab.theory.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
