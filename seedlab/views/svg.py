"""Small line charts as SVG: no script, readable in a light and a dark page, small enough to be drawn every two seconds."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass

from seedlab.views.template import escape

WIDTH, HEIGHT = 320, 168
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 10, 10, 30  # margins of the drawing area


@dataclass(frozen=True)
class Series:
    """`values` [n] over `updates` [n]; NaN leaves a gap, unless the series is `sparse`, measured every few updates.
    `spread` [n] is a band of that half width, where given."""

    name: str
    updates: Sequence[float]
    values: Sequence[float]
    colour: str
    dash: str = ""
    spread: Sequence[float] | None = None
    sparse: bool = False

    @property
    def points(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in zip(self.updates, self.values) if math.isfinite(y)]


@dataclass(frozen=True)
class Chart:
    """`limits` fixes the y axis; without them it follows the values.  `first` and `last` are the updates that are planned."""

    title: str
    unit: str
    series: tuple[Series, ...]
    limits: tuple[float, float] | None = None
    last: float = 0
    width: int = WIDTH
    height: int = HEIGHT
    first: float = 0

    @property
    def sentence(self) -> str:
        """The chart in words, for a reader who cannot see it."""
        parts = [f"{s.name}: {short(s.points[0][1])} at update {s.points[0][0]:g}, {short(s.points[-1][1])} at {s.points[-1][0]:g}" for s in self.series if s.points]
        return f"{self.title}, {self.unit}. " + "; ".join(parts)


def short(value: float) -> str:
    """Three digits that count, as people write them."""
    if value == 0:
        return "0"
    if abs(value) >= 1000 or abs(value) < 0.001:
        return f"{value:.1e}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers from within [low, high], about `count` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def draw(chart: Chart, *, ink: str = "currentColor") -> str:
    """The SVG element.  `ink` colours text and axes; `currentColor` follows the page it stands in."""
    xs = [x for s in chart.series for x, _ in s.points]
    low, high = chart.limits or _range(chart)
    first, last = chart.first, max([chart.last, *xs, chart.first + 1])
    inner_w, inner_h = chart.width - _LEFT - _RIGHT, chart.height - _TOP - _BOTTOM

    def at(x: float, y: float) -> tuple[float, float]:
        return _LEFT + (x - first) / (last - first) * inner_w, _TOP + (1 - (min(high, max(low, y)) - low) / (high - low)) * inner_h

    levels = ticks(low, high)
    grid = "".join(_y_tick(at(first, v)[1], label, chart.width) for v, label in zip(levels, tick_labels(levels)))
    marks = "".join(f'<text x="{at(v, low)[0]:.1f}" y="{chart.height - 15}" text-anchor="middle">{v:g}</text>' for v in ticks(first, last) if v == int(v))
    lines = "".join(_series(s, at) for s in chart.series)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(chart.sentence)}" width="{chart.width}" height="{chart.height}" '
        f'viewBox="0 0 {chart.width} {chart.height}" style="max-width:100%;height:auto" fill="{ink}" font-family="system-ui,sans-serif" font-size="10.5">'
        f'{grid}{marks}<text x="{_LEFT + inner_w / 2:.0f}" y="{chart.height - 2}" text-anchor="middle" opacity=".7">update</text>{lines}</svg>'
    )


def tick_labels(levels: Sequence[float]) -> list[str]:
    """Just enough decimals that no two labels are the same."""
    for decimals in range(7):
        labels = [f"{v:.{decimals}f}".replace("-", "−") for v in levels]
        if len(set(labels)) == len(labels) and all(abs(float(f"{v:.{decimals}f}") - v) <= 1e-6 + 1e-3 * abs(v) for v in levels):
            return labels
    return [short(v) for v in levels]


def _y_tick(y: float, label: str, width: int) -> str:
    return (
        f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8a94a3" stroke-opacity=".3"/>'
        f'<text x="{_LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{label}</text>'
    )


def _series(series: Series, at) -> str:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y in zip(series.updates, series.values):
        if math.isfinite(y):
            runs[-1].append(at(x, y))
        elif runs[-1] and not series.sparse:
            runs.append([])
    dash = f' stroke-dasharray="{series.dash}"' if series.dash else ""
    parts = [_band(series, at)]
    for run in runs:
        if len(run) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in run)
            parts.append(f'<polyline points="{path}" fill="none" stroke="{series.colour}" stroke-width="1.9" stroke-linejoin="round"{dash}/>')
    many = len(series.points) > 120
    for i, (x, y) in enumerate(series.points):
        px, py = at(x, y)
        end = i == len(series.points) - 1
        if many and not end:
            continue
        # Each point has its numbers in its title; all but the last are drawn only when they are few.
        size, seen = (3.2, 1) if end else (2.0, 0.9 if len(series.points) < 30 else 0)
        parts.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{size}" fill="{series.colour}" fill-opacity="{seen}"><title>{escape(series.name)}, update {x:g}: {short(y)}</title></circle>')
    return "".join(parts)


def _band(series: Series, at) -> str:
    if series.spread is None:
        return ""
    found = [(x, y, s) for x, y, s in zip(series.updates, series.values, series.spread) if math.isfinite(y) and math.isfinite(s)]
    if len(found) < 2:
        return ""
    edge = [at(x, y + s) for x, y, s in found] + [at(x, y - s) for x, y, s in reversed(found)]
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in edge)}" fill="{series.colour}" fill-opacity=".14"/>'


def _range(chart: Chart) -> tuple[float, float]:
    values = [y for s in chart.series for _, y in s.points]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if low >= 0 and low < 0.5 * high:
        low = 0.0  # a distance from nothing is read as one
    if high == low:
        low, high = low - (abs(low) or 1.0) * 0.1, high + (abs(high) or 1.0) * 0.1
    room = (high - low) * 0.06
    return (low if low == 0 else low - room), high + room


def image(chart: Chart) -> str:
    """The chart as an image element, for saved notebooks, which drop SVG; its words are in `alt`."""
    data = base64.b64encode(draw(chart, ink="#6b7684").encode()).decode()
    return f'<img alt="{escape(chart.sentence)}" width="{chart.width}" height="{chart.height}" src="data:image/svg+xml;base64,{data}">'
