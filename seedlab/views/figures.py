"""Plotly figures of a comparison: one colour per arm, the same everywhere, legible without colour vision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from seedlab.analysis.curves import curve_summary, smoothed
from seedlab.analysis.frames import Arm
from seedlab.objective.ties import tie_probability
from seedlab.views.template import details, number, table
from seedlab.views.theme import CONFIG, METHOD_STYLES, ROLE_METHODS, SERIES_COLOURS, SPARE_STYLES, translucent

# An arm has its method's colour; arms without a known role take their own method's, or what is left in order.
ROLE_COLOURS = {role: METHOD_STYLES[method][0] for role, method in ROLE_METHODS.items()}
OTHER_COLOURS = tuple(colour for colour, _ in SPARE_STYLES)
DASHES = {role: METHOD_STYLES[method][1] for role, method in ROLE_METHODS.items()}

# Axes and text in the page's dark colours, where the reader's system is dark.
DARK = (
    'if(matchMedia("(prefers-color-scheme: dark)").matches){var l=f.layout;(l.font=l.font||{}).color="#e3e8ee";["xaxis","yaxis"].forEach('
    'function(a){l[a]=l[a]||{};l[a].gridcolor="#343d49";l[a].zerolinecolor="#4c5765"})}'
)


def colours(arms: Sequence[Arm]) -> dict[str, str]:
    """{arm name: colour}; the first arm of a role, or of a method without one, takes the method's colour."""
    out: dict[str, str] = {}
    for arm in arms:
        wanted = ROLE_COLOURS.get(arm.role) or _method_colour(arm)
        if wanted and wanted not in out.values():
            out[arm.name] = wanted
    spare = [c for c in (*OTHER_COLOURS, *ROLE_COLOURS.values()) if c not in out.values()]
    for place, arm in enumerate(a for a in arms if a.name not in out):
        out[arm.name] = spare[place % len(spare)]
    return {arm.name: out[arm.name] for arm in arms}


def _method_colour(arm: Arm) -> str | None:
    return METHOD_STYLES.get(arm.config.method, (None,))[0] if arm.config is not None else None


