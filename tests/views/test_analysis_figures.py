"""Figures of the analysis frames: what they draw is what the frames say, in one colour per arm."""

import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from fake_run import config, fake_run

from seedlab import analysis
from seedlab.errors import UserError
from seedlab.views import analysis_figures as figures
from seedlab.views import theme
from seedlab.views.explorer import Explorer
from seedlab.views.export import DRAWN, export_analysis

SEED, GRPO = "SEED from θ_sft", "GRPO from θ_sft"


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        fake_run(root / f"seed-s{seed}", config("seed", seed=seed), success=0.5 + 0.25 * seed)
        fake_run(root / f"grpo-s{seed}", config("seed/no-opd", seed=seed), success=0.25)
    return analysis.load(root)


@pytest.fixture(scope="module")
def drawn(arms):
    """{name: (frame, figure)} of every figure that takes a frame."""
    frames = {
        "gates": analysis.gates(arms), "skills": analysis.skill_quality(arms), "lengths": analysis.episode_lengths(arms),
        "efficiency": analysis.sample_efficiency(arms), "task_types": analysis.by_task_type(arms), "ties": analysis.tie_theory(arms),
        "differences": analysis.paired_differences(arms), "costs": analysis.cost_per_update(arms),
    }  # fmt: skip
    return {name: (frame, DRAWN[name](frame, arms)) for name, frame in frames.items()}


def lines(figure, name):
    return [trace for trace in figure.data if trace.name == name and trace.line.width]


def test_an_arm_has_its_methods_colour_in_every_figure(arms, drawn):
    assert figures.styles(arms) == {SEED: theme.method_style("seed"), GRPO: theme.method_style("seed/no-opd")}
    for name in ("lengths", "efficiency", "skills"):
        assert {t.line.color for t in lines(drawn[name][1], SEED)} == {theme.method_colour("seed")}
    assert {t.marker.color for t in drawn["task_types"][1].data if t.name == GRPO} == {theme.method_colour("seed/no-opd")}


def test_every_figure_has_a_title_axes_and_a_height(arms, drawn):
    for figure in [*(figure for _, figure in drawn.values()), figures.metric_figure(arms, "rollout/success"), figures.tie_theory_figure(drawn["ties"][0])]:
        assert figure.layout.title.text and figure.layout.height and figure.layout.template.layout.colorway == theme.TEMPLATE.layout.colorway
        assert any(axis.title.text for axis in (*figure.select_xaxes(), *figure.select_yaxes())) and figure.data


def test_gate_bands_hold_the_quantiles(drawn):
    frame, figure = drawn["gates"]
    means = frame.groupby("update")[["q05", "q50", "q95"]].mean()
    outer = next(t for t in figure.data if t.fill == "toself")
    assert list(outer.y) == pytest.approx([*means["q95"], *means["q05"][::-1]])
    assert list(next(t for t in figure.data if t.name == f"{SEED}: median").y) == pytest.approx(list(means["q50"]))


def test_bars_show_counts_and_intervals(drawn):
    frame, figure = drawn["task_types"]
    bar = next(t for t in figure.data if t.name == SEED)
    part = frame[(frame["arm"] == SEED) & (frame["panel"] == "seen")]
    assert list(bar.x) == list(part["share"]) and list(bar.x + np.array(bar.error_x.array)) == pytest.approx(list(part["high"]))


def test_the_tie_curves_are_those_of_the_theory(arms, drawn):
    frame, figure = drawn["ties"]
    equal, spread = (next(t for t in figure.data if t.name.startswith(start)) for start in ("p^N", "mean over success rates"))
    assert min(equal.y) == pytest.approx(2 * 0.5**4) and np.all(np.array(spread.y) >= np.array(equal.y) - 1e-9)
    points = figures.tie_theory_figure(frame)
    assert [list(t.y) for t in points.data] == [list(frame[c]) for c in ("observed", "spread", "equal")]


def test_lengths_are_pooled_over_episodes_not_over_seeds(drawn):
    frame, figure = drawn["lengths"]
    part = frame[(frame["arm"] == SEED) & (frame["outcome"] == "failure") & (frame["update"] == 0)]
    trace = [t for t in figure.data if t.name == SEED][1]
    assert trace.y[0] == pytest.approx((part["steps"] * part["episodes"]).sum() / part["episodes"].sum())


