"""How runs develop: bands over seeds, sample efficiency, episode lengths by outcome, gates and skills over updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from seedlab.analysis.frames import PHASES, Arm, Runs, load, token_updates
from seedlab.analysis.statistics import mean_interval
from seedlab.analysis.tables import learning_curves

COSTS = ("trajectories", "tokens", "flops", "seconds")
GATE_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
SKILL_MEASURES = ("accepted", "exact", "location", "workflow", "distinct", "skill_words")


def smoothed(frame: pd.DataFrame, window: int) -> pd.DataFrame:
    """Trailing mean over `window` updates; the first ones average over what there is."""
    return frame.rolling(window, min_periods=1).mean()


def curve_summary(curve: pd.DataFrame) -> pd.DataFrame:
    """[updates] mean, low, high and n over the seeds that have the update (t interval).  `curve` is [updates, seeds]."""
    rows = {}
    for update, values in curve.iterrows():
        i = mean_interval(values.dropna())
        rows[update] = (i.estimate, i.low, i.high, i.n)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["mean", "low", "high", "n"])


def curve_bands(runs: Runs, metric: str = "rollout/success", window: int = 1) -> pd.DataFrame:
    """Columns arm, update, mean, low, high, seeds: mean over seeds with its 95 % t interval, each seed's curve first
    smoothed by a trailing mean over `window` updates.  `low` and `high` are NaN with one seed."""
    parts = []
    for arm in load(runs):
        curve = arm.curve(metric)
        if len(curve):
            summary = curve_summary(smoothed(curve, window)).rename(columns={"n": "seeds"})
            parts.append(summary.rename_axis("update").reset_index().assign(arm=arm.name))
    columns = ["arm", "update", "mean", "low", "high", "seeds"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def sample_efficiency(runs: Runs, metric: str = "rollout/success", window: int = 1) -> pd.DataFrame:
    """Columns arm, seed, update, value, and what had been spent once the update was rolled out.

    trajectories: rollouts so far.  tokens, flops, seconds: computed so far, diagnostics and storing left out, because
    they are ours and not the method's.  The value is measured on the rollouts of the update, so its training is not
    yet counted; its rollouts are.
    """
    rows = []
    for arm in load(runs):
        curve = arm.curve(metric)
        for seed, column in smoothed(curve, window).items() if len(curve) else ():
            stage2 = arm.runs[seed].config.stage2
            spent = _spent(arm.metrics(seed))
            for update in column.index[curve[seed].notna()]:
                played = (update + 1) * stage2.tasks_per_update * stage2.group_size
                rows.append((arm.name, seed, update, column[update], played, *spent.loc[update]))
    return pd.DataFrame(rows, columns=["arm", "seed", "update", "value", *COSTS])


def _spent(metrics: pd.DataFrame) -> pd.DataFrame:
    """[updates] tokens, flops, seconds up to and with the update's rollout."""
    out = {}
    for unit in COSTS[1:]:
        phases = [p for p in PHASES if p not in ("diagnostics", "store") and f"cost/{p}_{unit}" in metrics]
        per_phase = metrics[[f"cost/{p}_{unit}" for p in phases]].fillna(0.0)
        before = per_phase.sum(axis=1).cumsum().shift(fill_value=0.0)
        rollout = per_phase[f"cost/rollout_{unit}"] if "rollout" in phases else 0.0
        out[unit] = before + rollout
    return pd.DataFrame(out)


def first_reached(runs: Runs, level: float, metric: str = "rollout/success", window: int = 4) -> pd.DataFrame:
    """One row per (arm, seed): the first update whose smoothed metric is at least `level`, and what it had cost.

    Columns arm, seed, reached, update, trajectories, tokens, flops, seconds, best; NaN where it was never reached, so
    that a run that did not get there cannot be averaged away.  The first window is not full and does not count.
    """
    frame = sample_efficiency(runs, metric, window)
    rows = []
    for (arm, seed), part in frame.groupby(["arm", "seed"], sort=False):
        full = part.iloc[window - 1 :]
        hits = full[full["value"] >= level]
        costs = hits.iloc[0][["update", *COSTS]].tolist() if len(hits) else [np.nan] * (1 + len(COSTS))
        rows.append((arm, seed, len(hits) > 0, *costs, full["value"].max()))
    return pd.DataFrame(rows, columns=["arm", "seed", "reached", "update", *COSTS, "best"])


