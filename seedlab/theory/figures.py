"""Figures of the theory, as plotly figures; each takes a table of `seedlab.theory.studies` or the claims.

Colours follow the values' meaning: the gate's domain is always [0, 1].
"""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from seedlab.theory.claims import ClaimResult
from seedlab.views import theme

PALETTE = theme.SERIES_COLOURS
FLOOR = 1e-18  # an error of exactly 0 has no place on a logarithmic axis


def _figure(title: str, x: str, y: str, **axes) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(title=title, template="seedlab", height=380)
    figure.update_xaxes(title=x)
    figure.update_yaxes(title=y, **axes)
    return figure


def claims_figure(claims: list[ClaimResult]) -> go.Figure:
    """Each claim's worst error beside its tolerance, on a logarithmic axis; a failed claim is red."""
    names = [c.name for c in claims]
    figure = _figure("Worst error of each claim, and its tolerance", "error (exact zeros at the left edge)", "")
    figure.add_scatter(
        x=[max(c.worst_error, FLOOR) for c in claims], y=names, mode="markers", name="worst error",
        marker={"size": 9, "color": ["#009E73" if c.verdict == "pass" else "#D55E00" for c in claims]},
        text=[f"{c.equation}<br>{c.instances} instances<br>{c.note}" for c in claims], hoverinfo="text+x",
    )
    figure.add_scatter(
        x=[max(c.tolerance, FLOOR) for c in claims], y=names, mode="markers", name="tolerance",
        marker={"symbol": "line-ns-open", "size": 14, "color": "#5b5f66"},
    )
    figure.update_xaxes(type="log", exponentformat="power")
    figure.update_yaxes(autorange="reversed")
    figure.update_layout(height=120 + 24 * len(claims), margin={"l": 300})
    return figure


def gate_figure(table: pd.DataFrame) -> go.Figure:
    """Gate and its slope against delta, a curve per beta (`gate_sensitivity`)."""
    figure = make_subplots(1, 2, subplot_titles=("gate g = σ(βΔ)", "sensitivity dg/dΔ"))
    for colour, (beta, part) in zip(PALETTE, table.groupby("beta")):
        for column, name in ((1, "gate"), (2, "slope")):
            figure.add_scatter(
                x=part["delta"], y=part[name], name=f"β = {beta:g}", line={"color": colour}, legendgroup=str(beta),
                showlegend=column == 1, row=1, col=column,
            )
    figure.update_xaxes(title="Δ (nats)")
    figure.update_yaxes(range=[0, 1], row=1, col=1)
    figure.update_layout(template="seedlab", height=380, margin={"t": 50})
    return figure


def tie_figure(table: pd.DataFrame, measured: pd.DataFrame | None = None) -> go.Figure:
    """Tie probability against success rate, a curve per group size (`tie_curve`).

    `measured`: columns success_rate and tie_rate (and update, for the label) of a run.  Its tasks differ in
    difficulty, so that a run lies above the curve of its mean success rate: the curve is for one task.
    """
    figure = _figure("How often a group ties", "success rate p of the task", "P(tie) = pᴺ + (1−p)ᴺ", range=[0, 1.02])
    for size, part in table.groupby("group_size"):
        figure.add_scatter(x=part["success_rate"], y=part["tie_probability"], name=f"N = {size}")
    if measured is not None:
        label = [f"update {u}" for u in measured["update"]] if "update" in measured else None
        figure.add_scatter(
            x=measured["success_rate"], y=measured["tie_rate"], mode="markers", name="measured", text=label,
            marker={"color": "black", "symbol": "x"},
        )
    return figure


def noise_figure(table: pd.DataFrame) -> go.Figure:
    """Distributions of Eq. 8's relative gain under analyzer noise (`analyzer_noise`), a panel per kind."""
    titles = {"additive": "additive noise", "clipped": "clipped to a gate's range", "correlation": "correlation with Q"}
    figure = make_subplots(1, 3, subplot_titles=list(titles.values()), shared_yaxes=True)
    for column, kind in enumerate(titles, start=1):
        part = table[table["kind"] == kind]
        figure.add_box(
            x=[f"{v:g}" for v in part["level"]], y=part["relative"], boxpoints=False, showlegend=False,
            marker={"color": PALETTE[column - 1]}, row=1, col=column,
        )
        figure.add_hline(y=0, line={"color": "#5b5f66", "width": 1}, row=1, col=column)
    figure.update_yaxes(title="gain / gain without noise", row=1, col=1)
    figure.update_yaxes(range=[-1.6, 1.6])
    figure.update_xaxes(title="noise / sd(Q)", row=1, col=1)
    figure.update_xaxes(title="noise / sd(Q)", row=1, col=2)
    figure.update_xaxes(title="correlation", row=1, col=3)
    figure.update_layout(template="seedlab", height=380, margin={"t": 50})
    return figure