@pytest.mark.parametrize("name", ["gates", "skills", "lengths", "efficiency", "task_types", "ties", "differences"])
def test_without_rows_a_figure_says_so(arms, drawn, name):
    empty = DRAWN[name](drawn[name][0].iloc[:0], arms)
    assert empty.layout.annotations[0].text.startswith("Nothing to draw: ") and not empty.data
    assert figures.metric_figure(arms, "cost/peak_memory_mb").layout.annotations[0].text == "Nothing to draw: no run here has cost/peak_memory_mb."


def test_figures_refuse_no_interval_silently(arms):
    one = [analysis.load([arm.runs[0].path])[0] for arm in arms]
    frame = analysis.paired_differences(one)
    assert frame["low"].isna().all() and "(1 pair), without an interval" in figures.differences_figure(frame).layout.title.text


# ---- explorer


def test_the_explorer_shows_what_is_chosen(arms):
    explorer = Explorer(arms)
    frame = explorer.frame()
    assert set(frame["metric"]) == {"opd/gate_mean", "analyzer/exact", "rollout/tie_rate"} and explorer.limits == (0, 1)
    explorer.arms, explorer.updates = [GRPO], (1, 1)
    frame = explorer.frame()
    assert set(frame["arm"]) == {GRPO} and set(frame["update"]) == {1} and set(frame["panel"]) == {2}
    assert SEED not in explorer.picture() and GRPO in explorer.picture()


def test_the_selectors_are_linked_to_the_picture(arms):
    pytest.importorskip("ipywidgets", reason="selectors need the extra `notebooks`")
    explorer = Explorer(arms)
    controls, drawing = explorer.widget().children
    chosen, (updates, window, measure) = controls.children[0], controls.children[1].children
    before = drawing.value
    measure.value = "location"
    assert explorer.measure == "location" and "Own skills: location" in drawing.value != before
    chosen.value = (SEED,)
    assert GRPO not in drawing.value
    window.value, updates.value = 2, (1, 1)
    assert explorer.window == 2 and explorer.updates == (1, 1) and drawing.value == explorer.picture()


def test_the_explorers_fallback_needs_no_script(arms):
    explorer = Explorer(arms)
    page = explorer._repr_html_()
    assert "<script" not in page and page.count("data:image/svg+xml") == 3
    assert explorer._repr_mimebundle_()["text/html"].startswith(page)
    explorer.arms, explorer._styles["<b>x"] = ["<b>x"], ("#000000", "solid")
    assert "<b>x" not in explorer._repr_html_() and "<script" not in explorer.to_html()


def test_wrong_choices_are_refused(arms, tmp_path):
    with pytest.raises(UserError, match="did you mean 'accepted'"):
        Explorer(arms, measure="acepted")
    with pytest.raises(UserError, match="nothing to explore yet"):
        Explorer([])


# ---- export


def test_the_export_is_whole_and_offline(arms, drawn, tmp_path):
    tables = {name: frame for name, (frame, _) in drawn.items()} | {"own": pd.DataFrame({"a": ["</script><script>alert(1)</script>"], "b": [0.5]})}
    page = export_analysis(tmp_path / "out", arms, tables, {"own": go.Figure(go.Scatter(y=[1, 2]))})
    for name, frame in tables.items():
        read = pd.read_csv(tmp_path / "out" / f"{name}.csv")
        assert list(read.columns) == list(frame.columns) and len(read) == len(frame)
    text = page.read_text()
    assert text.count("Plotly.newPlot(") >= len(tables) and "<script>alert(1)" not in text
    body = text[text.index("<body>") :]
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", body) and "default-src 'none'" in text


def test_a_table_needs_a_name_that_names_a_file(arms, tmp_path):
    for name in ("../up", "a b", ""):
        with pytest.raises(UserError, match="cannot name a file"):
            export_analysis(tmp_path, arms, {name: pd.DataFrame()})
    assert list(tmp_path.iterdir()) == []
