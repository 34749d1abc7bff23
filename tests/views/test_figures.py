import json

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from fake_run import config, fake_run

from seedlab.analysis.curves import curve_summary, smoothed
from seedlab.analysis.frames import Arm, load_arms
from seedlab.analysis.statistics import mean_interval
from seedlab.views.figures import CONFIG, ROLE_COLOURS, bin_shares, colours, curves_figure, curves_table, figure_html, histogram_figure, tie_figure


class FakeArm(Arm):
    def __init__(self, name, frame, role="other"):
        super().__init__(name)
        self._frame, self._role = frame, role

    role = property(lambda self: self._role)

    def curve(self, metric):
        return self._frame


def test_colours_do_not_depend_on_the_order_or_number_of_arms():
    seed, grpo, odd = (FakeArm(n, None, r) for n, r in (("s", "seed-sft"), ("g", "grpo-base"), ("x", "other")))
    for arms in ([seed, grpo, odd], [odd, grpo, seed], [seed]):
        assert colours(arms)["s"] == ROLE_COLOURS["seed-sft"]
    assert len(set(colours([seed, grpo, odd, FakeArm("y", None), FakeArm("z", None, "seed-sft")]).values())) == 5


def test_band_is_the_t_interval_and_single_seeds_are_thin():
    frame = pd.DataFrame({0: [0.1, 0.2], 1: [0.3, 0.6]})
    summary = curve_summary(frame)
    expected = mean_interval([0.2, 0.6])
    assert summary.loc[1].tolist() == [expected.estimate, expected.low, expected.high, 2]
    figure = curves_figure([FakeArm("a", frame)], "m", "title", "nats")
    band, *thin, mean = figure.data
    assert list(band.y[:2]) == pytest.approx(summary["high"], rel=1e-5) and list(band.y[2:]) == pytest.approx(summary["low"][::-1], rel=1e-5)
    assert [t.line.width for t in thin] == [0.8, 0.8] and mean.line.width == 2.6 and list(mean.y) == pytest.approx([0.2, 0.4])


def test_the_band_of_a_share_stays_between_0_and_1():
    frame = pd.DataFrame({0: [0.1], 1: [0.9]})
    assert list(curves_figure([FakeArm("a", frame)], "m", "title", "share").data[0].y) == [1.0, 0.0]
    assert curves_figure([FakeArm("a", frame)], "m", "title", "nats").data[0].y[0] > 1.0


def test_one_seed_has_no_band_and_no_arm_no_figure():
    figure = curves_figure([FakeArm("a", pd.DataFrame({0: [0.1, np.nan, 0.3]}))], "m", "title", "share")
    assert len(figure.data) == 1 and figure.data[0].y == (0.1, None, 0.3)
    assert curves_figure([FakeArm("a", pd.DataFrame())], "m", "title", "share") is None


def test_smoothing_looks_back_only():
    assert smoothed(pd.DataFrame({0: [0.0, 2.0, 4.0]}), 2)[0].tolist() == [0.0, 1.0, 3.0]


def test_shares_count_outliers_in_the_last_bins():
    assert bin_shares(np.array([-5.0, 0.1, 0.9, 7.0]), np.array([0.0, 0.5, 1.0])).tolist() == [0.5, 0.5]
    figure = histogram_figure({"a": np.array([0.2])}, "t", "x", np.array([0.0, 0.5, 1.0]), {"a": "#000000"})
    assert figure.data[0].y == (1.0, 0.0, 0.0)


def test_hostile_names_cannot_leave_the_script():
    made = figure_html(go.Figure(go.Scatter(x=[1], y=[1], name="</script><script>alert(1)</script>")), "fig", "<table></table>")
    assert made.count("</script>") == 1 and "\\u003c/script>" in made


def test_nothing_offers_to_upload_a_figure():
    made = figure_html(go.Figure(), "fig", "")
    assert json.dumps(CONFIG) in made
    assert CONFIG["displaylogo"] is False and CONFIG["showSendToCloud"] is False and CONFIG["plotlyServerURL"] == ""


def test_the_table_beside_a_figure_has_its_numbers(tmp_path):
    arms = load_arms({"SEED": [fake_run(tmp_path / "a", config("seed", seed=0)), fake_run(tmp_path / "b", config("seed", seed=1))]})
    made = curves_table(arms, "rollout/tie_rate")
    assert made.count("0.500 (2)") == 2 and "SEED (seeds)" in made


class TwoCurves(FakeArm):
    def __init__(self, name, success, ties):
        super().__init__(name, None)
        self._curves = {"rollout/success": success, "rollout/tie_rate": ties}

    def curve(self, metric):
        return self._curves[metric]


def test_ties_stand_beside_the_chance_of_a_tie():
    success, ties = pd.DataFrame({0: [0.85, 0.5], 1: [0.95, np.nan]}), pd.DataFrame({0: [0.3, 0.1], 1: [0.7, 0.2]})
    line, points = tie_figure([TwoCurves("a", success, ties)], 8).data
    assert dict(zip(line.x, line.y))[0.85] == pytest.approx(0.272, abs=5e-4) and line.y[0] == line.y[-1] == 1.0
    # A point needs both numbers.
    assert sorted(zip(points.x, points.y, points.text)) == [(0.5, 0.1, "update 1, seed 0"), (0.85, 0.3, "update 0, seed 0"), (0.95, 0.7, "update 0, seed 1")]
    assert tie_figure([TwoCurves("a", pd.DataFrame(), pd.DataFrame())], 8) is None


def test_without_scripts_words_stand_in_the_figures_place():
    made = figure_html(go.Figure(), "fig", "<table></table>")
    before = made.split("<script>")[0]
    assert "needs JavaScript" in before and "min-height" not in before and made.index('e.textContent=""') < made.index("Plotly.newPlot")
