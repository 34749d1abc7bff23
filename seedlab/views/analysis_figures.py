"""Figures of the frames in `seedlab.analysis`.  Each takes a frame, and the arms where their colours matter.

An arm has the same colour in every figure.  Intervals are bands or bars; where there is one seed there is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from seedlab.analysis.curves import SKILL_MEASURES, cost_table
from seedlab.analysis.frames import PHASES, Arm
from seedlab.analysis.ties import tie_probability_of_beta
from seedlab.store.metrics import describe
from seedlab.views.figures import DASHES, colours, cost_figure, curves_figure, tie_figure
from seedlab.views.theme import SOFT, translucent

HEIGHT = 430
AXES = {"trajectories": "trajectories played", "tokens": "tokens computed", "flops": "FLOP, estimated", "seconds": "seconds, without diagnostics"}


def metric_figure(arms: Sequence[Arm], metric: str, *, window: int = 1, title: str = "") -> go.Figure:
    """A metric's curve per arm with its interval over seeds; title and unit come from the metrics registry."""
    unit, sentence = describe(metric)
    figure = curves_figure(arms, metric, title or sentence[0].upper() + sentence[1:], unit, window=window)
    if figure is None:
        return nothing(f"no run here has {metric}")
    # From 0 on, so that noise does not look like a trend; a correlation has a meaning below 0 too.
    return standing_alone(figure).update_yaxes(rangemode="tozero")


def standing_alone(figure: go.Figure, height: int = HEIGHT) -> go.Figure:
    """A figure of the report, which takes the page's colours, in the template's own: a notebook's page may be dark."""
    title = figure.layout.title.text
    figure.update_layout(template="seedlab", font=None, paper_bgcolor=None, plot_bgcolor=None, modebar=None, legend=None, margin=None)
    figure.update_layout(title={"text": title, "font": None, "x": None}, height=height)
    return _legend_below(figure)


def nothing(why: str) -> go.Figure:
    """What stands where there is nothing to draw."""
    figure = go.Figure()
    figure.add_annotation(text=f"Nothing to draw: {why}.", showarrow=False, font={"size": 14, "color": SOFT}, x=0.5, y=0.5, xref="paper", yref="paper")
    figure.update_layout(height=150, xaxis={"visible": False}, yaxis={"visible": False}, margin={"t": 20, "b": 20})
    return figure


def styles(arms: Sequence[Arm]) -> dict[str, tuple[str, str]]:
    """{arm name: (colour, dash)}."""
    return {arm.name: (colour, DASHES.get(arm.role, "solid")) for arm, colour in zip(arms, colours(arms).values())}


def gates_figure(frame: pd.DataFrame, arms: Sequence[Arm]) -> go.Figure:
    """Median gate over updates, with the bands that hold the middle half and nine tenths of the tokens (`gates`)."""
    if frame.empty:
        return nothing("no arm here has stored tokens with a teacher")
    figure, style = go.Figure(), styles(arms)
    means = frame.drop(columns=["seed", "tokens"]).groupby(["arm", "update"], sort=False).mean()
    for arm in dict.fromkeys(frame["arm"]):
        part, (colour, dash) = means.loc[arm], style[arm]
        for low, high, alpha in (("q05", "q95", 0.10), ("q25", "q75", 0.22)):
            _band(figure, part.index, part[low], part[high], colour, alpha, arm)
        figure.add_scatter(x=part.index, y=part["q50"], name=f"{arm}: median", line={"color": colour, "width": 2.6, "dash": dash}, legendgroup=arm)
        figure.add_scatter(x=part.index, y=part["mean"], name=f"{arm}: mean", line={"color": colour, "width": 1.2, "dash": "dot"}, legendgroup=arm)
    figure.add_hline(y=0.5, line={"color": SOFT, "width": 1, "dash": "dash"}, annotation_text="½: the skill changed nothing", annotation_font_size=11)
    figure.update_layout(title="Gate over updates: median, middle half and nine tenths of the tokens")
    figure.update_xaxes(title="update", dtick=_whole(frame)).update_yaxes(title="gate g = σ(βΔ)", range=[0, 1])
    return _legend_below(figure)


def _band(figure: go.Figure, x, low, high, colour: str, alpha: float, group: str, **place) -> None:
    figure.add_scatter(
        x=[*x, *reversed(x)], y=[*high, *reversed(list(low))], fill="toself", fillcolor=translucent(colour, alpha), mode="lines", line={"width": 0},
        hoverinfo="skip", showlegend=False, legendgroup=group, **place,
    )  # fmt: skip


