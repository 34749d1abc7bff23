"""The baseline of the gate: by hand, and by enumerating every outcome of two attempts whose skills are written from them."""

import itertools
from dataclasses import replace

import pytest
import torch
from test_compose import batch, gradient, run

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective.baseline import leave_out_means
from seedlab.objective.losses import gate

CFG = ObjectiveConfig(rl_coef=0.0, kl_coef=0.0, opd_coef=1.0)


def test_a_row_gets_the_mean_gate_of_the_others():
    g = [torch.tensor([0.2, 0.4]), torch.tensor([0.9]), torch.tensor([]), torch.tensor([0.5, 0.6, 0.7])]
    own = [0, 1, 1, 2]  # rows 1 and 2 are of one trajectory
    assert leave_out_means(g, own, [{t} for t in own]) == pytest.approx([(0.9 + 1.8) / 4, (0.6 + 1.8) / 5, (0.6 + 1.8) / 5, 1.5 / 3])
    assert leave_out_means(g[:1], [0], [{0}]) == [0.0]


def test_rows_that_read_its_skill_are_left_out_too():
    g = [torch.tensor([0.2]), torch.tensor([0.4]), torch.tensor([0.9])]
    assert leave_out_means(g, [0, 1, 2], [{1}, {2}, {0}]) == pytest.approx([0.4, 0.9, 0.2])  # each reads the next one's
    assert leave_out_means(g, [0, 1, 2], [{1, 2}, {0, 2}, {0, 1}]) == [0.0] * 3
    assert leave_out_means(g, [0, 1, 2], [()] * 3) == pytest.approx([0.65, 0.55, 0.3])


def test_the_gradient_is_minus_gate_less_baseline():
    b = batch()
    baseline = torch.rand(6, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64).expand(6, 5)
    with_it = replace(b, baseline=baseline)
    g = gate(b.logp_teacher - b.logp, CFG.beta)
    torch.testing.assert_close(gradient(with_it, CFG)[0], -(g - baseline) * b.mask_opd / b.mask_opd.sum(), atol=1e-15, rtol=0)
    assert (gradient(with_it, CFG)[0] > 0).any()  # a token with a small gate is pushed down
    _, out = run(with_it, CFG)
    torch.testing.assert_close(out.gate, g * b.mask_opd, atol=1e-15, rtol=0)
    torch.testing.assert_close(out.net_coefficient, (g - baseline) * b.mask_opd, atol=1e-15, rtol=0)
    zero = replace(b, baseline=torch.zeros(6, 5, dtype=torch.float64))
    assert torch.equal(gradient(zero, CFG)[0], gradient(b, CFG)[0])


@pytest.mark.parametrize("reads", ["own", "mate"])
def test_the_expected_gradient_is_unchanged_only_where_its_own_outcome_is_left_out(reads):
    """Three attempts, one token of three values each; a skill is its writer's token.  All 27 outcomes, weighted exactly."""
    g = torch.Generator().manual_seed(3)
    policy = torch.softmax(torch.randn(3, generator=g, dtype=torch.float64), 0)
    teacher = torch.log_softmax(torch.randn(3, 3, generator=g, dtype=torch.float64), 1)  # [skill, token]
    score = torch.eye(3, dtype=torch.float64) - policy  # gradient of log pi(v) in the logits
    source = {"own": [0, 1, 2], "mate": [1, 2, 0]}[reads]
    expected = {name: torch.zeros(3, dtype=torch.float64) for name in ("none", "ours", "all", "own left out")}
    for outcome in itertools.product(range(3), repeat=3):
        weight = torch.stack([policy[v] for v in outcome]).prod()
        gates = [gate(teacher[outcome[s], v] - policy[v].log(), 5.0) for v, s in zip(outcome, source)]
        rows = [x[None] for x in gates]
        found = {
            "none": [0.0] * 3, "ours": leave_out_means(rows, [0, 1, 2], [{s} for s in source]), "all": [float(sum(gates)) / 3] * 3,
            "own left out": leave_out_means(rows, [0, 1, 2], [()] * 3),
        }
        for name, b in found.items():
            expected[name] += weight * sum((x - b[i]) * score[v] for i, (x, v) in enumerate(zip(gates, outcome)))
    torch.testing.assert_close(expected["ours"], expected["none"], atol=1e-12, rtol=0)
    assert (expected["all"] - expected["none"]).abs().max() > 1e-2
    tied = (expected["own left out"] - expected["none"]).abs().max()
    assert tied > 1e-3 if reads == "mate" else tied < 1e-12
