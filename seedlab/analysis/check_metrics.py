"""What a line of metrics.jsonl and a panel's summary must say, recomputed from the parquet files.

The formulas stand here a second time on purpose.  `train.measures` and `train.evaluate` wrote what is checked: with
their functions the check would repeat their faults, and could only agree.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from seedlab.config.schema import Config

# The tables hold float32; means over some thousand of them agree to about 1e-6.
TOLERANCE = 5e-5
SMALL_DELTA = 0.02  # nats, as in the metric's sentence
# Metrics that are absent exactly where these tables leave them undefined; of the others an engine may measure fewer.
PLAYED = ("rollout/", "analyzer/")


def expected_metrics(
    trajectories: pd.DataFrame, steps: pd.DataFrame, skills: pd.DataFrame, tokens: pd.DataFrame | None, cfg: Config
) -> dict[str, float]:
    """{metric: value}, NaN where it is undefined and must be absent; only what the tables determine."""
    played = trajectories[trajectories["infra_failure"] == ""]
    out = _played(trajectories, played, steps[steps["trajectory"].isin(played["id"])], cfg) | _written(skills)
    if tokens is not None:
        out |= _learnt(tokens, trajectories, cfg)
    out["optim/learning_rate"] = cfg.stage2.learning_rate
    return out


def _played(trajectories: pd.DataFrame, played: pd.DataFrame, steps: pd.DataFrame, cfg: Config) -> dict[str, float]:
    won = played["success"].astype(bool)
    unformed = played["id"].map((~steps["parsed"].astype(bool)).groupby(steps["trajectory"]).sum()).fillna(0)
    penalised = played["return"] - cfg.objective.invalid_penalty * unformed
    entropies = np.concatenate(steps["entropies"].to_list()) if len(steps) else np.array([])
    return {
        "rollout/return": played["return"].mean(),
        "rollout/success": won.mean(),
        "rollout/success_macro": won.groupby(played["task_type"]).mean().mean(),
        "rollout/episode_length": played["steps"].mean(),
        "rollout/episode_length_success": played.loc[won, "steps"].mean(),
        "rollout/episode_length_failure": played.loc[~won, "steps"].mean(),
        "rollout/tie_rate": _tied(played["return"], played["task"]),
        "rollout/tie_rate_penalised": _tied(penalised, played["task"]),
        "rollout/invalid_actions": (~steps["parsed"].astype(bool)).mean(),
        "rollout/inadmissible_actions": (~steps["admissible"].astype(bool)).mean(),
        "rollout/truncated": played["truncated"].mean(),
        "rollout/cut_responses": (steps["finish"] == "length").mean(),
        "rollout/infra_failures": len(trajectories) - len(played),
        "rollout/turns_dropped": (steps["kept_from"] > 0).sum(),
        "rollout/entropy": entropies.astype(np.float64).mean() if len(entropies) else math.nan,
    }


def _tied(returns: pd.Series, task: pd.Series) -> float:
    """Share of the groups whose returns are all equal."""
    return (returns.groupby(task).nunique() == 1).mean() if len(returns) else math.nan


def _written(skills: pd.DataFrame) -> dict[str, float]:
    if skills.empty:
        return {}
    accepted = skills[skills["accepted"]]
    rejected = skills.loc[~skills["accepted"], "reason"].value_counts()
    return {
        "analyzer/accepted": len(accepted) / len(skills),
        "analyzer/skill_words": accepted["text"].str.split().str.len().mean(),
        "analyzer/distinct": accepted["text"].nunique() / max(1, len(accepted)),
        **{f"analyzer/rejected_{reason}": count for reason, count in rejected.items()},
    }


def _learnt(tokens: pd.DataFrame, trajectories: pd.DataFrame, cfg: Config) -> dict[str, float]:
    kept, taught = tokens[tokens["mask_policy"]], tokens[tokens["mask_opd"]]
    first = kept[kept["minibatch"] == 0]
    out = {
        "policy/tokens_trained": len(kept), "policy/ratio_mean": _mean(kept["ratio"]), "policy/ratio_max": tokens["ratio"].max(),
        "policy/clip_fraction": _mean(kept["clipped"]), "policy/entropy": _mean(kept["entropy"]),
        "policy/rollout_mismatch": (first["logp_rollout"] - first["logp_student"]).abs().max(),
        "opd/net_coefficient_mean": _mean(tokens.loc[tokens["mask_policy"] | tokens["mask_opd"], "net_coefficient"]),
    }  # fmt: skip
    if cfg.objective.kl_coef and cfg.objective.reference != "none":
        out["policy/kl"] = _mean(kept["kl"])
    if cfg.objective.uses_teacher:
        out["opd/mask_coverage"] = len(taught) / max(1, len(kept))
    if len(taught):
        won, tied = (taught["trajectory"].isin(trajectories.loc[trajectories[c], "id"]).to_numpy() for c in ("success", "tied"))
        gate, delta = taught["gate"].to_numpy(dtype=np.float64), taught["delta"].to_numpy(dtype=np.float64)
        out |= {
            "opd/delta_mean": delta.mean(), "opd/delta_success": _mean(delta[won]), "opd/delta_failure": _mean(delta[~won]),
            "opd/delta_abs_small": (np.abs(delta) < SMALL_DELTA).mean(),
        }  # fmt: skip
        if cfg.objective.opd_coef:
            out |= {
                "opd/gate_mean": gate.mean(), "opd/gate_std": gate.std(), "opd/gate_above_half": (gate > 0.5).mean(),
                "opd/share_failed": gate[~won].sum() / gate.sum(), "opd/share_tied": gate[tied].sum() / gate.sum(),
            }  # fmt: skip
    return out


def _mean(values) -> float:
    values = np.asarray(values, dtype=np.float64)
    return float(values.mean()) if len(values) else math.nan


def metrics_mismatch(row: dict, expected: dict[str, float]) -> str | None:
    """The first metric of a run's line that the tables contradict; None where they agree.  NaN in `row` is an absent metric."""
    for name, value in expected.items():
        said = float(row[name]) if name in row else math.nan
        if math.isnan(value) and math.isnan(said) or not name.startswith(PLAYED) and (math.isnan(value) or math.isnan(said)):
            continue
        if not abs(said - value) <= TOLERANCE * max(1.0, abs(value)):
            return f"{name} is {_shown(said)}, the update's tables give {_shown(float(value))}"
    return None


