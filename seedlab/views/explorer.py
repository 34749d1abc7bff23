"""Gate, skill quality and tied groups over updates in one picture, moved by one set of selectors."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from seedlab.analysis.curves import SKILL_MEASURES, curve_bands
from seedlab.analysis.frames import Arm, Runs, load
from seedlab.config.names import suggestion
from seedlab.errors import UserError
from seedlab.store.metrics import describe
from seedlab.views.analysis_figures import styles
from seedlab.views.live import bundle
from seedlab.views.svg import Chart, Series, draw, image
from seedlab.views.template import details, escape, number, page, paragraph, table

GATE, TIES = "opd/gate_mean", "rollout/tie_rate"
SIZE = (900, 190)  # pixels of one panel
DASHES = {"solid": "", "dash": "8 5", "dot": "2 4", "dashdot": "9 4 2 4", "longdash": "13 5", "longdashdot": "13 5 2 5"}


class Explorer:
    """`arms` shown, `updates` (first, last), `window` of the trailing mean and skill `measure`; assign, and look again.

    Displays with selectors where a kernel runs, and as a picture with its numbers everywhere else.  Raises UserError for
    a measure that is not one of SKILL_MEASURES, or for runs without an update.  Without a measure: exact, where it is known.
    """

    def __init__(self, runs: Runs, *, window: int = 1, measure: str = ""):
        self.all: Sequence[Arm] = [arm for arm in load(runs) if arm.runs]
        found = [u for arm in self.all for seed in arm.runs for u in arm.metrics(seed).index]
        if not found:
            raise UserError("no run here has finished an update; there is nothing to explore yet")
        # What skills say, where something knows what is right; else whether they pass.
        known = any(len(arm.curve("analyzer/exact")) for arm in self.all)
        measure = measure or ("exact" if known else "accepted")
        if measure not in SKILL_MEASURES:
            raise UserError(f"there is no skill measure {measure!r}{suggestion(measure, SKILL_MEASURES)} (measures: {', '.join(SKILL_MEASURES)})")
        self.limits = (int(min(found)), int(max(found)))
        self.arms, self.updates, self.window, self.measure = [a.name for a in self.all], self.limits, window, measure
        self._styles = styles(self.all)

    def __repr__(self) -> str:
        return f"Explorer: {', '.join(self.arms) or 'no arm'}; updates {self.updates[0]} to {self.updates[1]}; mean over {self.window}; skills by {self.measure}"

    # ---- what is drawn

    def panels(self) -> tuple[tuple[str, str, tuple[float, float] | None], ...]:
        """(metric, title, limits) of the three panels; shares lie between 0 and 1."""
        unit, _ = describe(f"analyzer/{self.measure}")
        return (
            (GATE, "Mean gate", (0.0, 1.0)),
            (f"analyzer/{self.measure}", f"Own skills: {self.measure.replace('_', ' ')} ({unit})", (0.0, 1.0) if unit == "share" else None),
            (TIES, "Share of groups tied", (0.0, 1.0)),
        )

    def frame(self) -> pd.DataFrame:
        """Columns panel, metric, arm, update, mean, low, high, seeds of what is chosen."""
        chosen = [arm for arm in self.all if arm.name in self.arms]
        parts = []
        for panel, (metric, _, _) in enumerate(self.panels()):
            bands = curve_bands(chosen, metric, self.window)
            parts.append(bands[bands["update"].between(*self.updates)].assign(panel=panel, metric=metric))
        return pd.concat(parts, ignore_index=True)[["panel", "metric", "arm", "update", "mean", "low", "high", "seeds"]]

    def charts(self) -> list[Chart]:
        """A chart per panel, with the interval over seeds as a band."""
        frame, drawn = self.frame(), []
        for panel, (metric, title, limits) in enumerate(self.panels()):
            series = []
            for name in self.arms:
                part, (colour, dash) = frame[(frame["panel"] == panel) & (frame["arm"] == name)], self._styles[name]
                series.append(Series(name, part["update"].tolist(), part["mean"].tolist(), colour, DASHES[dash], (part["high"] - part["mean"]).tolist()))
            drawn.append(Chart(title, describe(metric)[0], tuple(series), limits, last=self.updates[1], first=self.updates[0], width=SIZE[0], height=SIZE[1]))
        return drawn

    def picture(self, place=draw) -> str:
        """The panels under one another with their legend, without scripts; `place` makes an element of a chart."""
        legend = "".join(
            f'<span style="margin-right:22px"><span style="color:{self._styles[name][0]};font-weight:700">{_sample(self._styles[name][1])}</span> {escape(name)}</span>'
            for name in self.arms
        )
        parts = [f'<div style="font-weight:600;margin-top:8px">{escape(chart.title)}</div>{place(chart)}' for chart in self.charts()]
        return f'<div style="font:13px system-ui,sans-serif"><div>{legend}</div>{"".join(parts)}</div>'

    # ---- how it shows itself

    def widget(self):
        """Selectors above the picture; needs ipywidgets."""
        import ipywidgets

        wide = {"style": {"description_width": "90px"}, "layout": {"width": "420px"}}
        arms = ipywidgets.SelectMultiple(options=[a.name for a in self.all], value=tuple(self.arms), description="arms", rows=min(5, len(self.all)), **wide)
        updates = ipywidgets.IntRangeSlider(value=self.updates, min=self.limits[0], max=self.limits[1], description="updates", continuous_update=False, **wide)
        window = ipywidgets.IntSlider(value=self.window, min=1, max=max(2, self.limits[1] - self.limits[0] + 1), description="mean over", continuous_update=False, **wide)
        measure = ipywidgets.Dropdown(options=list(SKILL_MEASURES), value=self.measure, description="skills", **wide)
        drawing = ipywidgets.HTML(self.picture())

        def redraw(_):
            self.arms, self.updates, self.window, self.measure = list(arms.value), tuple(updates.value), window.value, measure.value
            drawing.value = self.picture()

        for control in (arms, updates, window, measure):
            control.observe(redraw, "value")
        controls = ipywidgets.HBox([arms, ipywidgets.VBox([updates, window, measure])], layout={"flex_flow": "row wrap"})
        return ipywidgets.VBox([controls, drawing])

    def _repr_html_(self) -> str:
        """The picture and its numbers, without scripts."""
        parts, frame = [self.picture(image)], self.frame()
        for panel, (_, title, _) in enumerate(self.panels()):
            cells = frame[frame["panel"] == panel].pivot(index="update", columns="arm", values="mean")
            rows = [[update, *map(number, values)] for update, values in zip(cells.index, cells.to_numpy())]
            parts.append(details(f"{title}: the numbers", table(["update", *cells.columns], rows, numbers=range(cells.shape[1] + 1))))
        return "".join(parts)

    def to_html(self) -> str:
        """A page of its own that opens offline; it has no selectors, because these ask the kernel."""
        return page("Gate, skills and ties over updates", paragraph(repr(self)), [("explorer", "What is chosen", self._repr_html_())])

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        return bundle(self)


def _sample(dash: str) -> str:
    """The line's dashes in characters, so that arms can be told apart without colour."""
    return {"solid": "━━━", "dash": "╺━ ╺━", "dot": "·····", "dashdot": "╺━ · ╺━"}.get(dash, "╺━━ ╺━━")
