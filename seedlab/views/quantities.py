"""What a token can be coloured by, on fixed domains, and the colours; the same for the report, the inspector and its fallback."""

from __future__ import annotations

import math
from dataclasses import dataclass

DELTA_LIMIT = 2.0  # nats; the colour saturates there, the values themselves are shown in numbers
STEPS = 33  # shades of a palette; odd, so that a diverging one has a middle
NO_TEACHER, NO_TEACHER_DARK = "#eceff3", "#2a313b"
BLUE, ORANGE, WHITE = (0, 114, 178), (213, 94, 0), (255, 255, 255)
# On dark paper the paper itself is the neutral end, and the strong ends are brighter.
DARK_BLUE, DARK_ORANGE, DARK_PAPER = (74, 168, 224), (240, 132, 52), (32, 38, 47)
_STRENGTH = 0.85


@dataclass(frozen=True)
class Quantity:
    """`key` names it in the views; `column` is where its values are, in `unit`.

    `neutral` is the value without colour and `full` the one with all of it, saturated beyond: fixed, so that pictures
    compare.  A diverging quantity has its full colours at equal distances on both sides of `neutral`.
    """

    key: str
    label: str
    column: str
    neutral: float
    full: float
    unit: str
    sentence: str
    diverging: bool = False

    @property
    def domain(self) -> tuple[float, float]:
        """(low, high) of the scale."""
        if self.diverging:
            reach = abs(self.full - self.neutral)
            return self.neutral - reach, self.neutral + reach
        return min(self.neutral, self.full), max(self.neutral, self.full)

    def share(self, value: float) -> float:
        """How far `value` lies from neutral to full, in [-1, 1] (diverging) or [0, 1]; NaN where it is undefined."""
        if math.isnan(value):
            return value
        share = (value - self.neutral) / (self.full - self.neutral)
        return min(1.0, max(-1.0 if self.diverging else 0.0, share))

    def colour(self, value: float, *, dark: bool = False) -> str:
        return shade(self.share(value), dark=dark)


QUANTITIES = (
    Quantity("gate", "gate", "gate", 0.0, 1.0, "", "σ(βΔ): how much of the distillation term this token gets; ½ where the skill changes nothing"),
    Quantity("delta", "Δ", "delta", 0.0, DELTA_LIMIT, "nats", "log-prob with the skill in context minus without", True),
    Quantity("advantage", "advantage", "advantage", 0.0, 2.0, "", "the trajectory's return against its group", True),
    Quantity("net", "net coefficient ρA + λg", "net_coefficient", 0.0, 2.0, "", "the weight of ascent on this token's log-prob; below 0 it is pushed down", True),
    # White is certain, so that what surprised the policy stands out.
    Quantity("logprob", "log-prob", "logp_student", 0.0, -5.0, "nats", "of the student; the stronger the colour, the more it was surprised"),
    Quantity("ratio", "ratio", "ratio", 1.0, 1.5, "", "probability now over probability when sampled", True),
    Quantity("entropy", "entropy", "entropy", 0.0, 2.0, "nats", "of the student's distribution at this token"),
)
# Every value of a token that a view shows: (name, column).
VALUES = (
    ("gate", "gate"), ("Δ", "delta"), ("log-prob", "logp_student"), ("with the skill", "logp_teacher"), ("when sampled", "logp_rollout"),
    ("of θ_old", "logp_old"), ("of the reference", "logp_ref"), ("entropy", "entropy"), ("advantage", "advantage"), ("ratio", "ratio"),
    ("net coefficient", "net_coefficient"), ("KL", "kl"),
)  # fmt: skip


def shade(share: float, *, dark: bool = False) -> str:
    """Neutral at 0, blue at 1, orange at -1; grey for NaN."""
    if math.isnan(share):
        return NO_TEACHER_DARK if dark else NO_TEACHER
    paper, blue, orange = (DARK_PAPER, DARK_BLUE, DARK_ORANGE) if dark else (WHITE, BLUE, ORANGE)
    return _mix(paper, blue if share > 0 else orange, _STRENGTH * abs(share))


def ink(background: str) -> str:
    """Black or white, whichever contrasts more with `background` (#rrggbb)."""
    light = luminance(background)
    return "#000000" if (light + 0.05) / 0.05 > 1.05 / (light + 0.05) else "#ffffff"


def luminance(colour: str) -> float:
    """Relative luminance of WCAG."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def palettes() -> dict[str, dict[str, list[list[str]]]]:
    """{light, dark: {sequential, diverging: [STEPS] (background, ink)}} for a view that picks a shade by its place."""

    def one(low: float, dark: bool) -> list[list[str]]:
        shades = [shade(low + (1.0 - low) * i / (STEPS - 1), dark=dark) for i in range(STEPS)]
        return [[s, ink(s)] for s in shades]

    return {name: {"sequential": one(0.0, dark), "diverging": one(-1.0, dark)} for name, dark in (("light", False), ("dark", True))}


def _mix(a: tuple[int, int, int], b: tuple[int, int, int], share: float) -> str:
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b))