def curves_figure(
    arms: Sequence[Arm], metric: str, title: str, unit: str, *, window: int = 1, limits: tuple[float, float] | None = None
) -> go.Figure | None:
    """Mean over seeds with its interval band, single seeds as thin lines; None where no run has the metric."""
    figure = go.Figure()
    palette = colours(arms)
    for arm in arms:
        curve = smoothed(arm.curve(metric), window) if len(arm.curve(metric)) else pd.DataFrame()
        if curve.empty:
            continue
        summary, colour = curve_summary(curve), palette[arm.name]
        band = summary.dropna()
        if len(band):
            low, high = band["low"], band["high"]
            bounds = limits or ((0.0, 1.0) if unit == "share" else None)
            if bounds:
                low, high = low.clip(*bounds), high.clip(*bounds)
            figure.add_scatter(
                x=[*band.index, *band.index[::-1]], y=_plain([*high, *low[::-1]]), fill="toself", fillcolor=translucent(colour, 0.13),
                mode="lines", line={"width": 0}, hoverinfo="skip", showlegend=False, legendgroup=arm.name,
            )
        if curve.shape[1] > 1:
            for seed in curve:
                figure.add_scatter(
                    x=list(curve.index), y=_plain(curve[seed]), mode="lines", line={"width": 0.8, "color": translucent(colour, 0.55)},
                    name=f"{arm.name}, seed {seed}", showlegend=False, legendgroup=arm.name,
                )
        figure.add_scatter(
            x=list(summary.index), y=_plain(summary["mean"]), mode="lines+markers" if len(summary) < 4 else "lines", name=arm.name,
            legendgroup=arm.name, line={"width": 2.6, "color": colour, "dash": DASHES.get(arm.role, "solid")},
        )
    if not figure.data:
        return None
    note = f", trailing mean over {window} updates" if window > 1 else ""
    figure.update_layout(**_layout(title + note, "update", unit))
    if limits:
        figure.update_yaxes(range=list(limits))
    updates = max((max(t.x) for t in figure.data if len(t.x)), default=0)
    figure.update_xaxes(dtick=max(1, -(-(updates + 1) // 12)))
    return figure


def histogram_figure(groups: Mapping[str, np.ndarray], title: str, axis: str, edges: np.ndarray, palette: Mapping[str, str]) -> go.Figure:
    """Shares of each group in fixed bins, drawn as steps, so that groups of different sizes compare."""
    figure = go.Figure()
    for name, values in groups.items():
        shares = bin_shares(values, edges)
        figure.add_scatter(
            x=_plain(edges), y=_plain([*shares, shares[-1]]), mode="lines", line={"shape": "hv", "width": 2, "color": palette[name]},
            fill="tozeroy", fillcolor=translucent(palette[name], 0.10), name=name,
        )
    figure.update_layout(**_layout(title, axis, "share of tokens"))
    return figure


def bin_shares(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Share of the values in each bin; what lies outside counts in the outermost bins."""
    clipped = np.clip(np.asarray(values, dtype=float), edges[0], edges[-1])
    counts = np.histogram(clipped, bins=edges)[0]
    return counts / max(1, len(clipped))


def tie_figure(arms: Sequence[Arm], group_size: int) -> go.Figure | None:
    """Each update's tie rate over its success rate, and p^N + (1-p)^N, which holds where all tasks are equally hard."""
    figure, palette = go.Figure(), colours(arms)
    share = np.linspace(0.0, 1.0, 101)
    figure.add_scatter(
        x=_plain(share), y=_plain([tie_probability(float(p), group_size) for p in share]), mode="lines", name=f"p^N + (1−p)^N, N = {group_size}",
        line={"width": 2, "color": "#8a94a3"}, hoverinfo="skip",
    )
    for arm in arms:
        p, ties = (arm.curve(m).stack().dropna() for m in ("rollout/success", "rollout/tie_rate"))
        common = p.index.intersection(ties.index)
        if len(common):
            figure.add_scatter(
                x=_plain(p[common]), y=_plain(ties[common]), mode="markers", name=arm.name, marker={"color": palette[arm.name], "size": 6, "opacity": 0.65},
                text=[f"update {u}, seed {s}" for u, s in common], hovertemplate="%{text}<br>success %{x:.3f}, tied %{y:.3f}",
            )
    if len(figure.data) == 1:
        return None
    figure.update_layout(**_layout("Tied groups against success, one point per update", "success of the update's rollouts", "share of groups tied"))
    figure.update_xaxes(range=[0, 1]).update_yaxes(range=[0, 1.02])
    return figure


def cost_figure(costs: Mapping[str, Mapping[str, float]], phases: Sequence[str]) -> go.Figure:
    """Stacked seconds per update: one bar per arm, one colour per phase."""
    figure = go.Figure()
    for phase, colour in zip(phases, SERIES_COLOURS):
        figure.add_bar(y=list(costs), x=[cost.get(phase, 0.0) for cost in costs.values()], name=phase, orientation="h", marker={"color": colour})
    figure.update_layout(**_layout("Seconds per update by phase", "seconds", "") | {"barmode": "stack", "height": 170 + 50 * len(costs)})
    figure.update_layout(legend={"traceorder": "normal"}).update_yaxes(autorange="reversed", showgrid=False)  # as in the table: first arm on top
    return figure


def _layout(title: str, x: str, y: str) -> dict:
    axis = {"gridcolor": "#e6eaf0", "zerolinecolor": "#c3cad4", "automargin": True}
    return {
        # Not plotly's own template: it is copied for every figure and makes the page slow to write.
        "template": "none", "font": {"size": 12, "color": "#1d2430"}, "title": {"text": title, "font": {"size": 14}, "x": 0.05, "xanchor": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#9aa5b4", "activecolor": "#5b6575"},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",  # the page's own, light or dark
        "height": 390, "margin": {"l": 60, "r": 20, "t": 48, "b": 84}, "legend": {"orientation": "h", "y": -0.24}, "hovermode": "closest",
        "xaxis": axis | {"title": {"text": x, "standoff": 6}}, "yaxis": axis | {"title": {"text": "" if y == "1" else y}, "tickformat": "~g"},
    }  # fmt: skip


def _plain(values) -> list[float | None]:
    """JSON has no NaN; six digits keep rounding noise from stretching an axis."""
    return [float(f"{v:.6g}") if np.isfinite(v) else None for v in values]


def figure_html(figure: go.Figure, name: str, fallback: str, *, summary: str = "The numbers") -> str:
    """A place for the figure, the call that draws it, and its numbers as a table that needs no script."""
    # Escaping "<" keeps a hostile name from closing the script element.
    spec = json.dumps(figure.to_plotly_json(), default=_encode).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    height = figure.layout.height or 380
    place = json.dumps(name)
    draw = f'var e=document.getElementById({place});e.textContent="";e.style.minHeight="{height}px";{DARK}Plotly.newPlot({place},f.data,f.layout,{json.dumps(CONFIG)})'
    return (
        # The words stay where no script runs: switched off, blocked or stripped from a saved page.
        f'<div class="figure" id="{name}"><p class=soft>The figure needs JavaScript; its numbers are in the table below.</p></div>'
        f"<script>(function(){{var f={spec};{draw}}})()</script>" + details(summary, fallback)
    )


def _encode(value):
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot write {type(value).__name__} into a figure")


def curves_table(arms: Sequence[Arm], metric: str, window: int = 1) -> str:
    """Mean over seeds (and the number of seeds) per update and arm."""
    found = {arm.name: curve_summary(smoothed(arm.curve(metric), window)) for arm in arms if len(arm.curve(metric))}
    updates = sorted({u for frame in found.values() for u in frame.index})
    rows = [
        [u, *(f"{number(f.loc[u, 'mean'])} ({int(f.loc[u, 'n'])})" if u in f.index else "—" for f in found.values())] for u in updates
    ]
    return table(["update", *(f"{name} (seeds)" for name in found)], rows, numbers=range(len(found) + 1))