def staleness_figure(table: pd.DataFrame) -> go.Figure:
    """Gate gap over rounds for each refresh interval, the bound dotted (`staleness_rounds`)."""
    figure = _figure("Staleness builds up between refreshes", "round", "|g_kk − g_kj|")
    for colour, (name, part) in zip(PALETTE, table.groupby("refresh", sort=False)):
        figure.add_scatter(x=part["round"], y=part["gap"], name=name, line={"color": colour, "shape": "hv"})
        figure.add_scatter(
            x=part["round"], y=part["bound"], name=f"{name}: bound", visible="legendonly",
            line={"color": colour, "dash": "dot", "shape": "hv"},
        )
    return figure


def two_kl_figure(table: pd.DataFrame) -> go.Figure:
    """The penalty and the distillation KL during descent on both (`two_kl_terms`)."""
    figure = _figure("Two KL terms: one resists, one pulls", "gradient step", "nats")
    figure.add_scatter(x=table["step"], y=table["penalty"], name="penalty KL(π_θ‖π_ref), from 0")
    figure.add_scatter(x=table["step"], y=table["distillation"], name="OPD: Z·KL(r‖π_θ), from above")
    return figure


def net_coefficient_figure(table: pd.DataFrame) -> go.Figure:
    """A token's weight rho A + lambda g against lambda, a curve per advantage and gate (`net_coefficients`)."""
    figure = _figure("Net coefficient ρA + λg of a token", "λ_opd", "net coefficient")
    for (advantage, delta), part in table.groupby(["advantage", "delta"]):
        figure.add_scatter(
            x=part["opd_coef"], y=part["net_coefficient"], name=f"A = {advantage:g}, g = {part['gate'].iloc[0]:.2f}",
            mode="lines+markers",
        )
    figure.update_xaxes(type="log")
    return figure


def identity_figures(table: pd.DataFrame) -> dict[str, go.Figure]:
    """`eq8`, `proposition2` (points on the diagonal) and `proposition3` (points under it) from `identities`."""
    eq8 = _figure("Eq. 8: value alignment", "Cov_π(Q, w) / Z", "E_r[Q] − E_π[Q]")
    _against_diagonal(eq8, table["covariance"], table["gain"], "instance")
    second = _figure("Proposition 2: squared gradient norm is the gate's variance", "Var_π[w]", "Σ a(v)² / π(v)")
    _against_diagonal(second, table["variance"], table["norm"], "instance")
    third = _figure("Proposition 3: the stale gap stays under its bounds", "bound", "|U_k(A_k) − U_k(A_j)|")
    _against_diagonal(third, table["gate_bound"], table["stale_gap"], "G·E|g_kk − g_kj|")
    third.add_scatter(x=table["delta_bound"], y=table["stale_gap"], mode="markers", name="(βG/4)·E|Δ_kk − Δ_kj|",
                      marker={"size": 5, "opacity": 0.5})
    return {"eq8": eq8, "proposition2": second, "proposition3": third}


def _against_diagonal(figure: go.Figure, x: pd.Series, y: pd.Series, name: str) -> None:
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    figure.add_scatter(x=[low, high], y=[low, high], mode="lines", name="equal", line={"color": "#5b5f66", "width": 1})
    figure.add_scatter(x=x, y=y, mode="markers", name=name, marker={"size": 5, "opacity": 0.5})


def target_figure(tokens: pd.DataFrame) -> go.Figure:
    """pi, gate and target r of a worked example (`worked_example`)."""
    figure = _figure("Proposition 1: the gate tilts π into r", "", "probability, gate", range=[0, 1])
    for column, name in (("pi", "π"), ("gate", "gate w"), ("target", "target r")):
        figure.add_bar(x=tokens["token"], y=tokens[column], name=name)
    return figure
