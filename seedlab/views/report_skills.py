"""The report's sections on skills, gate and warning signals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from seedlab.analysis.compare import contrasts, find, named, show_interval
from seedlab.analysis.frames import Arm, evaluation_frame, token_updates
from seedlab.analysis.signals import warning_signals
from seedlab.analysis.statistics import mean_interval
from seedlab.store.errors import RunError
from seedlab.store.metrics import describe
from seedlab.views.figures import bin_shares, curves_figure, curves_table, figure_html, histogram_figure
from seedlab.views.template import empty, number, paragraph, table
from seedlab.views.token_heatmap import choose_trajectory, heatmap
from seedlab.views.token_story import taught_by

GATE_EDGES = np.linspace(0.0, 1.0, 41)
DELTA_EDGES = np.linspace(-1.0, 1.0, 41)
SKILLS_SHOWN = 6  # of each kind
NO_SEED = "No arm with skills of its own is here, or none of its runs could be read."


def skill_arm(arms: Sequence[Arm]) -> Arm | None:
    """The SEED arm; without one, any arm whose runs have a distillation term."""
    found = find(arms, "seed-sft") or find(arms, "seed-base") or find(arms, "shuffled")
    return found or next((a for a in arms if a.runs and a.config.objective.opd_coef != 0), None)


def gate(arms: Sequence[Arm]) -> str:
    """Histograms of gate and Δ at the first and the last stored update, all seeds together."""
    arm = skill_arm(arms)
    if arm is None:
        return empty(NO_SEED)
    first, last, problems = _taught(arm)
    if not len(first) and not len(last):
        return problems + empty(f"{arm.name} has no stored token with a teacher: tokens were not stored, or no skill was accepted.")
    palette = {"first": "#56B4E9", "last": "#D55E00", "success": "#0072B2", "failure": "#D55E00"}
    gates = {k: f["gate"].to_numpy() for k, f in (("first", first), ("last", last)) if f["gate"].notna().any()}
    by_outcome = {"success": last.loc[last["success"], "delta"].to_numpy(), "failure": last.loc[~last["success"], "delta"].to_numpy()}
    by_outcome = {k: v for k, v in by_outcome.items() if len(v)}
    rows = []
    for when, frame in (("first", first), ("last", last)):
        for outcome, part in (("success", frame[frame["success"]]), ("failure", frame[~frame["success"]])):
            d, g = part["delta"], part["gate"]
            rows.append([when, outcome, len(part), number(d.mean()), number(d.std(ddof=0)), number((d.abs() < 0.02).mean()), number(g.mean()), number((g > 0.5).mean() if gates else float("nan"))])
    lead = (
        f"Δ is the log-prob of a sampled token with the skill in context minus without; gate = σ(β Δ), one half where the skill changes "
        f"nothing. Tokens of {arm.name} with a teacher, all seeds, at the first and the last update whose tokens are stored. The histogram of Δ "
        "puts everything beyond ±1 into the outermost bins."
    )
    parts = [problems, paragraph(lead)]
    if gates:
        parts.append(figure_html(histogram_figure(gates, "Gate", "gate", GATE_EDGES, palette), "fig-gate", _bins(gates, GATE_EDGES)))
    else:
        parts.append(empty(f"{arm.name} distils without a gate (objective.opd_form={arm.config.objective.opd_form})."))
    if by_outcome:
        parts.append(figure_html(histogram_figure(by_outcome, "Δ by outcome, last stored update", "Δ, nats", DELTA_EDGES, palette), "fig-delta", _bins(by_outcome, DELTA_EDGES)))
    headers = ["update", "outcome", "tokens", "mean Δ", "sd Δ", "|Δ| < 0.02", "mean gate", "gate > ½"]
    return "".join(parts) + table(headers, rows, numbers=range(2, 8))


def _taught(arm: Arm) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Tokens with a teacher, with their trajectory's success: at the first and the last stored update of every seed."""
    found: list[list[pd.DataFrame]] = [[], []]
    problems = ""
    for run in arm.runs.values():
        stored = token_updates(run)
        for place, update in enumerate((stored[0], stored[-1]) if stored else ()):
            try:
                tokens, trajectories = run.tokens(update=update), run.trajectories(update)
            except RunError as error:
                problems += paragraph(error, "warn")
                continue
            won = dict(zip(trajectories["id"], trajectories["success"]))
            taught = tokens[tokens["mask_opd"]]
            found[place].append(taught[["gate", "delta"]].assign(success=taught["trajectory"].map(won).astype(bool)))
    none = pd.DataFrame({"gate": pd.Series(dtype=float), "delta": pd.Series(dtype=float), "success": pd.Series(dtype=bool)})
    first, last = (pd.concat(frames, ignore_index=True) if frames else none for frames in found)
    return first, last, problems


