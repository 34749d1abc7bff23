"""A view of one gate: a drawing that shows without a kernel, and sliders for beta and delta where there is one."""

from __future__ import annotations

import html
from dataclasses import dataclass

import torch

from seedlab.objective.losses import gate

WIDTH, HEIGHT, REACH = 440, 220, 1.5  # pixels, and the largest |delta| drawn, in nats


@dataclass(frozen=True)
class GateView:
    """The gate's curve at `beta` with a mark at `delta` (nats).  Displays itself as a drawing without scripts."""

    beta: float = 5.0
    delta: float = 0.1

    def value(self) -> float:
        return gate(torch.tensor(self.delta, dtype=torch.float64), self.beta).item()

    def __str__(self) -> str:
        return f"beta {self.beta:g}, delta {self.delta:+.3f} nats: gate {self.value():.4f}"

    def to_html(self) -> str:
        """A self-contained SVG; needs neither scripts nor the network."""

        def place(delta, g):
            return f"{(delta / REACH + 1) / 2 * WIDTH:.1f},{(1 - g) * HEIGHT:.1f}"

        deltas = torch.linspace(-REACH, REACH, 121, dtype=torch.float64)
        curve = " ".join(place(d, g) for d, g in zip(deltas.tolist(), gate(deltas, self.beta).tolist()))
        x, y = place(max(-REACH, min(REACH, self.delta)), self.value()).split(",")
        label = html.escape(str(self))
        return (
            f'<svg role="img" aria-label="{label}" width="{WIDTH}" height="{HEIGHT + 30}" viewBox="-5 -5 {WIDTH + 10} {HEIGHT + 35}">'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>'
            f'<line x1="{WIDTH / 2}" x2="{WIDTH / 2}" y1="0" y2="{HEIGHT}" stroke="#ccc"/>'
            f'<polyline points="{curve}" fill="none" stroke="#1b6ca8" stroke-width="2"/>'
            f'<circle cx="{x}" cy="{y}" r="5" fill="#d1495b"/>'
            f'<text x="2" y="{HEIGHT + 20}" font-family="sans-serif" font-size="13">{label}</text></svg>'
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def widget(self):
        """Sliders that redraw the view; needs ipywidgets (`pip install seedlab[notebooks]`)."""
        import ipywidgets

        beta = ipywidgets.FloatSlider(self.beta, min=0.5, max=20, step=0.5, description="β")
        delta = ipywidgets.FloatSlider(self.delta, min=-REACH, max=REACH, step=0.01, description="Δ (nats)")
        drawing = ipywidgets.HTML(self.to_html())

        def redraw(_):
            drawing.value = GateView(beta.value, delta.value).to_html()

        beta.observe(redraw, "value")
        delta.observe(redraw, "value")
        return ipywidgets.VBox([beta, delta, drawing])
