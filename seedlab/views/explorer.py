"""Gate, skill quality and tied groups over updates in one figure, moved by one set of selectors."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from seedlab.analysis.curves import SKILL_MEASURES, curve_bands
from seedlab.analysis.frames import Arm, Runs, load
from seedlab.config.names import suggestion
from seedlab.errors import UserError
from seedlab.store.metrics import describe
from seedlab.views.analysis_figures import styles
from seedlab.views.live import bundle
from seedlab.views.template import details, number, paragraph, table
from seedlab.views.theme import translucent

GATE, TIES = "opd/gate_mean", "rollout/tie_rate"


class Explorer:
    """`arms` shown, `updates` (first, last), `window` of the trailing mean and skill `measure`; assign, and look again.

    Displays as a widget with selectors, and as a table of its numbers where no kernel runs.  Raises UserError for a
    measure that is not one of SKILL_MEASURES, or for runs without an update.
    """

    def __init__(self, runs: Runs, *, window: int = 1, measure: str = "accepted"):
        self.all: Sequence[Arm] = [arm for arm in load(runs) if arm.runs]
        found = [u for arm in self.all for seed in arm.runs for u in arm.metrics(seed).index]
        if not found:
            raise UserError("no run here has finished an update; there is nothing to explore yet")
        if measure not in SKILL_MEASURES:
            raise UserError(f"there is no skill measure {measure!r}{suggestion(measure, SKILL_MEASURES)} (measures: {', '.join(SKILL_MEASURES)})")
        self.limits = (int(min(found)), int(max(found)))
        self.arms, self.updates, self.window, self.measure = [a.name for a in self.all], self.limits, window, measure
        self._styles = styles(self.all)

    def __repr__(self) -> str:
        return f"Explorer({', '.join(self.arms) or 'no arm'}; updates {self.updates[0]}–{self.updates[1]}, window {self.window}, {self.measure})"

    # ---- what is drawn

    def panels(self) -> tuple[tuple[str, str], ...]:
        """(metric, title) of the three panels."""
        return (
            (GATE, "mean gate"),
            (f"analyzer/{self.measure}", f"own skills: {self.measure.replace('_', ' ')} ({describe(f'analyzer/{self.measure}')[0]})"),
            (TIES, "share of groups tied"),
        )

    def frame(self) -> pd.DataFrame:
        """Columns panel, metric, arm, update, mean, low, high, seeds of what is chosen."""
        chosen = [arm for arm in self.all if arm.name in self.arms]
        parts = []
        for panel, (metric, _) in enumerate(self.panels()):
            bands = curve_bands(chosen, metric, self.window)
            parts.append(bands[bands["update"].between(*self.updates)].assign(panel=panel, metric=metric))
        return pd.concat(parts, ignore_index=True)[["panel", "metric", "arm", "update", "mean", "low", "high", "seeds"]]

    def figure(self) -> go.Figure:
        return go.Figure(data=self._traces(), layout=self._layout())

    def _layout(self) -> go.Layout:
        drawn = make_subplots(3, 1, shared_xaxes=True, vertical_spacing=0.07, subplot_titles=[title for _, title in self.panels()])
        drawn.update_layout(height=620, title="Gate, skills and ties over updates", legend={"orientation": "h", "y": -0.09}, margin={"b": 90}, template="seedlab")
        share = describe(f"analyzer/{self.measure}")[0] == "share"
        for row, limits in ((1, [0, 1]), (2, [0, 1.03] if share else None), (3, [0, 1.03])):
            drawn.update_yaxes(range=limits, row=row, col=1)
        drawn.update_xaxes(range=[self.updates[0] - 0.3, self.updates[1] + 0.3]).update_xaxes(title="update", row=3, col=1)
        return drawn.layout

    def _traces(self) -> list[go.Scatter]:
        """A band and a line per arm and panel, always in the same order, so that a live figure can take new values."""
        frame, traces = self.frame(), []
        for panel in range(3):
            axes = {"xaxis": f"x{panel + 1 if panel else ''}", "yaxis": f"y{panel + 1 if panel else ''}"}
            for name, (colour, dash) in self._styles.items():
                part = frame[(frame["panel"] == panel) & (frame["arm"] == name)]
                band = part.dropna(subset=["low", "high"])
                shared = {"legendgroup": name, "name": name, **axes}
                traces.append(go.Scatter(
                    x=[*band["update"], *band["update"][::-1]], y=[*band["high"], *band["low"][::-1]], fill="toself", mode="lines", line={"width": 0},
                    fillcolor=translucent(colour, 0.13), hoverinfo="skip", showlegend=False, **shared,
                ))  # fmt: skip
                # The legend stands for all panels; an arm without this metric would otherwise lose its entry.
                traces.append(go.Scatter(
                    x=part["update"], y=part["mean"], mode="lines+markers", marker={"size": 5}, line={"color": colour, "dash": dash, "width": 2.4},
                    showlegend=panel == 2 and name in self.arms, customdata=part["seeds"], hovertemplate="update %{x}: %{y:.3f} (%{customdata} seeds)", **shared,
                ))  # fmt: skip
        return traces

    # ---- how it shows itself

    def widget(self):
        """Selectors above a live figure; needs ipywidgets and anywidget."""
        import ipywidgets

        live = go.FigureWidget(self.figure())
        wide = {"style": {"description_width": "90px"}, "layout": {"width": "420px"}}
        arms = ipywidgets.SelectMultiple(options=[a.name for a in self.all], value=tuple(self.arms), description="arms", rows=min(5, len(self.all)), **wide)
        updates = ipywidgets.IntRangeSlider(value=self.updates, min=self.limits[0], max=self.limits[1], description="updates", **wide)
        window = ipywidgets.IntSlider(value=self.window, min=1, max=max(2, self.limits[1] - self.limits[0] + 1), description="mean over", **wide)
        measure = ipywidgets.Dropdown(options=list(SKILL_MEASURES), value=self.measure, description="skills", **wide)

        def redraw(_):
            self.arms, self.updates, self.window, self.measure = list(arms.value), tuple(updates.value), window.value, measure.value
            with live.batch_update():
                for old, new in zip(live.data, self._traces()):
                    old.x, old.y, old.customdata, old.showlegend = new.x, new.y, new.customdata, new.showlegend
                live.update_layout(self._layout(), overwrite=True)

        for control in (arms, updates, window, measure):
            control.observe(redraw, "value")
        controls = ipywidgets.HBox([arms, ipywidgets.VBox([updates, window, measure])], layout={"flex_flow": "row wrap"})
        return ipywidgets.VBox([controls, live])

    def _repr_html_(self) -> str:
        """The numbers, without scripts."""
        parts = [paragraph(f"{self!r}. Selectors and curves need a running kernel; these are the numbers.")]
        frame = self.frame()
        for panel, (_, title) in enumerate(self.panels()):
            cells = frame[frame["panel"] == panel].pivot(index="update", columns="arm", values="mean")
            rows = [[update, *map(number, values)] for update, values in zip(cells.index, cells.to_numpy())]
            parts.append(details(title, table(["update", *cells.columns], rows, numbers=range(cells.shape[1] + 1))))
        return "".join(parts)

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return bundle(self)