def episode_lengths(runs: Runs) -> pd.DataFrame:
    """Columns arm, seed, update, outcome (success or failure), steps (mean), episodes; from the stored trajectories."""
    rows = []
    for arm, seed, run, update in _stored(runs):
        played = run.trajectories(update)
        played = played[played["infra_failure"] == ""]
        for won, part in played.groupby("success"):
            rows.append((arm.name, seed, update, "success" if won else "failure", part["steps"].mean(), len(part)))
    return pd.DataFrame(rows, columns=["arm", "seed", "update", "outcome", "steps", "episodes"])


def gates(runs: Runs, by_outcome: bool = False) -> pd.DataFrame:
    """Columns arm, seed, update, (outcome,) tokens, mean, sd, q05, q25, q50, q75, q95 of the gate over tokens with a
    teacher; updates whose tokens are not stored, and arms without a teacher, have no row."""
    rows = []
    for arm in load(runs):
        for seed, run in arm.runs.items():
            for update in token_updates(run):
                tokens = run.tokens(update=update)
                taught = tokens[tokens["mask_opd"]]
                won = run.trajectories(update).set_index("id")["success"]
                parts = {"": taught}
                if by_outcome:
                    success = taught["trajectory"].map(won).astype(bool)  # without a row its dtype would not be bool
                    parts = {"success": taught[success], "failure": taught[~success]}
                for outcome, part in parts.items():
                    gate = part["gate"].dropna().to_numpy(dtype=float)  # not every form of distillation has one
                    if len(gate):
                        rows.append((arm.name, seed, update, outcome, len(gate), gate.mean(), gate.std(), *np.quantile(gate, GATE_QUANTILES)))
    names = [f"q{round(100 * q):02d}" for q in GATE_QUANTILES]
    frame = pd.DataFrame(rows, columns=["arm", "seed", "update", "outcome", "tokens", "mean", "sd", *names])
    return frame if by_outcome else frame.drop(columns="outcome")


def skill_quality(runs: Runs) -> pd.DataFrame:
    """Columns arm, seed, update, measure, value: accepted, exact, location, workflow, distinct (shares of an update's
    skills) and skill_words (mean length); the middle three need a scripted analyzer that knows what is right."""
    arms = load(runs)
    parts = [learning_curves(arms, f"analyzer/{name}").assign(measure=name) for name in SKILL_MEASURES]
    return pd.concat(parts, ignore_index=True)[["arm", "seed", "update", "measure", "value"]]


def cost_per_update(runs: Runs) -> pd.DataFrame:
    """Columns arm, phase, seconds, tokens, flops: means over all updates and seeds; the last phase, `update`, is the
    whole.  NaN where a phase records no tokens of its own."""
    rows = []
    for arm in load(runs):
        frames = [arm.metrics(seed) for seed in arm.runs]
        updates = sum(map(len, frames))
        for phase in (*PHASES, "update"):
            found = {unit: [f[f"cost/{phase}_{unit}"] for f in frames if f"cost/{phase}_{unit}" in f] for unit in ("seconds", "tokens", "flops")}
            if any(found.values()):
                # A phase that did not run in an update took nothing there.
                rows.append((arm.name, phase, *(sum(c.sum() for c in columns) / updates if columns else np.nan for columns in found.values())))
    return pd.DataFrame(rows, columns=["arm", "phase", "seconds", "tokens", "flops"])


def cost_table(arm: Arm) -> dict[str, float]:
    """Mean seconds per update of each phase and of the whole (`update`), over all updates and seeds."""
    frame = cost_per_update([arm]).set_index("phase")["seconds"].dropna()
    return {str(phase): float(seconds) for phase, seconds in frame.items()}


def _stored(runs: Runs) -> Sequence[tuple]:
    return [(arm, seed, run, update) for arm in load(runs) for seed, run in arm.runs.items() for update in run.updates]
