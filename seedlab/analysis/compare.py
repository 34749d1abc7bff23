"""What a comparison of arms shows, in plain words that never say more than the numbers do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from seedlab.analysis.frames import MEASURES, Arm, evaluation_frame, scores, starts_from_stage1
from seedlab.analysis.statistics import Interval, mean_interval, paired_difference
from seedlab.config.diff import values_of

MEASURE_NAMES = {"success_macro": "macro", "success_micro": "micro"}
ONE_MEAN = "macro = micro"
# Keys that follow from others or name the run; they differ by design.
OWN_KEYS = ("seed",)


@dataclass(frozen=True)
class Contrast:
    """`arm` minus `baseline` on one panel and measure, paired by seed."""

    arm: str
    baseline: str
    panel: str
    measure: str
    difference: Interval
    by_seed: dict[int, float]
    one_mean: bool = False  # macro and micro are one number here: `means_are_one` for both arms


def contrasts(evaluations: pd.DataFrame, arm: str, baseline: str) -> list[Contrast]:
    """Every panel and measure that both arms have on at least one common seed."""
    out = []
    for panel in dict.fromkeys(evaluations["panel"]):
        one_mean = all(means_are_one(evaluations, name, panel) for name in (arm, baseline))
        for measure in MEASURES:
            a, b = scores(evaluations, arm, panel, measure), scores(evaluations, baseline, panel, measure)
            common = {s: a[s] - b[s] for s in sorted(set(a) & set(b))}
            if common:
                out.append(Contrast(arm, baseline, panel, measure, paired_difference(a, b), common, one_mean))
    return out


def named(found: Sequence[Contrast]) -> list[tuple[str, Contrast]]:
    """(macro, micro or `macro = micro`, contrast): each number once, so that equal ones are not counted as two comparisons."""
    first = next(iter(MEASURES))
    return [
        (ONE_MEAN if c.one_mean else MEASURE_NAMES[c.measure], c) for c in found if not c.one_mean or c.measure == first
    ]


def listed_differences(found: Sequence[Contrast]) -> str:
    """`seen macro +0.010 [-0.020, +0.040]; seen micro ...`."""
    return "; ".join(f"{c.panel} {name} {show_interval(c.difference, signed=True)}" for name, c in named(found))


def means_are_one(evaluations: pd.DataFrame, arm: str, panel: str) -> bool:
    """Whether all task types of `panel` have equally many episodes in every run of `arm`: macro and micro are then the same."""
    part = evaluations[(evaluations["arm"] == arm) & (evaluations["panel"] == panel)]
    return "by_type" in part and all(
        isinstance(types, dict) and len({kind["episodes"] for kind in types.values()}) == 1 for types in part["by_type"]
    )


def find(arms: Sequence[Arm], role: str) -> Arm | None:
    """The first arm with that role that has a run."""
    return next((arm for arm in arms if arm.role == role and arm.runs), None)


def main_pair(arms: Sequence[Arm]) -> tuple[Arm | None, Arm | None]:
    """SEED and GRPO from the same start, which differ in the distillation term alone; else whatever there is of each."""
    for start in ("sft", "base"):
        seed, grpo = find(arms, f"seed-{start}"), find(arms, f"grpo-{start}")
        if seed and grpo:
            return seed, grpo
    return find(arms, "seed-sft") or find(arms, "seed-base"), find(arms, "grpo-sft") or find(arms, "grpo-base")


def same_start(a: Arm, b: Arm) -> bool:
    return starts_from_stage1(a.config) == starts_from_stage1(b.config)


def questions(arms: Sequence[Arm]) -> list[tuple[str, Arm, Arm]]:
    """The comparisons that the arms allow: (what it isolates, arm, baseline)."""
    seed, grpo = main_pair(arms)
    base, sft, shuffled = find(arms, "grpo-base"), find(arms, "grpo-sft"), find(arms, "shuffled")
    wanted = [
        ("the distillation term alone", seed, grpo if seed and grpo and same_start(seed, grpo) else None),
        ("the whole method, both stages", seed, base if seed and base and not same_start(seed, base) else None),
        ("Stage 1 alone", sft, base),
        ("own skills against shuffled ones", seed, shuffled),
    ]
    found = [(what, a, b) for what, a, b in wanted if a is not None and b is not None]
    # Other methods beside them, and runs without any of these roles: each against one baseline.
    told = {arm.name for _, a, b in found for arm in (a, b)}
    trained = [arm for arm in arms if arm.runs and not arm.role.startswith("start-")]
    baseline = base or sft or next(iter(trained), None)
    others = [arm for arm in trained if arm is not baseline and arm.name not in told]
    return found + [("all settings in which they differ", arm, baseline) for arm in others]


def verdict(arms: Sequence[Arm], *, quick: bool = False) -> list[str]:
    """The first lines of a report: whether SEED did better than GRPO, and what speaks for the reason.

    A difference counts only where its paired interval excludes 0 on every panel and in both measures.
    """
    if quick:
        return [
            "This is a quick run: it shows that every part works on this machine.",
            "It is far too short, with one seed and small panels; it makes no claim on learning. Run it without --quick for a comparison.",
        ]
    evaluations = evaluation_frame(arms)
    seed, grpo = main_pair(arms)
    if seed is None or grpo is None:
        missing = "SEED" if seed is None else "GRPO"
        others = len([arm for arm in arms if arm.runs]) > 1
        return [
            f"There is no verdict on SEED against GRPO: no arm of {missing} that could be compared was given or could be read."
            + (" The differences between the arms that were given stand further down." if others else "")
        ]
    found = contrasts(evaluations, seed.name, grpo.name)
    if not found:
        return [f"There is no verdict yet: {seed.name} and {grpo.name} have no evaluated seed in common."]
    lines = [headline(found), *why(seed, grpo, arms, evaluations)]
    if not same_start(seed, grpo):
        lines.insert(1, "The two start from different weights, so that Stage 1 is part of this difference; no arm shows the distillation term alone.")
    return lines + agreement_of_panels(evaluations) + wrong_starts(arms)


def headline(found: Sequence[Contrast]) -> str:
    """One sentence from all panels and measures of the main pair."""
    arm, baseline = found[0].arm, found[0].baseline
    pairs = min(c.difference.n for c in found)
    listed, shown = listed_differences(found), named(found)
    if pairs < 2:
        return f"One common seed: {arm} minus {baseline} is {listed}. Without a second seed there is no interval, and nothing can be claimed."
    above = [(name, c) for name, c in shown if c.difference.excludes(0) and c.difference.estimate > 0]
    below = [(name, c) for name, c in shown if c.difference.excludes(0) and c.difference.estimate < 0]
    tail = f"Differences paired over {pairs} seeds, with 95 % intervals: {listed}."
    wide = " So few seeds make wide intervals: an interval that contains 0 does not show that the two are equal." if pairs <= 3 else ""
    if len(above) == len(shown):
        return f"{arm} scored higher than {baseline} on every panel, macro and micro. {tail}"
    if len(below) == len(shown):
        return f"{arm} does not beat {baseline} here; it scored lower on every panel, macro and micro. {tail}"
    if above or below:
        clear = ", ".join(f"{c.panel} {name} ({'higher' if c.difference.estimate > 0 else 'lower'})" for name, c in above + below)
        return (
            f"{arm} does not beat {baseline} consistently here: an interval excludes 0 only for {clear}, one of {len(shown)} "
            f"comparisons looked at, which chance alone can produce. {tail}{wide}"
            if len(above + below) == 1
            else f"{arm} does not beat {baseline} consistently here: intervals exclude 0 only for {clear}. {tail}{wide}"
        )
    return f"{arm} does not beat {baseline} here: every interval of the difference contains 0. {tail}{wide}"


def why(seed: Arm, grpo: Arm, arms: Sequence[Arm], evaluations: pd.DataFrame) -> list[str]:
    """What the runs' own numbers say about the distillation term; observations, not proofs.  Late: last quarter of updates."""
    lines = [line for arm in (grpo, seed) if (line := since_the_start(arm, arms, evaluations))]
    small = _mean(seed.late_mean("opd/delta_abs_small"))
    if not math.isnan(small):
        lines.append(
            f"The skill left {small:.0%} of the taught tokens almost as likely as before (|Δ| < 0.02 nats, late in training): "
            "there the gate is one half and the term only raises the policy's own samples, failures included."
        )
    location, exact = _mean(seed.late_mean("analyzer/location")), _mean(seed.late_mean("analyzer/exact"))
    if not math.isnan(exact):
        lines.append(
            f"Late in training {exact:.0%} of the policy's own skills say exactly what the scripted analyzer says, {location:.0%} name its location."
        )
    progress = _mean(seed.late_mean("signal/gate_progress_correlation"))
    if not math.isnan(progress):
        lines.append(f"The gate's correlation with real progress is {progress:+.2f} late in training (0 would mean that it does not know good steps).")
    for metric, name in (("policy/entropy", "entropy"), ("policy/kl", "KL to the start")):
        a, b = _mean(seed.late_mean(metric)), _mean(grpo.late_mean(metric))
        if not (math.isnan(a) or math.isnan(b)):
            lines.append(f"Late {name}: {seed.name} {a:.3f} nats, {grpo.name} {b:.3f}.")
    shuffled = find(arms, "shuffled")
    if shuffled is not None:
        found = contrasts(evaluations, seed.name, shuffled.name)
        if found:
            lines.append(f"Own minus shuffled skills, {found[0].difference.n} seed(s): {listed_differences(found)}. Only a clear difference would show that the skills' content matters.")
    return lines