def ties_figure(arms: Sequence[Arm], theory: pd.DataFrame) -> go.Figure:
    """Tie rates over success with two curves: all tasks equally hard, and as unequal as the runs' groups say (`tie_theory`)."""
    sizes = {run.config.stage2.group_size for arm in arms for run in arm.runs.values()}
    if len(sizes) != 1 or theory.empty:
        return nothing(f"the runs have groups of different sizes ({sorted(sizes)})" if len(sizes) > 1 else "no run has a finished group")
    (size,) = sizes
    figure = tie_figure(arms, size)
    if figure is None:
        return nothing("no update has both a success and a tie rate")
    precision = float(np.median(theory["a"] + theory["b"]))
    share = np.linspace(0.0, 1.0, 101)
    curve = [tie_probability_of_beta(p * precision, (1 - p) * precision, size) for p in share]
    figure.add_scatter(
        x=share, y=curve, mode="lines", line={"color": SOFT, "width": 2, "dash": "dash"}, hoverinfo="skip",
        name=f"mean over success rates spread as here (beta, a + b = {precision:.2g})",
    )  # fmt: skip
    return standing_alone(figure)


def tie_theory_figure(frame: pd.DataFrame) -> go.Figure:
    """Observed tie rate with its interval beside the two expectations, per arm and stretch of updates (`tie_theory`)."""
    if frame.empty:
        return nothing("no run has a finished group")
    names = [f"{r.arm}<br>updates {r.first}–{r.last}" for r in frame.itertuples()]
    figure = go.Figure()
    figure.add_scatter(
        x=names, y=frame["observed"], mode="markers", name="observed, 95 % interval", marker={"size": 11, "color": "#1d2430"},
        error_y={"array": frame["high"] - frame["observed"], "arrayminus": frame["observed"] - frame["low"], "color": "#1d2430"},
        text=[f"{r.groups} groups, success {r.success:.3f}" for r in frame.itertuples()],
    )  # fmt: skip
    figure.add_scatter(x=names, y=frame["spread"], mode="markers", name="expected, tasks as unequal as here", marker={"symbol": "diamond-open", "size": 12, "color": "#D55E00", "line": {"width": 2}})
    figure.add_scatter(x=names, y=frame["equal"], mode="markers", name="expected, tasks equally hard", marker={"symbol": "x-thin", "size": 11, "color": "#0072B2", "line": {"width": 2, "color": "#0072B2"}})
    figure.update_layout(title="How often groups tied, and how often they should").update_yaxes(title="share of groups tied", range=[0, 1.02])
    return _legend_below(figure)


