import json

import numpy as np
import pandas as pd
import pytest

from seedlab.theory import figures, studies
from seedlab.theory.claims import ClaimResult
from seedlab.theory.gate_view import GateView


def test_gate_sensitivity_matches_finite_differences():
    table = studies.gate_sensitivity((1, 10))
    part = table[table["beta"] == 10]
    np.testing.assert_allclose(np.gradient(part["gate"], part["delta"])[1:-1], part["slope"].iloc[1:-1], atol=5e-3)
    assert part.loc[part["delta"].abs() < 1e-9, "gate"].item() == pytest.approx(0.5)


def test_tie_curve_is_symmetric_and_falls_with_group_size():
    table = studies.tie_curve((2, 8)).pivot(index="success_rate", columns="group_size", values="tie_probability")
    np.testing.assert_allclose(table[8].to_numpy(), table[8].to_numpy()[::-1], atol=1e-12)
    assert (table[8] <= table[2] + 1e-12).all() and table.loc[0.85, 8] == pytest.approx(0.272, abs=5e-4)


def test_analyzer_noise():
    table = studies.analyzer_noise(seed=1, draws=200)
    exact = table[table["kind"] == "correlation"]
    np.testing.assert_allclose(exact["relative"], exact["level"], atol=1e-9)  # the gain is linear in the correlation
    for kind in ("additive", "clipped"):
        clean = table[(table["kind"] == kind) & (table["level"] == 0)]
        np.testing.assert_allclose(clean["relative"], 1.0, atol=0.2 if kind == "clipped" else 1e-12)
    spread = table[table["kind"] == "clipped"].groupby("level")["relative"].agg(["median", "std"])
    assert spread["median"].is_monotonic_decreasing and spread["std"].iloc[-1] > 0.2  # one draw says little


def test_staleness_resets_at_each_refresh():
    table = studies.staleness_rounds(rounds=10)
    never = table[(table["refresh"] == "never") & (table["round"] % 2 == 0)]["gap"]
    assert [round(x, 4) for x in never] == [0, 0.0632, 0.1066, 0.1350, 0.1531, 0.1644]
    assert (table[table["refresh"] == "every 1"]["gap"] == 0).all()
    five = table[table["refresh"] == "every 5"].set_index("round")["gap"]
    assert five[5] == five[0] == 0 < five[1] < five[4]
    assert (table["gap"] <= table["bound"] + 1e-15).all()


def test_one_kl_term_resists_and_the_other_pulls():
    table = studies.two_kl_terms(steps=50)
    assert table["penalty"].iloc[0] == pytest.approx(0, abs=1e-15) and table["penalty"].iloc[-1] > 0
    assert table["distillation"].iloc[0] > table["distillation"].iloc[-1] > 0
    free = studies.two_kl_terms(steps=50, kl_coef=0.0)
    assert free["penalty"].iloc[-1] > table["penalty"].iloc[-1]
    assert free["distillation"].iloc[-1] < table["distillation"].iloc[-1]


def test_net_coefficient():
    table = studies.net_coefficients((0.01, 1.0), beta=5.0)
    np.testing.assert_allclose(table["net_coefficient"], table["advantage"] + table["opd_coef"] * table["gate"])
    at_paper = table[(table["opd_coef"] == 0.01) & (table["delta"] == 0) & (table["advantage"] == 1)]
    assert at_paper["net_coefficient"].item() == pytest.approx(1.005)  # half a per cent


def test_identities_and_the_worked_example():
    table = studies.identities(instances=100)
    np.testing.assert_allclose(table["gain"], table["covariance"], atol=1e-10)
    np.testing.assert_allclose(table["norm"], table["variance"], atol=1e-10)
    assert (table["stale_gap"] <= table["gate_bound"] + 1e-12).all()
    tokens, summary = studies.worked_example()
    np.testing.assert_allclose(tokens["trainer_gradient"], tokens["closed_form"], atol=1e-14)
    assert tokens["target"].sum() == pytest.approx(1) and summary["Z"].item() == pytest.approx((tokens["pi"] * tokens["gate"]).sum())


def test_every_figure_draws_and_needs_no_network():
    claims = [ClaimResult("a", "x = y", 3, 0.0, 0.0), ClaimResult("b", "x = y", 3, 1.0, 1e-9)]
    measured = pd.DataFrame({"update": [0, 1], "success_rate": [0.3, 0.5], "tie_rate": [0.4, 0.3]})
    drawn = [
        figures.claims_figure(claims), figures.gate_figure(studies.gate_sensitivity()),
        figures.tie_figure(studies.tie_curve(), measured), figures.noise_figure(studies.analyzer_noise(draws=20)),
        figures.staleness_figure(studies.staleness_rounds()), figures.two_kl_figure(studies.two_kl_terms(steps=5)),
        figures.net_coefficient_figure(studies.net_coefficients()), figures.target_figure(studies.worked_example()[0]),
        *figures.identity_figures(studies.identities(instances=50)).values(),
    ]
    for figure in drawn:
        data = json.loads(figure.to_json())
        assert data["data"] and "http" not in figure.to_json()
    assert list(drawn[0].data[0].marker.color) == ["#009E73", "#D55E00"]  # a failed claim is red
    assert any(trace.name == "measured" for trace in drawn[2].data)


def test_gate_view():
    view = GateView(5.0, 0.1)
    assert str(view) == "beta 5, delta +0.100 nats: gate 0.6225"
    assert "<script" not in view.to_html() and "0.6225" in view._repr_html_()


def test_the_sliders_redraw():
    pytest.importorskip("ipywidgets", reason="the sliders need ipywidgets (extra: notebooks)")
    beta, delta, drawing = GateView(5.0, 0.1).widget().children
    beta.value = 10.0
    assert "0.7311" in drawing.value
    delta.value = 0.3
    assert "0.9526" in drawing.value
