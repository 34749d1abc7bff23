"""Intervals and comparisons for few runs: t-intervals over seeds, pairs by seed, IQM, bootstrap, Wilson.

Every random function takes a seed; the same input gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit  # quantiles; scipy.stats takes a second to import

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate with its two-sided interval; `low` and `high` are NaN where n does not allow one."""

    estimate: float
    low: float
    high: float
    n: int

    @property
    def known(self) -> bool:
        return not (math.isnan(self.low) or math.isnan(self.high))

    def excludes(self, value: float = 0.0) -> bool:
        """Whether `value` lies strictly outside; False where there is no interval."""
        return self.known and not self.low <= value <= self.high


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Mean and Student's t interval, mean +- t_{n-1} s / sqrt(n); no interval for fewer than two values.

    NaN values are refused with ValueError: a run without the number must be left out by the caller, visibly.
    """
    x = np.asarray(list(values), dtype=float)
    if np.isnan(x).any():
        raise ValueError("mean_interval got NaN; leave out runs that lack the number")
    if len(x) == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    if len(x) == 1:
        return Interval(float(x[0]), math.nan, math.nan, 1)
    half = float(stdtrit(len(x) - 1, 0.5 + level / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return Interval(float(x.mean()), float(x.mean()) - half, float(x.mean()) + half, len(x))


def paired_difference(a: Mapping[int, float], b: Mapping[int, float], level: float = LEVEL) -> Interval:
    """Mean of a[s] - b[s] over the seeds that both have, with its t interval."""
    return mean_interval([a[s] - b[s] for s in sorted(set(a) & set(b))], level)


def wilson_interval(successes: int, n: int, level: float = LEVEL) -> Interval:
    """Wilson's score interval of a share, without continuity correction.  Raises ValueError for impossible counts."""
    if n < 0 or not 0 <= successes <= max(n, 0):
        raise ValueError(f"need 0 <= successes <= n, got {successes} of {n}")
    if n == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    z = float(ndtri(0.5 + level / 2))
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half), n)


def interquartile_mean(scores_SK) -> np.ndarray:
    """Mean of the middle half of the entries (a quarter cut from each end, rounded down) over the last two axes.

    [..., S, K] to [...]; NaN where there is no entry.
    """
    x = np.asarray(scores_SK, dtype=float)
    x = np.sort(x.reshape(*x.shape[:-2], -1), axis=-1)
    cut = x.shape[-1] // 4
    return x[..., cut : x.shape[-1] - cut].mean(axis=-1) if x.shape[-1] else np.full(x.shape[:-1], math.nan)


def mean_score(scores_SK) -> np.ndarray:
    """Plain mean over the last two axes."""
    return np.asarray(scores_SK, dtype=float).mean(axis=(-2, -1))


def stratified_bootstrap(
    scores_SK, statistic: Callable[[np.ndarray], np.ndarray] = interquartile_mean, *, seed: int, resamples: int = 2000, level: float = LEVEL
) -> Interval:
    """Percentile interval of `statistic`, resampling runs (axis S) independently within each stratum (axis K).

    `scores_SK` [S, K]: the score of run s on task type k; `statistic` maps [..., S, K] to [...].  Raises ValueError for
    another shape.  With one run every resample is the same, so that no interval is given.
    """
    scores = np.asarray(scores_SK, dtype=float)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores_SK must be [runs, strata] and not empty, got shape {scores.shape}")
    runs, strata = scores.shape
    estimate = float(statistic(scores))
    if runs == 1:
        return Interval(estimate, math.nan, math.nan, 1)
    chosen = np.random.default_rng(seed).integers(0, runs, size=(resamples, runs, strata))
    low, high = np.quantile(statistic(scores[chosen, np.arange(strata)]), [0.5 - level / 2, 0.5 + level / 2])
    return Interval(estimate, float(low), float(high), runs)


def probability_of_improvement(a_SK, b_SK) -> float:
    """Mean over strata of P(a > b) + P(a = b) / 2 for independently drawn runs of a [S, K] and b [R, K]."""
    a, b = np.asarray(a_SK, dtype=float), np.asarray(b_SK, dtype=float)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or 0 in a.shape + b.shape:
        raise ValueError(f"need [runs, strata] with the same strata, got {a.shape} and {b.shape}")
    above = (a[:, None, :] > b[None, :, :]).mean(axis=(0, 1))
    equal = (a[:, None, :] == b[None, :, :]).mean(axis=(0, 1))
    return float((above + equal / 2).mean())