def since_the_start(arm: Arm, arms: Sequence[Arm], evaluations: pd.DataFrame) -> str:
    """How far Stage 2 took `arm` from the policy that it started from; empty where that policy was not evaluated."""
    start = find(arms, "start-sft" if starts_from_stage1(arm.config) else "start-base")
    if start is None:
        return ""
    listed = []
    for panel in dict.fromkeys(evaluations["panel"]):
        before, after = (scores(evaluations, a.name, panel, "success_micro") for a in (start, arm))
        if before and after:
            origin = sum(before.values()) / len(before)  # one policy: its runs differ in nothing but their seed's name
            listed.append(f"{panel} {show_interval(mean_interval([score - origin for score in after.values()]), signed=True)}")
    return f"Stage 2 changed micro success from {start.name} to {arm.name} by: {'; '.join(listed)}." if listed else ""


def agreement_of_panels(evaluations: pd.DataFrame) -> list[str]:
    """A warning for each panel that was not the same, or not decoded alike, in all runs."""
    lines = []
    for panel, part in evaluations.groupby("panel", sort=True):
        if part["panel_hash"].nunique() > 1:
            lines.append(f"Warning: panel {panel} is not the same list of tasks in all runs; its scores cannot be compared.")
        if part["decoding"].map(lambda d: tuple(sorted(d.items()))).nunique() > 1:
            lines.append(f"Warning: panel {panel} was decoded differently in different runs.")
        trained = part[part["update"] > 0]  # a policy without Stage 2 is there to compare with, at update 0
        if trained["update"].nunique() > 1:
            lines.append(f"Warning: panel {panel} was evaluated after different numbers of updates.")
    return lines


