"""How every figure looks: one plotly template, one colour and dash per method, and no button that uploads a chart.

`use` registers the template `seedlab` and is called by every module that makes figures, so that they look the same in
the report, in a notebook and in a page of their own.
"""

from __future__ import annotations

import hashlib

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import plotly.graph_objects as go
import plotly.io as pio

# Okabe and Ito's palette for what is compared most; dashes tell the lines apart without colour vision.
METHOD_STYLES: dict[str, tuple[str, str]] = {
    "grpo": ("#0072B2", "dash"),
    "seed/no-opd": ("#009E73", "dot"),
    "seed": ("#D55E00", "solid"),
    "seed/no-stage1": ("#E69F00", "solid"),
    "seed/shuffled": ("#CC79A7", "dashdot"),
    "seed/scripted": ("#117733", "longdash"),
    "seed/static": ("#AA4499", "longdashdot"),
    "gigpo": ("#332288", "dash"),
    "rloo": ("#4B3FA7", "dot"),
    "gspo": ("#6B5FC9", "longdash"),
    "skill-grpo": ("#56B4E9", "dash"),
    "skill-grpo*": ("#2B7A9B", "dashdot"),
    "opsd": ("#8C6D31", "solid"),
    "grpo+opsd": ("#B8963E", "dash"),
    "opsd-kl": ("#7B61A8", "solid"),
    "grpo+opsd-kl": ("#A58BD0", "dash"),
    "skill-sd": ("#44AA99", "solid"),
    "skill-sd/own": ("#2E7D70", "dash"),
    "rlsd": ("#882255", "solid"),
    "sdar": ("#661100", "dot"),
    "opid": ("#999933", "solid"),
    "vanilla": ("#6E7781", "dot"),
    "skill-prompt": ("#8A94A3", "dash"),
    "react": ("#4C5765", "dashdot"),
}
# What a comparison's roles (`analysis.frames.role_of`) are called as methods.
ROLE_METHODS = {
    "grpo-base": "grpo", "grpo-sft": "seed/no-opd", "seed-sft": "seed", "seed-base": "seed/no-stage1", "shuffled": "seed/shuffled",
}  # fmt: skip
# For methods that a user registered.
SPARE_STYLES = (("#56B4E9", "solid"), ("#6E7781", "solid"), ("#8C6D31", "dot"), ("#7B61A8", "dashdot"), ("#F0E442", "dash"))
# Series of one run that are no methods: phases, outcomes, curves of a family.
SERIES_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6E7781")

INK, SOFT, GRID, ZERO = "#1d2430", "#5b6575", "#e6eaf0", "#c3cad4"

# plotly 7 shows a button that uploads the chart unless it is told not to.
CONFIG = {
    "displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True,
    # Dragging zooms and a double click resets, so that these buttons would only lie over long titles.
    "modeBarButtonsToRemove": [
        "sendChartToCloud", "sendDataToCloud", "select2d", "lasso2d", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d",
    ],
}  # fmt: skip

_AXIS = {
    "gridcolor": GRID, "zerolinecolor": ZERO, "linecolor": ZERO, "ticks": "outside", "tickcolor": ZERO, "ticklen": 4,
    "automargin": True, "title": {"standoff": 8}, "tickformat": "~g",
}  # fmt: skip
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", "size": 13, "color": INK},
        "title": {"font": {"size": 16}, "x": 0.02, "xanchor": "left"},
        # White also in a dark notebook: plotly cannot follow the page's theme, and half of it would be unreadable.
        "paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff",
        "colorway": list(SERIES_COLOURS), "xaxis": _AXIS, "yaxis": _AXIS,
        "margin": {"l": 64, "r": 24, "t": 56, "b": 56}, "height": 390, "hovermode": "closest",
        "hoverlabel": {"font": {"size": 12}, "align": "left"},
        "legend": {"bgcolor": "rgba(255,255,255,0.7)"}, "bargap": 0.25,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "#9aa5b4", "activecolor": SOFT},
    },
)  # fmt: skip


def method_style(name: str) -> tuple[str, str]:
    """(colour, dash) of a method, the same in every figure; one that was registered by the user takes a spare one by its name."""
    if name in METHOD_STYLES:
        return METHOD_STYLES[name]
    return SPARE_STYLES[hashlib.sha256(name.encode()).digest()[0] % len(SPARE_STYLES)]


def method_colour(name: str) -> str:
    return method_style(name)[0]


def translucent(colour: str, alpha: float) -> str:
    """`#rrggbb` with an opacity, as plotly and style sheets read it."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def use(*, default: bool = True) -> None:
    """Register the template, make it plotly's default, and take the share button out of every renderer.

    plotly has no default configuration of figures; the renderers' own, which notebooks use, is the place for it.
    """
    pio.templates["seedlab"] = TEMPLATE
    if default:
        pio.templates.default = "seedlab"
    with _without("rfc3987_syntax"):
        renderers = pio.renderers
    for name in renderers:
        own = vars(renderers[name])
        if "config" in own:  # those that write a picture or JSON have none
            own["config"] = CONFIG | (own["config"] or {})


@contextmanager
def _without(module: str) -> Iterator[None]:
    """The package is not there for what is imported within.

    plotly's renderers import nbformat, and through it jsonschema with its optional checks of formats.  That of
    international addresses, which no notebook has, builds a parser for seconds.
    """
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None
    try:
        yield
    finally:
        del sys.modules[module]


use()
