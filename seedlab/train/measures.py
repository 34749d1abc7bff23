"""Numbers of an update, from its records; names and meaning are in seedlab.store.metrics."""

from __future__ import annotations

from collections import Counter
from typing import Sequence

import numpy as np
import pandas as pd

from seedlab.config.schema import Config, ObjectiveConfig
from seedlab.episodes.records import Skill, Trajectory
from seedlab.objective.advantages import AdvantageResult
from seedlab.objective.aggregate import macro_micro
from seedlab.skills.steps import step_counts
from seedlab.train.session import Session
from seedlab.train.stage1_measures import scripted_skill
from seedlab.train.tokens import PreparedBatch, UpdateResult

SMALL_DELTA = 0.02  # nats; below it the gate is within 0.025 of one half at beta = 5


def _mean(values) -> float:
    values = [float(v) for v in values]
    return float(np.mean(values)) if values else float("nan")


def present(values: dict[str, float]) -> dict[str, float]:
    """Without the undefined ones: a mean over nothing is absent, never 0."""
    return {name: float(value) for name, value in values.items() if value is not None and np.isfinite(value)}


def rollout_metrics(trajectories: Sequence[Trajectory], advantages: AdvantageResult) -> dict[str, float]:
    played = [t for t in trajectories if not t.infra_failure]
    steps = [s for t in played for s in t.steps]
    by_type = {
        kind: (sum(t.success for t in played if t.task_type == kind), sum(t.task_type == kind for t in played))
        for kind in sorted({t.task_type for t in played})
    }
    macro = macro_micro(by_type)[0] if by_type else float("nan")
    return present(
        {
            "rollout/return": _mean(t.returned for t in played),
            "rollout/success": _mean(t.success for t in played),
            "rollout/success_macro": macro,
            "rollout/episode_length": _mean(len(t.steps) for t in played),
            "rollout/episode_length_success": _mean(len(t.steps) for t in played if t.success),
            "rollout/episode_length_failure": _mean(len(t.steps) for t in played if not t.success),
            "rollout/tie_rate": advantages.tie_rate,
            "rollout/tie_rate_penalised": advantages.tie_rate_penalised,
            "rollout/invalid_actions": _mean(not s.parsed for s in steps),
            "rollout/inadmissible_actions": _mean(not s.admissible for s in steps),
            "rollout/truncated": _mean(t.truncated for t in played),
            "rollout/cut_responses": _mean(s.finish == "length" for s in steps),
            "rollout/infra_failures": len(trajectories) - len(played),
            "rollout/turns_dropped": sum(s.kept_from > 0 for s in steps),
            "rollout/entropy": _mean(e for s in steps for e in s.entropies),
        }
    )


def analyzer_metrics(
    session: Session, trajectories: Sequence[Trajectory], skills: Sequence[Skill], reasons: dict[str, int], left_out: Counter
) -> dict[str, float]:
    """Acceptance, length and, where a scripted analyzer knows better, accuracy of the update's skills."""
    if not skills:
        return {}
    accepted = [s for s in skills if s.accepted]
    out = {
        "analyzer/accepted": len(accepted) / len(skills),
        "analyzer/skill_words": _mean(len(s.text.split()) for s in accepted),
        "analyzer/distinct": len({s.text for s in accepted}) / max(1, len(accepted)),
        "analyzer/rows_without_opd": sum(left_out.values()),
    }
    out |= {f"analyzer/rejected_{reason}": count for reason, count in reasons.items() if reason != "ok" and count}
    if session.family.has_scripted_analyzer and any(s.analyzer == "own" for s in skills):
        by_id = {t.id: t for t in trajectories}
        judged = [
            (s.accepted, session.family.skill_agreement(s.text, scripted_skill(session, by_id[s.trajectory_id]))) for s in skills
        ]
        for name in ("exact", "location", "workflow"):
            out[f"analyzer/{name}"] = _mean(ok and getattr(a, name) for ok, a in judged)
    return present(out)


