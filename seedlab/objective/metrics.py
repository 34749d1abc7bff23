"""Counts and sums behind the metrics of an update, and pass@k."""

from __future__ import annotations

import math
from typing import Iterator, Mapping


class WeightedMeans:
    """Means over micro-batches of different sizes: sums and counts are kept, and divided once at the end.

    A micro-batch with count 0 leaves no trace, so that nothing is averaged in as 0; a name that only ever saw count 0
    has no mean and is left out of `means()`, while `counts()` shows the 0.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, float] = {}

    def add(self, name: str, total: float, count: float) -> None:
        """`total` is the sum of `count` values.  Raises ValueError for a negative count."""
        if count < 0:
            raise ValueError(f"metric {name!r}: count {count} is negative")
        self._counts[name] = self._counts.get(name, 0.0) + float(count)
        if count > 0:
            self._sums[name] = self._sums.get(name, 0.0) + float(total)

    def add_all(self, sums: Mapping[str, tuple]) -> None:
        """`{name: (sum, count)}` of one micro-batch, for instance `ObjectiveOutput.sums`."""
        for name, (total, count) in sums.items():
            self.add(name, float(total), float(count))

    def merge(self, other: "WeightedMeans") -> None:
        for name, count in other._counts.items():
            self.add(name, other._sums.get(name, 0.0), count)

    def means(self) -> dict[str, float]:
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def counts(self) -> dict[str, float]:
        return dict(self._counts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._counts)


def pass_at_k(n: int, c: int, k: int) -> float:
    """1 - C(n-c, k) / C(n, k): the chance that at least one of k draws without replacement from n samples, c of them
    correct, is correct."""
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
