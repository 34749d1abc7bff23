"""Line charts as plain SVG, one panel above the other: small, without scripts, the same live and in a saved notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from seedlab.views.template import escape
from seedlab.views.theme import GRID, INK, SOFT

WIDTH, HEIGHT, LEFT, RIGHT, TOP, GAP = 900, 150, 58, 16, 26, 22
DASHES = {"solid": "", "dash": "8 5", "dot": "2 4", "dashdot": "9 4 2 4", "longdash": "13 5", "longdashdot": "13 5 2 5"}


@dataclass(frozen=True)
class Line:
    """Points (x, y) in order of x; `band` has (x, low, high).  NaN breaks the line."""

    name: str
    colour: str
    dash: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class Panel:
    """`limits` of the value axis; None takes those of the points (bands are cut off there)."""

    title: str
    lines: Sequence[Line] = field(default_factory=tuple)
    limits: tuple[float, float] | None = None


def line_panels(panels: Sequence[Panel], x_limits: tuple[float, float], x_title: str, label: str) -> str:
    """SVG of the panels over one axis x, with a legend of the lines' names.  `label` is read out by screen readers."""
    first, last = x_limits[0], max(x_limits[1], x_limits[0] + 1)
    inner = WIDTH - LEFT - RIGHT

    def across(x: float) -> float:
        return LEFT + (x - first) / (last - first) * inner

    parts, top = [], 0
    for panel in panels:
        parts.append(_panel(panel, across, top))
        top += TOP + HEIGHT + GAP
    ticks = _ticks(first, last, 10)
    whole = [t for t in ticks if t == int(t)] or ticks
    parts += [f'<text x="{across(t):.1f}" y="{top - 6}" text-anchor="middle">{t:g}</text>' for t in whole]
    parts.append(f'<text x="{LEFT + inner / 2}" y="{top + 12}" text-anchor="middle">{escape(x_title)}</text>')
    names = {line.name: line for panel in panels for line in panel.lines}
    parts += [_legend(line, k, top + 34) for k, line in enumerate(names.values())]
    height = top + 44 + 20 * max(0, len(names) - 1)
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {WIDTH} {height}" style="width:100%;max-width:{WIDTH}px;background:#fff" '
        f'font-family="system-ui,sans-serif" font-size="12" fill="{INK}">{"".join(parts)}</svg>'
    )


def _panel(panel: Panel, across, top: int) -> str:
    values = [y for line in panel.lines for _, y in line.points if math.isfinite(y)]
    low, high = panel.limits or ((min(values), max(values)) if values else (0.0, 1.0))
    if high <= low:
        low, high = low - 0.5, high + 0.5
    base = top + TOP + HEIGHT

    def up(y: float) -> float:
        return base - (min(high, max(low, y)) - low) / (high - low) * HEIGHT

    parts = [f'<text x="{LEFT}" y="{top + 16}" font-size="13" font-weight="600">{escape(panel.title)}</text>']
    for tick in _ticks(low, high, 4):
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{up(tick) + 4:.1f}" text-anchor="end" fill="{SOFT}">{tick:g}</text>')
    for line in panel.lines:
        band = [b for b in line.band if all(map(math.isfinite, b))]
        if band:
            outline = [(x, hi) for x, _, hi in band] + [(x, lo) for x, lo, _ in reversed(band)]
            parts.append(f'<polygon points="{_path(outline, across, up)}" fill="{line.colour}" fill-opacity="0.13"/>')
    for line in panel.lines:
        points = [(x, y) for x, y in line.points if math.isfinite(y)]
        parts.append(f'<polyline points="{_path(points, across, up)}" fill="none" stroke="{line.colour}" stroke-width="2.2" stroke-dasharray="{DASHES[line.dash]}"/>')
        parts += [
            f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5" fill="{line.colour}"><title>{escape(line.name)}: {x:g}: {y:.4g}</title></circle>' for x, y in points
        ]
    if not values:
        parts.append(f'<text x="{WIDTH / 2}" y="{top + TOP + HEIGHT / 2}" text-anchor="middle" fill="{SOFT}">no arm that is shown has it</text>')
    return "".join(parts)


def _path(points, across, up) -> str:
    return " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)


def _legend(line: Line, place: int, top: int) -> str:
    y = top + 20 * place
    return (
        f'<line x1="{LEFT}" x2="{LEFT + 34}" y1="{y - 4}" y2="{y - 4}" stroke="{line.colour}" stroke-width="2.6" stroke-dasharray="{DASHES[line.dash]}"/>'
        f'<text x="{LEFT + 42}" y="{y}">{escape(line.name)}</text>'
    )


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from `low` to `high`, about as many as asked for."""
    raw = (high - low) / max(1, about)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= raw - 1e-12)
    count = math.floor(high / step + 1e-9) - math.ceil(low / step - 1e-9)
    return [round((math.ceil(low / step - 1e-9) + k) * step, 10) for k in range(count + 1)]