def wrong_starts(arms: Sequence[Arm]) -> list[str]:
    """A warning for each arm that asks for theta_sft with Stage 1 switched off, and so started from the base."""
    return [
        f"Warning: {arm.name} has initial=stage1 but stage1.enabled=False, so that it started from the base policy, not from θ_sft."
        for arm in arms
        if arm.runs and arm.config.initial == "stage1" and not arm.config.stage1.enabled
    ]


def differing_settings(arms: Sequence[Arm]) -> pd.DataFrame:
    """Rows: settings on which the arms differ; columns: arms.  Differences within an arm (but the seed) show as `a | b`."""
    values = {arm.name: [values_of(run.config) for run in arm.runs.values()] for arm in arms if arm.runs}
    keys = dict.fromkeys(key for runs in values.values() for run in runs for key in run)
    rows = {}
    for key in keys:
        shown = {name: " | ".join(dict.fromkeys(str(run.get(key, "—")) for run in runs)) for name, runs in values.items()}
        within = any(run.get(key) != runs[0].get(key) for runs in values.values() for run in runs)
        if key not in OWN_KEYS and (within or len(set(shown.values())) > 1):
            rows[key] = shown
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(values))


def show_interval(interval: Interval, *, signed: bool = False, digits: int = 3) -> str:
    """`+0.012 [-0.034, +0.058]`, or the bare number where there is no interval."""
    sign = "+" if signed else ""
    if math.isnan(interval.estimate):
        return "—"
    text = f"{interval.estimate:{sign}.{digits}f}"
    return f"{text} [{interval.low:{sign}.{digits}f}, {interval.high:{sign}.{digits}f}]" if interval.known else text


def _mean(by_seed: dict[int, float]) -> float:
    return mean_interval(by_seed.values()).estimate if by_seed else math.nan


def _named_scores(evaluations: pd.DataFrame, arm: str, panel: str) -> list[tuple[str, dict[int, float]]]:
    """(macro or micro, score by seed), once where the task types are equally frequent, so that both means are the same."""
    found = [(MEASURE_NAMES[measure], scores(evaluations, arm, panel, measure)) for measure in MEASURES]
    if means_are_one(evaluations, arm, panel):
        found = [(ONE_MEAN, found[0][1])]
    return [(name, by_seed) for name, by_seed in found if by_seed]


def comparison_text(arms: Sequence[Arm]) -> str:
    """Verdict, scores and differing settings for a terminal."""
    lines = verdict(arms)
    lines += [f"not read: {arm.name}: {problem}" for arm in arms for problem in arm.problems]
    evaluations = evaluation_frame(arms)
    for panel in dict.fromkeys(evaluations["panel"]):
        lines.append(f"\n{panel}")
        for arm in arms:
            lines += [
                f"  {arm.name:28s} {name}  {show_interval(mean_interval(by_seed.values())):24s} ({', '.join(f'seed {s} {v:.3f}' for s, v in by_seed.items())})"
                for name, by_seed in _named_scores(evaluations, arm.name, panel)
            ]
    differing = differing_settings(arms)
    lines.append("\nsettings that differ" if len(differing) else "\nno setting differs but the seed")
    for key, row in differing.iterrows():
        lines.append(f"  {key}: " + "; ".join(f"{name} = {value}" for name, value in row.items()))
    return "\n".join(lines)