def token_metrics(
    result: UpdateResult, trajectories: Sequence[Trajectory], advantages: AdvantageResult, cfg: Config
) -> dict[str, float]:
    """What the objective saw, over all tokens of the update at their first visit."""
    tokens, means, counts = result.tokens, result.means.means(), result.means.counts()
    if tokens.empty:
        return {"policy/tokens_trained": 0.0}
    first = tokens[tokens["minibatch"] == 0]
    out = {
        "policy/loss": means.get("policy_loss"), "policy/kl": means.get("kl"), "policy/entropy": means.get("entropy"),
        "policy/ratio_mean": means.get("ratio"), "policy/ratio_max": tokens["ratio"].max(),
        "policy/clip_fraction": means.get("clip_fraction"), "policy/tokens_trained": counts.get("ratio", 0.0),
        "policy/rollout_mismatch": (first["logp_rollout"] - first["logp_student"]).abs().max(),
        "optim/grad_norm": _mean(r["grad_norm"] for r in result.records),
        "opd/net_coefficient_mean": means.get("net_coefficient"),
    }
    taught = tokens[tokens["mask_opd"]]
    if cfg.objective.uses_teacher:
        out["opd/mask_coverage"] = len(taught) / max(1, int(tokens["mask_policy"].sum()))
    if len(taught):
        won = np.array([t.success for t in trajectories])[taught["trajectory_index"].to_numpy()]
        tied = advantages.tied_T.numpy()[taught["trajectory_index"].to_numpy()]
        gate, delta = taught["gate"].to_numpy(), taught["delta"].to_numpy()
        out |= {
            "opd/loss": means.get("opd_loss"), "opd/delta_mean": delta.mean(),
            "opd/delta_success": _mean(delta[won]), "opd/delta_failure": _mean(delta[~won]),
            "opd/delta_abs_small": (np.abs(delta) < SMALL_DELTA).mean(),
            "signal/agreement_success": _mean(delta[won]) - _mean(delta[~won]),
            "signal/delta_confidence_correlation": correlation(delta, taught["logp_student"].to_numpy()),
        }
        if not np.isnan(gate).any():  # other forms of the term, and teachers that only change advantages, have none
            out |= {
                "opd/gate_mean": gate.mean(), "opd/gate_std": gate.std(),
                "opd/gate_above_half": (gate > 0.5).mean(),
                "opd/share_failed": gate[~won].sum() / gate.sum(), "opd/share_tied": gate[tied].sum() / gate.sum(),
                "signal/gate_progress_correlation": gate_progress(taught, trajectories),
            }
    return present(out)


def step_skill_metrics(skills: Sequence[Skill], batch: PreparedBatch) -> dict[str, float]:
    """How many critical steps an analyzer told, and how much of what is taught reads their skills."""
    usable, rejected = step_counts(skills)
    read = sum(len(part.places) for row in batch.rows for part in row.step_teachers)
    taught = sum(len(row.positions) for row, mask in zip(batch.rows, batch.opd_mask_B.tolist()) if mask)
    return present(
        {
            "analyzer/step_skills": usable / len(skills) if skills else None, "analyzer/step_skills_rejected": rejected,
            "credit/step_skill_tokens": read / taught if taught else None,
        }
    )


def credit_metrics(result: UpdateResult, advantages: AdvantageResult, objective: ObjectiveConfig) -> dict[str, float]:
    """What steps and teachers add to the group's advantages; `objective` is that of the update (`at_update`)."""
    means, steps = result.means.means(), advantages.steps
    out = {"opd/coefficient": objective.opd_coef} if objective.schedule != "constant" else {}
    if steps is not None:
        played = [values for values, scored in zip(steps.advantage_T, advantages.scored_T.tolist()) if scored]
        out |= {
            "credit/steps_shared": steps.shared, "credit/steps_tied": steps.tied,
            "credit/step_advantage_abs": _mean(v for values in played for v in values.abs().tolist()),
        }
    if objective.average_skills > 1:
        out["opd/skills_read"] = means.get("skills_read")
    if objective.baseline != "none":
        out["opd/baseline_mean"] = means.get("baseline")
    if objective.skill_advantage != "none":
        out["credit/shift_mean"] = means.get("credit_shift")
    if objective.skill_advantage == "added":
        out["credit/added_abs"] = means.get("credit_added")
    if objective.skill_advantage == "scaled":
        out |= {
            "credit/scale_share": objective.scale_share, "credit/weight_mean": means.get("credit_weight"),
            "credit/weight_at_bound": means.get("credit_at_bound"),
        }
    return present(out)


def gate_progress(taught: pd.DataFrame, trajectories: Sequence[Trajectory]) -> float:
    """Correlation over steps of the mean gate with the oracle's progress; NaN without an oracle."""
    per_step = taught.groupby(["trajectory_index", "step"])["gate"].mean()
    progress = [trajectories[t].steps[s].progress for t, s in per_step.index]
    if any(p is None for p in progress):
        return float("nan")
    return correlation(per_step.to_numpy(), np.array(progress))


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's; NaN where either is constant."""
    if len(a) < 3 or np.std(a) == 0 or np.std(b) == 0:
        return float("nan")
    return float(np.corrcoef(a, b)[0, 1])