def _bins(groups: dict[str, np.ndarray], edges: np.ndarray) -> str:
    shares = [bin_shares(values, edges) for values in groups.values()]
    rows = [[f"{a:.3f} to {b:.3f}", *(f"{s[i]:.4f}" for s in shares)] for i, (a, b) in enumerate(zip(edges, edges[1:]))]
    return table(["bin", *groups], rows, numbers=range(1, len(groups) + 1))


def skills(arms: Sequence[Arm]) -> str:
    """Accepted and rejected skills beside what happened, and how often each reason occurs."""
    arm = skill_arm(arms)
    if arm is None:
        return empty(NO_SEED)
    parts = [_acceptance(arm)]
    run = next((r for r in arm.runs.values() if r.updates), None)
    if run is None:
        return "".join(parts) + empty(f"No run of {arm.name} has a complete update.")
    update = run.updates[-1]
    try:
        written, played = run.skills(update), run.trajectories(update)
    except RunError as error:
        return "".join(parts) + paragraph(error, "warn")
    if written.empty:
        return "".join(parts) + empty(f"{run.name} wrote no skill in update {update}.")
    joined = written.merge(played, left_on="trajectory", right_on="id", suffixes=("", "_trajectory"))
    kinds = [
        ("accepted, after a success", joined[joined["accepted"] & joined["success"]]),
        ("accepted, after a failure", joined[joined["accepted"] & ~joined["success"]]),
        ("rejected", joined[~joined["accepted"]]),
    ]
    rows = []
    for kind, part in kinds:
        if part.empty:
            rows.append([kind, "none in this update", "", "", ""])
        # The first of each task before the second of any: a group's skills are much alike.
        turn = part.groupby("task", sort=False).cumcount().sort_values(kind="stable").index
        for row in part.loc[turn].head(SKILLS_SHOWN).to_dict("records"):
            verdict = "accepted" if row["accepted"] else f"rejected: {row['reason']}"
            rows.append([kind, row["goal"], f"{'success' if row['success'] else 'failure'}, {row['steps']} steps", row["text"] or row["raw"] or "(empty)", verdict])
    parts.append(paragraph(f"The first {SKILLS_SHOWN} of each kind from update {update} of {run.name}, the first of each task before the second of any; not chosen."))
    parts.append(table(["kind", "task", "outcome", "skill", "verdict"], rows))
    return "".join(parts)


def _acceptance(arm: Arm) -> str:
    accepted = arm.curve("analyzer/accepted")
    if accepted.empty:
        return empty(f"{arm.name} has recorded no skills.")
    parts = []
    if float(np.nanmax(accepted.to_numpy())) == 0.0:
        parts.append(paragraph(f"{arm.name} never had an accepted skill: the distillation term was absent in every update, and the arm is GRPO with extra cost.", "warn"))
    figure = curves_figure([arm], "analyzer/accepted", "Accepted skills", "share", limits=(0.0, 1.0))
    parts.append(figure_html(figure, "fig-accepted", curves_table([arm], "analyzer/accepted")))
    counts: Counter = Counter()
    for seed in arm.runs:
        frame = arm.metrics(seed)
        for column in frame:
            if column.startswith("analyzer/rejected_"):
                counts[column.removeprefix("analyzer/rejected_")] += int(frame[column].sum())
    rows = [[reason, count] for reason, count in counts.most_common()]
    parts.append(table(["reason of rejection", "skills, all updates and seeds"], rows, numbers=[1]) if rows else paragraph("No skill was rejected."))
    agreement = [
        [name, show_interval(mean_interval(arm.early_mean(f"analyzer/{name}").values())), show_interval(mean_interval(arm.late_mean(f"analyzer/{name}").values()))]
        for name in ("exact", "location", "workflow", "distinct")
        if len(arm.curve(f"analyzer/{name}"))
    ]
    if agreement:
        parts.append(table(["share of own skills", "first quarter", "last quarter"], [[f"{n}: {describe(f'analyzer/{n}')[1]}", a, b] for n, a, b in agreement]))
    return "".join(parts)


def tokens(arms: Sequence[Arm]) -> str:
    """One trajectory's tokens coloured by gate or Δ, from the last update that stored them."""
    arm = skill_arm(arms)
    if arm is None:
        return empty(NO_SEED)
    for run in arm.runs.values():
        for update in reversed(token_updates(run)):
            try:
                frame, written, played, steps = run.tokens(update=update), run.skills(update), run.trajectories(update), run.steps(update)
            except RunError as error:
                return paragraph(error, "warn")
            chosen = choose_trajectory(frame, written)
            if chosen is None:
                continue
            row = played[played["id"] == chosen].iloc[0]
            own = written[written["trajectory"] == chosen]
            lead = f"From update {update} of {run.name}: the trajectory whose Δ varies most, so the clearest, not a typical one. Hover over a token for its values; what the environment said is grey."
            return paragraph(lead) + heatmap(
                frame[frame["trajectory"] == chosen], steps[steps["trajectory"] == chosen], row, own.iloc[0] if len(own) else None, taught_by=taught_by(run, update, chosen)
            )
    return empty(f"{arm.name} has no stored token with a teacher: tokens were not stored, or no skill was accepted.")


