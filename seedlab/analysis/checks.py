"""`seedlab check`: recompute from a run's records what the method says they must be.

Each check answers passed, failed (with the place) or not checked (with the reason); none of them needs the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from seedlab.analysis.check_records import (
    ADVANTAGE_TOLERANCE, GATE_TOLERANCE, GRADIENT_JUMP, REPLAY_TOLERANCE, expected_advantages, expected_gate, leaked_skills, mask_mismatch, panel_hash,
    token_mismatch,
)  # fmt: skip
from seedlab.analysis.check_credit import token_advantages
from seedlab.analysis.check_metrics import summary_mismatch
from seedlab.analysis.check_prompts import skills_in_prompts
from seedlab.analysis.check_recorded import metrics_from_tables, recorded_settings
from seedlab.analysis.check_results import FAILED, NOT_CHECKED, PASSED, Broken, CheckResult, Skipped
from seedlab.analysis.frames import token_updates
from seedlab.config.schedule import at_update
from seedlab.errors import UserError
from seedlab.store.errors import RunError
from seedlab.store.making_room import with_room
from seedlab.store.reader import Run, open_run


def check_run(path: str | Path) -> list[CheckResult]:
    """All checks on a run folder.  Raises RunError where the folder is no run."""
    run = open_run(path)
    results = []
    for name, check in CHECKS.items():
        try:
            results.append(CheckResult(name, PASSED, check(run)))
        except Broken as error:
            results.append(CheckResult(name, FAILED, str(error)))
        except Skipped as error:
            results.append(CheckResult(name, NOT_CHECKED, str(error)))
        except RunError as error:
            # A file that cannot be read is a finding, and must not keep the other checks from running.
            results.append(CheckResult(name, FAILED, str(error)))
    return results


def _readable(run: Run) -> str:
    problems = run.problems()
    if problems:
        raise Broken("; ".join(problems))
    try:
        with_room(run.config, run.path)
    except UserError as error:
        raise Broken(str(error)) from error
    return f"{len(run.updates)} updates, {len(run.metrics)} rows of metrics"


def _finite(run: Run) -> str:
    metrics = run.metrics
    names = [n for n in metrics if "/" in n]
    infinite = [(n, int(u)) for n in names for u, v in zip(metrics["update"], metrics[n]) if np.isinf(v)]
    if infinite:
        raise Broken(", ".join(f"{n} is infinite at update {u}" for n, u in infinite[:5]))
    if not names:
        raise Skipped("the run has no update yet")
    return f"{len(names)} metrics over {len(metrics)} updates"


def _opd_gradient(run: Run) -> str:
    cfg = run.config
    if cfg.objective.opd_coef == 0:
        raise Skipped("the method has no distillation term (objective.opd_coef=0)")
    if cfg.engine == "verl":
        raise Skipped("engine=verl does not measure the gradient norms of single terms")
    metrics, every = run.metrics, cfg.stage2.log_gradient_terms_every
    if not every:
        raise Skipped("gradient norms were not measured (stage2.log_gradient_terms_every=0)")
    scheduled = metrics["update"].map(lambda update: at_update(cfg.objective, int(update)).opd_coef != 0)
    due = metrics[(metrics["update"] % every == 0) & scheduled]
    if due.empty:
        raise Skipped("no update with measured gradient norms yet")
    if "optim/grad_norm_opd" not in due or due["optim/grad_norm_opd"].isna().any():
        raise Broken(f"optim/grad_norm_opd is missing or undefined at an update that measures it (every {every})")
    if not np.isfinite(due["optim/grad_norm_opd"]).all():
        raise Broken("optim/grad_norm_opd is infinite")
    # Only the first minibatch is measured; it may hold no row with a skill, so a zero counts where it must not be one.
    taught = {u: _taught_first(run, int(u)) for u in due["update"]}
    zero = [int(u) for u, norm in zip(due["update"], due["optim/grad_norm_opd"]) if norm == 0 and taught[u]]
    if zero:
        raise Broken(f"optim/grad_norm_opd is 0 at updates {zero} although their first minibatch has tokens with a teacher")
    norms = due.loc[due["optim/grad_norm_opd"] > 0, "optim/grad_norm_opd"]
    if norms.empty:
        raise Skipped("no measured minibatch had a token with a teacher: no skill was usable there, or tokens were not stored")
    if norms.max() > GRADIENT_JUMP * norms.median():
        raise Broken(f"optim/grad_norm_opd jumps to {norms.max():.3g} at update {int(due.loc[norms.idxmax(), 'update'])}; its median is {norms.median():.3g}")
    rest = "" if len(norms) == len(due) else f"; the other {len(due) - len(norms)} had no token with a teacher"
    return f"non-zero, finite and stable ({norms.min():.3g} to {norms.max():.3g}) at {len(norms)} of {len(due)} measured updates{rest}"


def _taught_first(run: Run, update: int) -> bool:
    """Whether the first minibatch has a token with a teacher, as far as stored tokens can tell."""
    if update not in token_updates(run):
        return False
    tokens = run.tokens(update=update)
    return bool((tokens["mask_opd"] & (tokens["minibatch"] == 0)).any())


def _each_tokens(run: Run) -> Iterator[tuple[int, pd.DataFrame]]:
    stored = token_updates(run)
    if not stored:
        raise Skipped(f"no tokens are stored (store.tokens={run.config.store.tokens})")
    for update in stored:
        yield update, run.tokens(update=update)


def _gate(run: Run) -> str:
    objective, count = run.config.objective, 0
    if objective.opd_coef == 0:
        raise Skipped("the method has no gate (objective.opd_coef=0)")
    if objective.average_skills > 1:
        raise Skipped("the gate is a mean over several skills, whose log-probs are not stored apart (objective.average_skills)")
    for update, tokens in _each_tokens(run):
        taught, other = tokens[tokens["mask_opd"]], tokens[~tokens["mask_opd"]]
        if other["gate"].notna().any() or other["delta"].notna().any():
            raise Broken(f"update {update}: tokens without a teacher have a gate")
        gap_delta = (taught["delta"] - (taught["logp_teacher"] - taught["logp_student"])).abs()
        if objective.opd_form == "gate":
            gap_gate = (taught["gate"].astype(float) - expected_gate(taught["delta"], objective.beta)).abs()
        elif taught["gate"].notna().any() or not (gap_delta <= GATE_TOLERANCE).all():
            raise Broken(f"update {update}: objective.opd_form={objective.opd_form} has no gate, and Δ is the teacher's log-prob minus the student's; the tokens say otherwise")
        else:
            count += len(taught)
            continue
        # A comparison with NaN is false, so that an undefined gate fails here too.
        wrong = ~((gap_delta <= GATE_TOLERANCE) & (gap_gate <= GATE_TOLERANCE))
        if wrong.any():
            row = taught[wrong].iloc[0]
            raise Broken(
                f"update {update}: {int(wrong.sum())} of {len(taught)} gates are not sigmoid({objective.beta:g} Δ); first in "
                f"{row['trajectory']} step {row['step']} position {row['position']}: Δ {row['delta']:.6f}, gate {row['gate']:.6f}"
            )
        count += len(taught)
    if not count:
        raise Skipped("no stored token has a teacher")
    if objective.opd_form != "gate":
        return f"objective.opd_form={objective.opd_form} has no gate; Δ of {count} tokens, within {GATE_TOLERANCE:g}"
    without = "; beta is 0, so that every gate is one half and the skill has no influence on the gradient" if objective.beta == 0 else ""
    return f"{count} tokens, within {GATE_TOLERANCE:g}{without}"


def _delta(run: Run) -> str:
    largest, count = 0.0, 0
    for _, tokens in _each_tokens(run):
        delta = tokens.loc[tokens["mask_opd"], "delta"].abs()
        largest, count = max(largest, float(delta.max()) if len(delta) else 0.0), count + len(delta)
    if not count:
        raise Skipped("no stored token has a teacher")
    if run.config.objective.skill_from == "empty":
        if largest > REPLAY_TOLERANCE:
            raise Broken(f"the empty skill changes nothing, so that Δ must be 0, but |Δ| reaches {largest:.4g}")
        return "the skill is empty, and Δ is 0 throughout"
    if largest == 0.0:
        raise Broken(f"Δ is exactly 0 on all {count} tokens: the teacher's context is not read")
    return f"|Δ| reaches {largest:.3f} nats over {count} tokens"


def _advantages(run: Run) -> str:
    count = ties = 0
    for update in run.updates:
        played, steps = run.trajectories(update), run.steps(update)
        expected = expected_advantages(played, steps, run.config.objective)
        gap = np.abs(played["advantage"].to_numpy() - expected.advantage)
        wrong = ~(gap <= ADVANTAGE_TOLERANCE * np.maximum(1.0, np.abs(expected.advantage)))
        if wrong.any():
            row = played[wrong].iloc[0]
            raise Broken(f"update {update}: advantage of {row['id']} is {row['advantage']:.6f}, its group's returns give {expected.advantage[wrong][0]:.6f}")
        if (played["tied"].to_numpy() != expected.tied).any():
            raise Broken(f"update {update}: `tied` is wrong for {played['id'][played['tied'].to_numpy() != expected.tied].iloc[0]}")
        moved = expected.tied & (played["advantage"].to_numpy() != 0)
        if moved.any():
            raise Broken(f"update {update}: the group of {played['id'][moved].iloc[0]} is tied, but its advantage is not exactly 0")
        count, ties = count + len(played), ties + int(expected.tied.sum())
    if not count:
        raise Skipped("the run has no complete update yet")
    return f"{count} trajectories, {ties} of them in tied groups with exactly 0"


def _rollout_log_probs(run: Run) -> str:
    if run.config.model.dtype != "float32":
        raise Skipped(f"sampler and trainer agree only in float32; this run has model.dtype={run.config.model.dtype}")
    largest, count = 0.0, 0
    for update, tokens in _each_tokens(run):
        first = tokens[(tokens["minibatch"] == 0) & tokens["mask_policy"]]
        gap = (first["logp_rollout"] - first["logp_student"]).abs()
        if not (gap <= REPLAY_TOLERANCE).all():
            row = first.loc[gap.fillna(np.inf).idxmax()]
            raise Broken(f"update {update}: log-prob {row['logp_rollout']:.5f} when sampled, {row['logp_student']:.5f} when scored, in {row['trajectory']} step {row['step']} position {row['position']}")
        largest, count = max(largest, float(gap.max()) if len(gap) else 0.0), count + len(first)
    return f"{count} tokens of first minibatches, largest gap {largest:.2g} nats"


def _token_ids(run: Run) -> str:
    count = 0
    for update, tokens in _each_tokens(run):
        problem = token_mismatch(tokens, run.steps(update), run.trajectories(update))
        if problem:
            raise Broken(f"update {update}: {problem}")
        count += len(tokens)
    return f"{count} tokens are exactly the sampled ids, in order, with the sampler's log-probs"


def _masks(run: Run) -> str:
    count = taught = 0
    for update, tokens in _each_tokens(run):
        problem = mask_mismatch(tokens, run.trajectories(update), run.skills(update), run.config)
        if problem:
            raise Broken(f"update {update}: {problem}")
        count, taught = count + len(tokens), taught + int(tokens["mask_opd"].sum())
    return f"{count} sampled tokens in the policy term, {taught} of them distilled"


def _no_leaks(run: Run) -> str:
    file = run.path / "checkpoints" / "reference" / "tokenizer.json"
    if not file.exists():
        raise Skipped(f"{file} is not there, so that skills cannot be turned into ids")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    skills = prompts = told = short = 0
    for update in run.updates:
        written, played, steps = run.skills(update), run.trajectories(update), run.steps(update)
        on_purpose = set(played.loc[played["prompt_skill"] != "", "id"])
        told += len(on_purpose)
        read, told_apart = run.prompt_skills(update), run.step_skills(update)
        texts = sorted({
            *written.loc[written["accepted"], "text"], *told_apart.loc[told_apart["accepted"].astype(bool), "text"],
            *read.loc[read["place"].str.startswith("teacher") & (read["text"] != ""), "text"],
        })  # fmt: skip
        found = leaked_skills(texts, steps[~steps["trajectory"].isin(on_purpose)], tokenizer)
        if found.leaks:
            text, trajectory, step = found.leaks[0]
            raise Broken(f"update {update}: the prompt of {trajectory} step {step} contains the skill {text!r}")
        skills, prompts, short = skills + found.searched, prompts + len(steps), short + found.too_short
    if not skills and told:
        raise Skipped("rollout.skill=library puts skills into training prompts on purpose; `skills in prompts as recorded` looks at them")
    if not skills:
        raise Skipped("no accepted skill of the run is long enough to be looked for: a few common words would be found in any prompt")
    left_out = f"; {told} trajectories were given a skill on purpose and left out" if told else ""
    left_out += f"; {short} skills are too short to look for" if short else ""
    return f"{skills} skill texts in {prompts} prompts{left_out}; prompts of evaluations are not stored: they were searched while they were played"


def _panels(run: Run) -> str:
    panels = _panel_tasks(run)
    names = list(panels)
    for i, a in enumerate(names):
        if len(set(panels[a])) != len(panels[a]):
            raise Broken(f"panel {a} lists a task twice")
        stored = run.manifest.get("panels", {}).get(a, {}).get("hash")
        if stored != panel_hash(panels[a]):
            raise Broken(f"the manifest gives panel {a} the hash {stored}, but its tasks have {panel_hash(panels[a])}")
        for b in names[i + 1 :]:
            common = set(panels[a]) & set(panels[b])
            if common:
                raise Broken(f"panels {a} and {b} share {len(common)} tasks, for example {min(common)}")
    train = set(panels.get("train", ()))
    for update in run.updates if train else ():
        foreign = set(run.trajectories(update)["task"]) - train
        if foreign:
            raise Broken(f"update {update} was played on {min(foreign)}, which is not in the train panel")
    return ", ".join(f"{name} {len(tasks)}" for name, tasks in panels.items())


def _panel_tasks(run: Run) -> dict[str, list[str]]:
    if not (run.path / "manifest.json").exists():
        raise Skipped("the run has no manifest yet")
    panels = run.manifest.get("panel_tasks")
    if not panels:
        raise Skipped("the manifest has no panel_tasks")
    return panels


def _evaluated_once(run: Run) -> str:
    evaluations = run.evaluations
    if evaluations.empty:
        raise Skipped("the run has not been evaluated")
    panels, samples = _panel_tasks(run), run.config.evaluation.samples_per_task
    done = []
    for update in sorted(set(evaluations["update"])):
        episodes = run.episodes(update)
        summaries = run.summary(update)
        for name in run.config.evaluation.panels:
            counts = episodes.loc[episodes["panel"] == name, "task"].value_counts()
            missing, foreign = set(panels[name]) - set(counts.index), set(counts.index) - set(panels[name])
            often = counts[counts != samples]
            for problem, tasks in (("was not evaluated", missing), ("is not in the panel", foreign), (f"was not evaluated {samples} time(s)", set(often.index))):
                if tasks:
                    raise Broken(f"update {update}, panel {name}: {min(tasks)} {problem} ({len(tasks)} such tasks)")
            stored = run.manifest.get("panels", {}).get(name, {}).get("hash")
            if name not in summaries or (stored and summaries[name]["panel_hash"] != stored):
                raise Broken(f"update {update}: the summary of panel {name} is missing or has another panel hash than the manifest")
            problem = summary_mismatch(summaries[name], episodes[episodes["panel"] == name])
            if problem:
                raise Broken(f"update {update}, panel {name}: {problem}")
            done.append(f"{name} {len(counts)}")
    return ", ".join(done) + f" tasks, each {samples} time(s)"


CHECKS: dict[str, Callable[[Run], str]] = {
    "every file can be read": _readable,
    "settings as recorded": recorded_settings,
    "metrics = tables": metrics_from_tables,
    "no metric is infinite": _finite,
    "OPD gradient": _opd_gradient,
    "gate = sigmoid(beta Δ)": _gate,
    "skills change log-probs": _delta,
    "advantages": _advantages,
    "advantages of tokens": token_advantages,
    "sampled = scored log-probs": _rollout_log_probs,
    "token ids as sampled": _token_ids,
    "masks": _masks,
    "no skill in a rollout prompt": _no_leaks,
    "skills in prompts as recorded": skills_in_prompts,
    "panels are disjoint and hashed": _panels,
    "every panel task evaluated once": _evaluated_once,
}