def _shown(value: float) -> str:
    return "missing" if math.isnan(value) else f"{value:.6g}"


def summary_mismatch(entry: dict, episodes: pd.DataFrame) -> str | None:
    """The first number of a panel's summary that its episodes contradict; None where they agree."""
    played = episodes[episodes["infra_failure"] == ""]
    by_type = {kind: {"successes": int(part["success"].sum()), "episodes": len(part)} for kind, part in played.groupby("task_type")}
    expected = {
        "success_micro": played["success"].mean(), "success_macro": _mean([c["successes"] / c["episodes"] for c in by_type.values()]),
        "episodes": len(played), "infra_failures": len(episodes) - len(played), "mean_steps": played["steps"].mean(),
        "mean_return": played["return"].mean(), "inadmissible_rate": played["inadmissible"].sum() / max(1, played["steps"].sum()),
    }  # fmt: skip
    for name, value in expected.items():
        if name in entry and not abs(entry[name] - value) <= TOLERANCE * max(1.0, abs(value)):
            return f"the summary says {name} {entry[name]:.6g}, its episodes give {value:.6g}"
    if "by_type" in entry and entry["by_type"] != by_type:
        kind = next(k for k in {**by_type, **entry["by_type"]} if by_type.get(k) != entry["by_type"].get(k))
        return f"the summary says {entry['by_type'].get(kind)} of {kind}, its episodes give {by_type.get(kind)}"
    return None
