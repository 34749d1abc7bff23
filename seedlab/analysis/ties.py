"""Tied groups: how often they occur, and how often they should where tasks differ in difficulty.

A group of N attempts at a task of success rate p ties with probability p^N + (1-p)^N.  Over tasks whose rates are spread,
P(tie) = E_p[p^N + (1-p)^N], which is never below the value at the mean rate (the function is convex in p).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import optimize
from scipy.special import betaln, gammaln

from seedlab.analysis.frames import Runs, load
from seedlab.analysis.statistics import wilson_interval

PRECISION_LIMITS = (1e-2, 1e4)  # of a + b: below, every task is always won or always lost; above, all are equally hard


def groups(runs: Runs) -> pd.DataFrame:
    """One row per group: arm, seed, update, task, task_type, attempts, successes, tied (equal returns).

    Attempts lost to infrastructure are left out; a group with fewer than two attempts left has no row.
    """
    rows = []
    for arm in load(runs):
        for seed, run in arm.runs.items():
            for update in run.updates:
                played = run.trajectories(update)
                played = played[played["infra_failure"] == ""]
                for task, part in played.groupby("task", sort=False):
                    if len(part) > 1:
                        tied = part["return"].max() == part["return"].min()
                        rows.append((arm.name, seed, update, task, part["task_type"].iloc[0], len(part), int(part["success"].sum()), tied))
    return pd.DataFrame(rows, columns=["arm", "seed", "update", "task", "task_type", "attempts", "successes", "tied"])


def tie_theory(runs: Runs, parts: int = 2) -> pd.DataFrame:
    """Observed and expected tie rates per arm in `parts` equal stretches of its updates, seeds pooled.

    Columns arm, first, last (update), groups, success (mean rate), observed with its Wilson interval (low, high),
    equal (p^N + (1-p)^N at the mean rate), spread (the same averaged over a beta distribution of the tasks' rates,
    fitted to the groups' successes), and a, b of that distribution.
    """
    frame = groups(runs)
    rows = []
    for arm, of_arm in frame.groupby("arm", sort=False):
        edges = np.array_split(sorted(of_arm["update"].unique()), parts)
        for updates in (e for e in edges if len(e)):
            part = of_arm[of_arm["update"].isin(updates)]
            sizes = part["attempts"].to_numpy()
            a, b = fit_success_rates(part["successes"], sizes)
            mean = part["successes"].sum() / sizes.sum()
            observed = wilson_interval(int(part["tied"].sum()), len(part))
            equal = float(np.mean([mean**n + (1 - mean) ** n for n in sizes]))
            spread = float(np.mean([tie_probability_of_beta(a, b, int(n)) for n in sizes]))
            rows.append((arm, updates[0], updates[-1], len(part), mean, observed.estimate, observed.low, observed.high, equal, spread, a, b))
    return pd.DataFrame(rows, columns=["arm", "first", "last", "groups", "success", "observed", "low", "high", "equal", "spread", "a", "b"])


def fit_success_rates(successes: Sequence[int], attempts: Sequence[int]) -> tuple[float, float]:
    """(a, b) of the beta distribution of success rates that makes the groups' successes likeliest (beta-binomial).

    The plain shares k/N would not do: they scatter around the rates, so that a mean of (k/N)^N + (1-k/N)^N is too high.
    Raises ValueError without any group.
    """
    k, n = np.asarray(successes, dtype=float), np.asarray(attempts, dtype=float)
    if len(k) == 0:
        raise ValueError("there is no group to fit")
    mean = float(k.sum() / n.sum())
    if mean in (0.0, 1.0):
        return (PRECISION_LIMITS[1], 0.0) if mean == 1.0 else (0.0, PRECISION_LIMITS[1])

    def loss(x: np.ndarray) -> float:
        m, size = 1 / (1 + math.exp(-x[0])), math.exp(x[1])
        a, b = m * size, (1 - m) * size
        return -float(np.sum(betaln(k + a, n - k + b) - betaln(a, b)))

    low, high = np.log(PRECISION_LIMITS)
    start = np.array([math.log(mean / (1 - mean)), 0.7])
    found = optimize.minimize(loss, start, method="L-BFGS-B", bounds=[(-12.0, 12.0), (low, high)])
    m, size = 1 / (1 + math.exp(-found.x[0])), math.exp(found.x[1])
    return m * size, (1 - m) * size


def tie_probability_of_beta(a: float, b: float, size: int) -> float:
    """E[p^N + (1-p)^N] for p ~ Beta(a, b); a = 0 or b = 0 stands for a rate of exactly 0 or 1."""
    if size < 1 or a < 0 or b < 0 or a + b <= 0:
        raise ValueError(f"need a, b >= 0 (not both 0) and N >= 1, got a={a}, b={b}, N={size}")
    if a == 0 or b == 0:
        return 1.0
    rising = gammaln(a + b + size) - gammaln(a + b)
    return float(np.exp(gammaln(a + size) - gammaln(a) - rising) + np.exp(gammaln(b + size) - gammaln(b) - rising))