def skills_figure(frame: pd.DataFrame, arms: Sequence[Arm]) -> go.Figure:
    """Quality of the policy's own skills over updates, a panel per measure, mean over seeds (`skill_quality`)."""
    measures = [m for m in SKILL_MEASURES if m in set(frame["measure"])]
    if not measures:
        return nothing("no arm here writes skills")
    columns = min(3, len(measures))
    rows = -(-len(measures) // columns)
    titles = [f"{m.replace('_', ' ')} ({describe(f'analyzer/{m}')[0]})" for m in measures]
    figure, style = make_subplots(rows, columns, subplot_titles=titles, vertical_spacing=0.16), styles(arms)
    means = frame.groupby(["measure", "arm", "update"], sort=False)["value"].mean()
    for place, measure in enumerate(measures):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        for arm in dict.fromkeys(means.loc[measure].index.get_level_values("arm")):
            part, (colour, dash) = means.loc[measure, arm], style[arm]
            figure.add_scatter(x=part.index, y=part, name=arm, legendgroup=arm, showlegend=place == 0, line={"color": colour, "dash": dash, "width": 2.2}, **at)
        if describe(f"analyzer/{measure}")[0] == "share":
            figure.update_yaxes(range=[0, 1.03], **at)
        figure.update_xaxes(title="update", **at) if at["row"] == rows else None
    figure.update_xaxes(dtick=_whole(frame)).update_layout(title="Own skills over updates", height=190 + 220 * rows)
    return _legend_below(figure)


def lengths_figure(frame: pd.DataFrame, arms: Sequence[Arm]) -> go.Figure:
    """Mean number of steps of won and of lost episodes over updates (`episode_lengths`)."""
    if frame.empty:
        return nothing("no run has stored trajectories")
    figure, style = make_subplots(1, 2, shared_yaxes=True, subplot_titles=("episodes won", "episodes lost"), horizontal_spacing=0.04), styles(arms)
    weighted = frame.assign(total=frame["steps"] * frame["episodes"]).groupby(["outcome", "arm", "update"], sort=False)[["total", "episodes"]].sum()
    for column, outcome in enumerate(("success", "failure"), start=1):
        for arm in style:
            part = weighted[(weighted.index.get_level_values(0) == outcome) & (weighted.index.get_level_values(1) == arm)].droplevel([0, 1]).sort_index()
            colour, dash = style[arm]
            figure.add_scatter(
                x=part.index, y=part["total"] / part["episodes"], name=arm, legendgroup=arm, showlegend=column == 1, mode="lines+markers",
                line={"color": colour, "dash": dash, "width": 2.2}, text=[f"{n} episodes" for n in part["episodes"]], row=1, col=column,
            )  # fmt: skip
    figure.update_xaxes(title="update", dtick=_whole(frame)).update_yaxes(rangemode="tozero").update_yaxes(title="steps", row=1, col=1)
    figure.update_layout(title="Length of an episode, by outcome")
    return _legend_below(figure)


def efficiency_figure(frame: pd.DataFrame, arms: Sequence[Arm], axes: Sequence[str] = ("trajectories", "flops", "seconds")) -> go.Figure:
    """The same curve against what it cost, one panel per cost, single seeds thin (`sample_efficiency`)."""
    if frame.empty:
        return nothing("no run has finished an update")
    figure, style = make_subplots(1, len(axes), shared_yaxes=True, horizontal_spacing=0.04), styles(arms)
    for column, axis in enumerate(axes, start=1):
        for (arm, seed), part in frame.groupby(["arm", "seed"], sort=False):
            colour, dash = style[arm]
            first = bool(seed == frame.loc[frame["arm"] == arm, "seed"].iloc[0])
            figure.add_scatter(
                x=part[axis], y=part["value"], name=arm, legendgroup=arm, showlegend=column == 1 and first, mode="lines+markers", marker={"size": 4},
                line={"color": colour, "dash": dash, "width": 1.6}, text=[f"seed {seed}, update {u}" for u in part["update"]], row=1, col=column,
            )  # fmt: skip
        figure.update_xaxes(title=AXES[axis], rangemode="tozero", tickformat="~s", nticks=6, row=1, col=column)
    figure.update_yaxes(rangemode="tozero").update_yaxes(title="success", row=1, col=1)
    figure.update_layout(title="Success against what it cost, one line per seed")
    return _legend_below(figure)


def costs_figure(arms: Sequence[Arm]) -> go.Figure:
    """Seconds per update by phase, one bar per arm."""
    costs = {arm.name: cost_table(arm) for arm in arms}
    costs = {name: c for name, c in costs.items() if c}
    return standing_alone(cost_figure(costs, PHASES), 230 + 60 * len(costs)) if costs else nothing("no run has recorded its costs")


def task_types_figure(frame: pd.DataFrame, arms: Sequence[Arm]) -> go.Figure:
    """Success per task type and panel with Wilson intervals (`by_task_type`)."""
    panels = list(dict.fromkeys(frame["panel"]))
    if not panels:
        return nothing("no run has been evaluated")
    figure, palette = make_subplots(1, len(panels), shared_yaxes=True, subplot_titles=panels, horizontal_spacing=0.06), colours(arms)
    for column, panel in enumerate(panels, start=1):
        for arm in dict.fromkeys(frame["arm"]):
            part = frame[(frame["panel"] == panel) & (frame["arm"] == arm)]
            figure.add_bar(
                y=part["task_type"].str.replace("_", " "), x=part["share"], name=arm, legendgroup=arm, showlegend=column == 1, orientation="h",
                marker={"color": palette[arm]}, error_x={"array": part["high"] - part["share"], "arrayminus": part["share"] - part["low"], "width": 3, "thickness": 1.2},
                text=[f"{s} of {n}" for s, n in zip(part["successes"], part["episodes"])], textposition="none", hovertemplate="%{y}: %{x:.3f} (%{text})", row=1, col=column,
            )  # fmt: skip
        figure.update_xaxes(title="share of episodes won", range=[0, 1], row=1, col=column)
    figure.update_yaxes(autorange="reversed").update_layout(title="Evaluation by task type, 95 % intervals over episodes", barmode="group", height=180 + 62 * frame["task_type"].nunique())
    return _legend_below(figure)


def differences_figure(frame: pd.DataFrame) -> go.Figure:
    """Paired differences with their intervals (`paired_differences`); without an interval only a point."""
    if frame.empty:
        return nothing("the two arms have no evaluated seed in common")
    names = [f"{r.panel}, {r.measure}" for r in frame.itertuples()]
    figure = go.Figure()
    figure.add_scatter(
        x=frame["difference"], y=names, mode="markers", marker={"size": 10, "color": "#1d2430"}, showlegend=False,
        error_x={"array": (frame["high"] - frame["difference"]).fillna(0), "color": "#1d2430"}, text=[_pairs(n) for n in frame["pairs"]],
    )  # fmt: skip
    figure.add_vline(x=0, line={"color": SOFT, "width": 1, "dash": "dash"})
    pairs = " or ".join(_pairs(n) for n in sorted(set(frame["pairs"])))
    intervals = "95 % intervals" if frame["high"].notna().any() else "without an interval"
    figure.update_layout(title=f"{frame['arm'].iloc[0]} minus {frame['baseline'].iloc[0]}, paired by seed ({pairs}), {intervals}", height=150 + 45 * len(frame))
    figure.update_xaxes(title="difference in success").update_yaxes(autorange="reversed")
    return figure


def _pairs(n: int) -> str:
    return f"{n} pair" if n == 1 else f"{n} pairs"


def losses_figure(frame: pd.DataFrame) -> go.Figure:
    """Loss of each SFT step and its trailing mean (`sft_losses`)."""
    figure = go.Figure()
    figure.add_scatter(x=frame["step"], y=frame["loss"], name="one step", mode="markers", marker={"size": 4, "color": "#9aa5b4"})
    figure.add_scatter(x=frame["step"], y=frame["loss"].rolling(10, min_periods=1).mean(), name="mean of ten", line={"color": "#D55E00", "width": 2.4})
    figure.update_layout(title="Stage 1: loss on skill (and replay) tokens", height=HEIGHT).update_xaxes(title="optimizer step").update_yaxes(title="nats per weighted token", rangemode="tozero")
    return figure


def before_after_figure(frame: pd.DataFrame) -> go.Figure:
    """What Stage 1 changed, as arrows from before to after; shares only (`before_after`)."""
    part = frame[~frame["measure"].str.contains("nats")].dropna(subset=["before", "after"])
    if part.empty:
        return nothing("nothing was measured before and after")
    figure = go.Figure()
    for row in part.itertuples():
        figure.add_scatter(x=[row.before, row.after], y=[row.measure] * 2, mode="lines", line={"color": "#c3cad4", "width": 4}, showlegend=False, hoverinfo="skip")
    for column, colour, symbol in (("before", "#6E7781", "circle-open"), ("after", "#D55E00", "circle")):
        figure.add_scatter(x=part[column], y=part["measure"], name=column, mode="markers", marker={"size": 12, "color": colour, "symbol": symbol, "line": {"width": 2}})
    figure.update_layout(title="Before and after Stage 1", height=130 + 42 * len(part)).update_xaxes(title="share", range=[-0.02, 1.02]).update_yaxes(autorange="reversed")
    return figure


def verdicts_figure(frame: pd.DataFrame) -> go.Figure:
    """Shares of accepted and rejected skills by reason, a bar per analyzer (`verdicts`)."""
    palette: Mapping[str, str] = {"ok": "#009E73", "empty": "#D55E00", "cut": "#E69F00", "unparseable": "#CC79A7", "too_short": "#0072B2", "too_long": "#56B4E9", "copied": "#8C6D31", "prompt_too_long": "#6E7781"}
    figure = go.Figure()
    for reason in dict.fromkeys(frame["reason"]):
        part = frame[frame["reason"] == reason]
        figure.add_bar(y=part["analyzer"], x=part["share"], name="accepted" if reason == "ok" else reason.replace("_", " "), orientation="h", marker={"color": palette[reason]}, text=part["skills"], textposition="auto")
    figure.update_layout(title="Verdicts on skills (numbers: skills)", barmode="stack", height=290).update_xaxes(title="share of the analyzer's skills", range=[0, 1]).update_yaxes(autorange="reversed")
    return _legend_below(figure)


def _whole(frame: pd.DataFrame) -> int:
    """Distance of ticks on an axis of updates, which are whole numbers."""
    return max(1, -(-(int(frame["update"].max()) + 1) // 10))


def _legend_below(figure: go.Figure) -> go.Figure:
    # plotly does not take a height from a template.
    figure.update_layout(height=figure.layout.height or HEIGHT)
    figure.update_layout(legend={"orientation": "h", "yref": "container", "y": 0.01, "yanchor": "bottom", "x": 0.02})
    margin = figure.layout.margin
    figure.update_layout(margin={"b": max(margin.b or 0, 100)})
    return figure
