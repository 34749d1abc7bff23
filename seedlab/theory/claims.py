"""What a claim reports: the worst error over its instances, and whether that stays within the tolerance."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

import torch


@dataclass(frozen=True)
class ClaimResult:
    """`worst_error` is the largest |left - right| of an identity, or the largest excess over the bound of an inequality
    (0 where it always holds).  A NaN anywhere, or no instance at all, fails the claim.  `note` says how tight an
    inequality is, or what else was measured."""

    name: str
    equation: str
    instances: int
    worst_error: float
    tolerance: float
    note: str = ""

    @property
    def verdict(self) -> str:
        return "pass" if self.instances > 0 and self.worst_error <= self.tolerance else "fail"

    def as_dict(self) -> dict:
        # JSON has no NaN; a claim that met one has failed anyway, so the largest float stands for it.
        error = self.worst_error if math.isfinite(self.worst_error) else 1.7976931348623157e308
        return asdict(self) | {"worst_error": error, "verdict": self.verdict}


@dataclass
class Tally:
    """Collects the errors of one claim over chunks of instances."""

    name: str
    equation: str
    tolerance: float
    instances: int = 0
    worst: float = 0.0
    ratios: list = field(default_factory=list)

    def identity(self, left: torch.Tensor, right: torch.Tensor, instances: int) -> None:
        self._see((left - right).abs().max().item(), instances)

    def bound(self, left: torch.Tensor, right: torch.Tensor, instances: int) -> None:
        """left <= right, and remembers left / right."""
        self._see((left - right).clamp(min=0).max().item(), instances)
        positive = right > 1e-9  # below, a ratio would show rounding, not tightness
        self.ratios.append((left[positive] / right[positive]).flatten())

    def error(self, value: float, instances: int) -> None:
        self._see(float(value), instances)

    def _see(self, error: float, instances: int) -> None:
        self.instances += instances
        self.worst = float("nan") if math.isnan(error) or math.isnan(self.worst) else max(self.worst, error)

    def result(self, note: str = "") -> ClaimResult:
        ratios = torch.cat(self.ratios) if self.ratios else torch.zeros(0)
        if ratios.numel() and not note:
            note = f"left/right: median {ratios.median():.3g}, largest {ratios.max():.3g}"
        return ClaimResult(self.name, self.equation, self.instances, self.worst, self.tolerance, note)
