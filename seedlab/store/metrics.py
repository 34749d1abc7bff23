"""Every metric of a run: its unit and a sentence.  A row with another name is refused, so that none goes unexplained."""

from __future__ import annotations

import difflib

METRICS: dict[str, tuple[str, str]] = {
    "rollout/return": ("reward", "mean return R of the update's trajectories"),
    "rollout/success": ("share", "successful trajectories (micro)"),
    "rollout/success_macro": ("share", "mean over task types of the success rate"),
    "rollout/episode_length": ("steps", "mean number of environment steps"),
    "rollout/episode_length_success": ("steps", "mean number of steps of successful trajectories"),
    "rollout/episode_length_failure": ("steps", "mean number of steps of failed trajectories"),
    "rollout/tie_rate": ("share", "groups whose returns R are all equal"),
    "rollout/tie_rate_penalised": ("share", "groups whose penalised returns R' are all equal"),
    "rollout/invalid_actions": ("share", "responses without the required form"),
    "rollout/inadmissible_actions": ("share", "commands that the environment did not list"),
    "rollout/truncated": ("share", "trajectories ended by the step or context limit"),
    "rollout/cut_responses": ("share", "responses cut at the token limit"),
    "rollout/infra_failures": ("count", "trajectories lost to infrastructure, left out of the loss"),
    "rollout/turns_dropped": ("count", "steps whose prompt had lost oldest turns"),
    "rollout/entropy": ("nats", "mean entropy of the sampled tokens' distributions"),
    "analyzer/accepted": ("share", "skills that passed validation"),
    "analyzer/skill_words": ("words", "mean length of the accepted skills"),
    "analyzer/exact": ("share", "own skills that say exactly what the scripted analyzer says"),
    "analyzer/location": ("share", "own skills that name the scripted analyzer's location"),
    "analyzer/workflow": ("share", "own skills with the scripted analyzer's workflow"),
    "analyzer/distinct": ("share", "distinct texts among the accepted skills"),
    "analyzer/rows_without_opd": ("count", "rows whose OPD mask is 0"),
    "analyzer/step_skills": ("count", "usable skills of critical steps per trajectory"),
    "analyzer/step_skills_rejected": ("count", "skills of critical steps that no teacher read"),
    "opd/loss": ("nats", "OPD term before its coefficient"),
    "opd/gate_mean": ("1", "mean gate over tokens with a teacher"),
    "opd/gate_std": ("1", "standard deviation of the gate"),
    "opd/gate_above_half": ("share", "tokens with a gate above one half"),
    "opd/delta_mean": ("nats", "mean of Delta = log-prob with the skill minus without"),
    "opd/delta_success": ("nats", "mean Delta on successful trajectories"),
    "opd/delta_failure": ("nats", "mean Delta on failed trajectories"),
    "opd/delta_abs_small": ("share", "tokens with |Delta| below 0.02"),
    "opd/mask_coverage": ("share", "trained tokens that have a teacher"),
    "opd/net_coefficient_mean": ("1", "mean of rho A + lambda g, the weight of ascent on a token's log-prob"),
    "opd/share_failed": ("share", "gate mass on failed trajectories"),
    "opd/share_tied": ("share", "gate mass on trajectories of tied groups"),
    "opd/coefficient": ("1", "lambda_opd of this update, where objective.schedule changes it"),
    "opd/skills_read": ("count", "skills whose gates are averaged, mean over tokens with a teacher"),
    "opd/baseline_mean": ("1", "mean of what objective.baseline subtracts from the gates"),
    "credit/steps_shared": ("share", "steps whose observation another step of their group has too (gigpo)"),
    "credit/steps_tied": ("share", "groups of such steps whose returns are all equal, so that they add nothing (gigpo)"),
    "credit/step_advantage_abs": ("1", "mean size of a step's own advantage, before its weight (gigpo)"),
    "credit/shift_mean": ("nats", "mean of l_t - l_o on tokens whose advantage a teacher changes"),
    "credit/added_abs": ("1", "mean size of what the teacher adds to a token's advantage (opid)"),
    "credit/step_skill_tokens": ("share", "tokens with a teacher that reads the skill of their own step"),
    "credit/scale_share": ("1", "share of the teacher's weight in the advantage's factor at this update (rlsd)"),
    "credit/weight_mean": ("1", "mean of the teacher's weight w after its clip (rlsd)"),
    "credit/weight_at_bound": ("share", "tokens whose weight w is at one of its bounds (rlsd)"),
    "policy/loss": ("1", "policy term before its coefficient"),
    "policy/ratio_max": ("1", "largest probability ratio of a trained token"),
    "policy/ratio_mean": ("1", "mean probability ratio"),
    "policy/clip_fraction": ("share", "tokens whose policy term is clipped"),
    "policy/kl": ("nats", "estimate of the KL term (objective.kl_estimator) against the reference"),
    "policy/entropy": ("nats", "mean entropy of the student's distribution on trained tokens"),
    "policy/tokens_trained": ("tokens", "sampled tokens in the policy loss"),
    "policy/rollout_mismatch": ("nats", "largest gap between the sampler's and the re-scored log-prob at the first minibatch"),
    "optim/steps": ("steps", "optimizer steps of this update"),
    "optim/learning_rate": ("1", "learning rate"),
    "optim/grad_norm": ("1", "mean gradient norm before clipping"),
    "optim/grad_norm_policy": ("1", "gradient norm of the policy term alone, first minibatch"),
    "optim/grad_norm_opd": ("1", "gradient norm of the OPD term alone (before its coefficient), first minibatch"),
    "optim/grad_norm_kl": ("1", "gradient norm of the KL term alone (before its coefficient), first minibatch"),
    "optim/grad_norm_opd_tied": ("1", "gradient norm of the OPD term on tied groups, first minibatch"),
    "optim/grad_norm_opd_untied": ("1", "gradient norm of the OPD term on untied groups, first minibatch"),
    "signal/gate_progress_correlation": ("1", "correlation of a step's mean gate with the oracle's progress"),
    "signal/delta_confidence_correlation": ("1", "correlation of Delta with the student's own log-prob"),
    "signal/agreement_success": ("nats", "mean Delta on successes minus on failures"),
    "cost/update_seconds": ("s", "wall time of the whole update"),
    "cost/peak_memory_mb": ("MB", "peak memory of the process (of the device on CUDA)"),
}
for _phase in ("rollout", "analyzer", "old", "teacher", "reference", "student", "diagnostics", "store"):
    METRICS[f"cost/{_phase}_seconds"] = ("s", f"wall time of the {_phase} phase")
    METRICS[f"cost/{_phase}_tokens"] = ("tokens", f"tokens computed in the {_phase} phase")
    METRICS[f"cost/{_phase}_flops"] = ("FLOP", f"estimate for the {_phase} phase: 2 or 6 per parameter and token")

PREFIXES = {"analyzer/rejected_": ("count", "skills rejected for this reason")}


def describe(name: str) -> tuple[str, str]:
    """(unit, sentence) of a metric.  Raises KeyError naming it where it is not registered."""
    if name in METRICS:
        return METRICS[name]
    for prefix, entry in PREFIXES.items():
        if name.startswith(prefix):
            return entry
    near = difflib.get_close_matches(name, METRICS, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise KeyError(f"metric {name!r} is not registered{hint}; add it with unit and sentence to seedlab/store/metrics.py")
