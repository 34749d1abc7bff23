"""Long frames for notebooks and for whoever wants other figures than the report's; every one is plain pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd

from seedlab.analysis.compare import contrasts, main_pair
from seedlab.analysis.frames import MEASURES, Runs, evaluation_frame, load, scores
from seedlab.analysis.statistics import mean_interval, wilson_interval
from seedlab.config.names import suggestion
from seedlab.errors import UserError
from seedlab.objective.ties import tie_probability
from seedlab.store.reader import Run


def runs_frame(runs: Runs) -> pd.DataFrame:
    """One row per run, and one per folder that could not be read: arm, seed, state, updates, planned, evaluated, commit,
    folder, problem."""
    rows = []
    for arm in load(runs):
        for seed, run in arm.runs.items():
            code = run.manifest.get("code", {}) if (run.path / "manifest.json").exists() else {}
            commit = str(code.get("commit") or "")[:12]
            rows.append((arm.name, seed, run.status["state"], len(arm.metrics(seed)), run.config.stage2.updates, len(run.evaluations) > 0, commit, str(run.path), ""))
        rows += [(arm.name, pd.NA, "unreadable", 0, 0, False, "", "", problem) for problem in arm.problems]
    return pd.DataFrame(rows, columns=["arm", "seed", "state", "updates", "planned", "evaluated", "commit", "folder", "problem"]).astype({"seed": "Int64"})


def learning_curves(runs: Runs, metric: str = "rollout/success") -> pd.DataFrame:
    """Columns arm, seed, update, value: one row wherever a run has the metric (units: `seedlab.store.metrics.describe`)."""
    rows = [
        (arm.name, seed, update, value)
        for arm in load(runs)
        for seed, column in arm.curve(metric).items()
        for update, value in column.dropna().items()
    ]
    return pd.DataFrame(rows, columns=["arm", "seed", "update", "value"])


def tie_rates(runs: Runs) -> pd.DataFrame:
    """Columns arm, seed, update, success, tied, chance: shares of an update's rollouts, of its groups, and
    p^N + (1-p)^N at that success rate, which is the tie rate if all tasks were equally hard (paper section 6)."""
    arms = load(runs)
    success = learning_curves(arms).rename(columns={"value": "success"})
    ties = learning_curves(arms, "rollout/tie_rate").rename(columns={"value": "tied"})
    frame = success.merge(ties, on=["arm", "seed", "update"])
    sizes = {(arm.name, seed): run.config.stage2.group_size for arm in arms for seed, run in arm.runs.items()}
    frame["chance"] = [tie_probability(p, sizes[a, s]) for a, s, p in zip(frame["arm"], frame["seed"], frame["success"])]
    return frame


def gate_histogram(run: Run, update: int, bins: int = 40) -> pd.DataFrame:
    """Columns low, high, tokens, share over [0, 1]; only tokens with a gate count.  No rows where there is none."""
    tokens = run.tokens(update=update)
    gate = tokens.loc[tokens["mask_opd"], "gate"].dropna().to_numpy(dtype=float)
    if not len(gate):
        return pd.DataFrame({"low": [], "high": [], "tokens": [], "share": []})
    counts, edges = np.histogram(gate, bins=bins, range=(0.0, 1.0))
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], "tokens": counts, "share": counts / len(gate)})


def skills_by_outcome(run: Run, update: int) -> pd.DataFrame:
    """Every skill of an update beside what happened: trajectory, task, goal, success, steps, accepted, reason, text."""
    joined = run.skills(update).merge(
        run.trajectories(update), left_on="trajectory", right_on="id", suffixes=("", "_of_trajectory"), validate="many_to_one"
    )
    return joined[["trajectory", "task", "goal", "success", "steps", "accepted", "reason", "text"]]


def token_frame(run: Run, trajectory: str) -> pd.DataFrame:
    """The stored tokens of one trajectory in order, with the observation that stood before each step's response."""
    tokens = run.tokens(trajectory)
    if tokens.empty:
        return tokens.assign(observation=pd.Series(dtype=object))
    update = int(trajectory.split("/")[0].lstrip("u"))
    steps = run.steps(update)
    seen = steps[steps["trajectory"] == trajectory].set_index("step")["observation"]
    return tokens.sort_values(["step", "position"], ignore_index=True).assign(observation=lambda f: f["step"].map(seen))


def evaluation_table(runs: Runs) -> pd.DataFrame:
    """Columns arm, panel, measure, mean, low, high, seeds, episodes: macro and micro apart, 95 % t intervals over seeds.

    `low` and `high` are NaN with one seed; `episodes` counts those of all seeds.
    """
    arms = load(runs)
    frame = evaluation_frame(arms)
    rows = []
    for panel in dict.fromkeys(frame["panel"]):
        for arm in arms:
            episodes = int(frame.loc[(frame["arm"] == arm.name) & (frame["panel"] == panel), "episodes"].sum())
            for measure in MEASURES:
                by_seed = scores(frame, arm.name, panel, measure)
                if by_seed:
                    i = mean_interval(by_seed.values())
                    rows.append((arm.name, panel, measure.removeprefix("success_"), i.estimate, i.low, i.high, i.n, episodes))
    return pd.DataFrame(rows, columns=["arm", "panel", "measure", "mean", "low", "high", "seeds", "episodes"])


def by_task_type(runs: Runs) -> pd.DataFrame:
    """Columns arm, panel, task_type, successes, episodes, share, low, high: episodes of all seeds pooled, Wilson's 95 %
    interval.  It treats episodes as independent, so it says nothing on the spread between seeds."""
    frame = evaluation_frame(load(runs))
    rows = []
    for (arm, panel), part in frame.groupby(["arm", "panel"], sort=False):
        counts = pd.DataFrame([{"task_type": kind, **c} for types in part["by_type"] for kind, c in types.items()])
        for kind, c in counts.groupby("task_type", sort=True):
            won, n = int(c["successes"].sum()), int(c["episodes"].sum())
            i = wilson_interval(won, n)
            rows.append((arm, panel, kind, won, n, i.estimate, i.low, i.high))
    return pd.DataFrame(rows, columns=["arm", "panel", "task_type", "successes", "episodes", "share", "low", "high"])


def paired_differences(runs: Runs, arm: str = "", baseline: str = "") -> pd.DataFrame:
    """Columns arm, baseline, panel, measure, difference, low, high, pairs: arm minus baseline by seed, 95 % t interval.

    Without names, SEED and GRPO from the same start, where both are there.  No rows without a common seed.
    """
    arms = load(runs)
    if not (arm and baseline):
        pair = main_pair(arms)
        if None in pair:
            return pd.DataFrame(columns=["arm", "baseline", "panel", "measure", "difference", "low", "high", "pairs"])
        arm, baseline = (found.name for found in pair)
    unknown = [name for name in (arm, baseline) if name not in {a.name for a in arms}]
    if unknown:
        raise UserError(f"there is no arm {unknown[0]!r}{suggestion(unknown[0], [a.name for a in arms])} (arms: {', '.join(a.name for a in arms)})")
    rows = [
        (arm, baseline, c.panel, c.measure.removeprefix("success_"), c.difference.estimate, c.difference.low, c.difference.high, c.difference.n)
        for c in contrasts(evaluation_frame(arms), arm, baseline)
    ]
    return pd.DataFrame(rows, columns=["arm", "baseline", "panel", "measure", "difference", "low", "high", "pairs"])