CONTROL_METRICS = (
    "opd/gate_mean", "opd/gate_std", "opd/delta_abs_small", "opd/delta_success", "opd/delta_failure", "signal/gate_progress_correlation",
    "signal/delta_confidence_correlation", "rollout/success", "policy/entropy",
)  # fmt: skip


def shuffled(arms: Sequence[Arm]) -> str:
    """Own skills beside those of other trajectories."""
    control, own = find(arms, "shuffled"), find(arms, "seed-sft") or find(arms, "seed-base")
    if control is None or own is None:
        return empty("There is no pair of an arm with own skills and one with shuffled skills, so that nothing here shows that the skills' content matters.")
    common = sorted(set(own.runs) & set(control.runs))
    lead = (
        f"In the control every trajectory is taught by another one's skill. If it does as well as {own.name}, the skills' content did not matter. "
        f"Common seeds: {', '.join(map(str, common)) or 'none'}."
    )
    parts = [paragraph(lead)]
    found = contrasts(evaluation_frame(arms), own.name, control.name)
    if found:
        rows = [[c.panel, measure, show_interval(c.difference, signed=True), ", ".join(f"{s}: {d:+.3f}" for s, d in c.by_seed.items())] for measure, c in named(found)]
        parts.append(table(["panel", "measure", "own − shuffled", "by seed"], rows))
    else:
        parts.append(empty("The two have no evaluated seed in common."))
    rows = []
    for metric in CONTROL_METRICS:
        cells = []
        for arm in (own, control):
            early, late = ({s: v for s, v in part.items() if s in common} for part in (arm.early_mean(metric), arm.late_mean(metric)))
            cells += [number(mean_interval(early.values()).estimate), number(mean_interval(late.values()).estimate)]
        rows.append([describe(metric)[1], *cells])
    parts.append(table(["on the common seeds", "own, first quarter", "own, last", "shuffled, first", "shuffled, last"], rows, numbers=range(1, 5)))
    return "".join(parts)


SIGNALS = (
    ("policy/entropy", "Entropy that falls fast towards 0 means that the policy stops exploring; distillation of its own samples can cause that."),
    ("policy/kl", "KL that keeps growing means that the policy leaves its start for good."),
    ("signal/gate_progress_correlation", "A gate that knows good steps correlates with progress; a value that falls to 0 means that it follows something else."),
    ("signal/delta_confidence_correlation", "A positive value means that Δ follows the policy's own confidence rather than the skill's advice."),
    ("analyzer/exact", "Nothing in Stage 2 trains the analyzer: a fall means that it forgets how to write skills."),
    ("analyzer/location", "The same for the location that a skill names."),
    ("analyzer/distinct", "A fall means that all skills become the same text."),
    ("opd/net_coefficient_mean", "The mean weight ρA + λg of ascent on a token: above 0 means that distillation pushes all samples up."),
)


def signals(arms: Sequence[Arm]) -> str:
    """Readings against their thresholds, then curves that warn of a collapse, with what each would mean."""
    parts, absent = [], []
    for place, (metric, meaning) in enumerate(SIGNALS):
        unit, sentence = describe(metric)
        figure = curves_figure(arms, metric, sentence, unit)
        if figure is None:
            absent.append(empty(f"No run has {metric} ({sentence})."))
            continue
        parts.append(f"<div>{paragraph(meaning)}{figure_html(figure, f'fig-signal-{place}', curves_table(arms, metric))}</div>")
    return _readings(arms) + f'<div class="pairs">{"".join(parts)}</div>' + "".join(absent)


def _readings(arms: Sequence[Arm]) -> str:
    readings = warning_signals(arms)
    if not readings:
        return empty("No run has the four updates that a first and a last quarter need, so that no signal is judged.")
    rows = [[r.rule.name, r.arm, show_interval(r.early), show_interval(r.late), r.rule.limit, r.verdict] for r in readings]
    lead = (
        "Means over the first and the last quarter of the updates, each seed judged by itself. The limits come from collapses seen with the embedded "
        "policy; they say where to look, and a run without a warning has not been shown to be sound."
    )
    # Quiet rows are paler, so that a warning is found at once.
    quiet = [i for i, r in enumerate(readings) if not r.warns]
    return paragraph(lead) + table(["signal", "arm", "first quarter", "last quarter", "warns", "verdict"], rows, soft=quiet)
