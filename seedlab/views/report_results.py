"""The report's sections on runs and outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from seedlab.analysis.compare import contrasts, differing_settings, means_are_one, named, questions, show_interval
from seedlab.analysis.frames import MEASURES, Arm, evaluation_frame, scores
from seedlab.analysis.statistics import interquartile_mean, mean_interval, probability_of_improvement, stratified_bootstrap, wilson_interval
from seedlab.objective.ties import tie_probability
from seedlab.store.errors import RunError
from seedlab.views.figures import colours, curves_figure, curves_table, figure_html, tie_figure
from seedlab.views.template import Raw, details, empty, escape, number, paragraph, table

WINDOW = 4  # updates; single updates of 64 trajectories are noisy
BOOTSTRAP_SEED = 0


def what_was_run(arms: Sequence[Arm], timings: Mapping[str, float] | None, notes: Sequence[str]) -> str:
    """Machine, code, seeds, durations, and the settings in which the arms differ."""
    palette = colours(arms)
    rows, machines, codes = [], {}, {}
    for arm in arms:
        swatch = Raw(f'<span class="swatch" style="background:{palette[arm.name]}"></span>{escape(arm.name)}')
        if not arm.runs:
            rows.append([swatch, "—", "no readable run", "—", "—", "—"])
        for seed, run in arm.runs.items():
            metrics = arm.metrics(seed)
            seconds = metrics["cost/update_seconds"].sum() if "cost/update_seconds" in metrics else float("nan")
            rows.append([swatch, seed, _state(run), f"{len(metrics)} of {run.config.stage2.updates}", _duration(seconds), run.path.name])
            machine, code = _origin(run)
            machines.setdefault(machine, []).append(run.name)
            codes.setdefault(code, []).append(run.name)
    parts = [table(["arm", "seed", "state", "updates", "time in updates", "folder"], rows, numbers=[1])]
    parts += [paragraph(f"Machine: {m} ({len(names)} runs)") for m, names in machines.items()]
    parts += [paragraph(f"Code: {c} ({len(names)} runs)") for c, names in codes.items()]
    if len(codes) > 1:
        parts.append(paragraph("The runs were made by different versions of the code; a difference may come from that.", "warn"))
    if timings:
        parts.append(table(["step", "time"], [[k.removesuffix("_seconds").replace("_", " "), _duration(v)] for k, v in timings.items()], numbers=[1]))
    parts += [paragraph(note) for note in notes]
    differing = differing_settings(arms)
    if len(differing):
        parts.append("<h3>Settings in which the arms differ</h3>" + table(["setting", *differing.columns], [[k, *r] for k, r in zip(differing.index, differing.values)]))
    else:
        parts.append(empty("The arms differ in no setting but the seed."))
    return "".join(parts)


def _state(run) -> str:
    try:
        status = run.status
    except RunError as error:
        return str(error)
    return status["state"] + (f": {status['error']}" if status.get("error") else "")


def _origin(run) -> tuple[str, str]:
    """(machine, code) as text."""
    if not (run.path / "manifest.json").exists():
        return "unknown (the run has no manifest yet)", "unknown (the run has no manifest yet)"
    manifest = run.manifest
    hardware, code, packages = manifest.get("hardware", {}), manifest.get("code", {}), manifest.get("packages", {})
    gpus = ", ".join(hardware.get("gpus", [])) or "no GPU"
    machine = f"{hardware.get('cpu', '?')}, {hardware.get('cores', '?')} cores, {hardware.get('memory_gb', '?')} GB, {gpus}, {hardware.get('system', '?')}"
    commit = code.get("commit", "")[:12] or f"sources {code.get('source_hash', '?')}"
    dirty = f" with uncommitted changes ({code.get('diff_hash', '?')})" if code.get("dirty") else ""
    return machine, f"{commit}{dirty}; torch {packages.get('torch', '?')}, transformers {packages.get('transformers', '?')}"


def _duration(seconds: float) -> str:
    if seconds != seconds:
        return "—"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def evaluation(arms: Sequence[Arm]) -> str:
    """Macro and micro success per arm and panel, single seeds, paired differences, task types."""
    frame = evaluation_frame(arms)
    if frame.empty:
        return empty("No run has been evaluated yet: an evaluation is made once, after the last update.")
    several = bool(frame.groupby(["arm", "panel"])["seed"].nunique().max() > 1)
    over_seeds = "Brackets hold the 95 % t interval over seeds" + (", where an arm has two or more." if several else "")
    parts = [
        paragraph(
            "Success is the share of episodes won. Macro is the mean over task types, micro the mean over episodes; the two "
            "are different numbers and are never compared with each other. "
            + (over_seeds if several else "Every arm has one seed, so that no number here has an interval over seeds.")
        ),
        *_equal_means(frame),
    ]
    rows = []
    for panel in dict.fromkeys(frame["panel"]):
        for arm in arms:
            part = frame[(frame["arm"] == arm.name) & (frame["panel"] == panel)]
            if part.empty:
                rows.append([panel, arm.name, "not evaluated", *[""] * (4 if several else 2)])
                continue
            cells = []
            for measure in MEASURES:
                by_seed = scores(frame, arm.name, panel, measure)
                cells.append(show_interval(mean_interval(by_seed.values())))
                if several:
                    cells.append(", ".join(f"{v:.3f}" for v in by_seed.values()))
            rows.append([panel, arm.name, *cells, " + ".join(str(n) for n in part["episodes"])])
    measures = ["macro", "single seeds", "micro", "single seeds"] if several else ["macro", "micro"]
    parts.append(table(["panel", "arm", *measures, "episodes"], rows))
    parts.append(_differences(arms, frame))
    parts.append(_robust(arms, frame))
    parts.append(_by_type(arms, frame))
    return "".join(parts)


def _equal_means(frame: pd.DataFrame) -> list[str]:
    """A sentence about the panels on which macro and micro are one number, so that nobody takes them for two findings."""
    panels = [p for p, part in frame.groupby("panel", sort=False) if all(means_are_one(frame, arm, p) for arm in part["arm"].unique())]
    if not panels:
        return []
    return [paragraph(f"Panel {' and '.join(panels)}: every task type has equally many episodes, so that macro and micro are one number there.")]


def _differences(arms: Sequence[Arm], frame: pd.DataFrame) -> str:
    rows, several = [], False
    for what, arm, baseline in questions(arms):
        for measure, c in named(contrasts(frame, arm.name, baseline.name)):
            several = several or c.difference.n > 1
            seeds = ", ".join(f"{s}: {d:+.3f}" for s, d in c.by_seed.items())
            rows.append([what, f"{c.arm} − {c.baseline}", c.panel, measure, show_interval(c.difference, signed=True), seeds])
    if not rows:
        return empty("No two arms have an evaluated seed in common, so that there is no paired difference.")
    lead = "Paired by seed: runs of one seed see the same tasks in the same order. "
    lead += (
        "An interval that contains 0 is compatible with no difference; one seed has no interval."
        if several
        else "There is one common seed, so that no difference has an interval and none can be told from chance."
    )
    value = "mean [95 %]" if several else "value"
    return "<h3>Differences</h3>" + paragraph(lead) + table(["what it isolates", "difference", "panel", "measure", value, "by seed"], rows)


def _robust(arms: Sequence[Arm], frame: pd.DataFrame) -> str:
    """Interquartile mean over seeds and task types, and the probability of improvement."""
    rows, several = [], False
    for panel in dict.fromkeys(frame["panel"]):
        matrices = {arm.name: _type_matrix(frame, arm.name, panel) for arm in arms}
        for arm in arms:
            matrix = matrices[arm.name]
            if matrix.empty:
                continue
            interval = stratified_bootstrap(matrix.to_numpy(), interquartile_mean, seed=BOOTSTRAP_SEED)
            several = several or interval.known
            better = []
            for _, first, second in questions(arms):
                other = matrices[second.name]
                if first.name == arm.name and not other.empty and set(other.columns) == set(matrix.columns):
                    better.append(f"{probability_of_improvement(matrix, other[matrix.columns]):.2f} over {second.name}")
            rows.append([panel, arm.name, show_interval(interval), "; ".join(better) or "—"])
    if not rows:
        return ""
    lead = "Interquartile mean of the success rates of all seeds and task types "
    lead += (
        "with a stratified bootstrap interval (2000 resamples of seeds within each type; with three seeds it is too narrow, so that "
        "the t intervals above decide)"
        if several
        else "(of one seed, and so without an interval)"
    )
    lead += ", and the chance that a random seed of the arm does better than one of the baseline on a random type (0.5: level)."
    mean = "interquartile mean" + (" [95 %]" if several else "")
    content = paragraph(lead) + table(["panel", "arm", mean, "probability of improvement"], rows)
    return details("Interquartile means and probability of improvement", content)


def _type_matrix(frame: pd.DataFrame, arm: str, panel: str) -> pd.DataFrame:
    """[seeds, task types] of success rates; types that a seed lacks are left out."""
    part = frame[(frame["arm"] == arm) & (frame["panel"] == panel)]
    rows = {s: {k: v["successes"] / v["episodes"] for k, v in t.items() if v["episodes"]} for s, t in zip(part["seed"], part["by_type"])}
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis=1)


def _by_type(arms: Sequence[Arm], frame: pd.DataFrame) -> str:
    names = [arm.name for arm in arms if arm.runs]
    rows = []
    for panel in dict.fromkeys(frame["panel"]):
        part = frame[frame["panel"] == panel]
        for kind in sorted({k for t in part["by_type"] for k in t}):
            row = [panel, kind]
            for name in names:
                counts = [t[kind] for t in part.loc[part["arm"] == name, "by_type"] if kind in t]
                won, n = sum(c["successes"] for c in counts), sum(c["episodes"] for c in counts)
                interval = wilson_interval(won, n)
                row.append(f"{won}/{n} = {interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]" if n else "—")
            rows.append(row)
    lead = (
        "Episodes of all seeds together, with Wilson's interval; seeds share tasks, so that these intervals are too narrow for claims about the method."
        if frame["seed"].nunique() > 1
        else "Episodes of the one seed, with Wilson's interval: how far these episodes leave this very policy's rate open. It says nothing of another seed."
    )
    return "<h3>By task type</h3>" + paragraph(lead) + table(["panel", "type", *names], rows)


def learning(arms: Sequence[Arm]) -> str:
    """Success and episode length over updates, and the first against the last quarter."""
    window = WINDOW if max((len(arm.curve("rollout/success")) for arm in arms), default=0) >= 3 * WINDOW else 1
    figure = curves_figure(arms, "rollout/success", "Success of training rollouts (micro)", "share", window=window, limits=(0.0, 1.0))
    if figure is None:
        return empty("No run has finished an update yet.")
    parts = [
        paragraph(("Thick: mean over seeds. Band: 95 % t interval, only where an arm has two seeds or more. Thin: single seeds. "
                   if any(len(arm.runs) > 1 for arm in arms) else "Every arm has one seed, so that no line has a band. ") +
                  "These are sampled training episodes on the train panel, not the evaluation above."),
        figure_html(figure, "fig-success", curves_table(arms, "rollout/success", window)),
    ]  # fmt: skip
    rows = []
    for arm in arms:
        early, late = arm.early_mean("rollout/success"), arm.late_mean("rollout/success")
        if late:
            gain = mean_interval([late[s] - early[s] for s in late])
            cells = [show_interval(mean_interval(x.values())) for x in (early, late)]
            rows.append([arm.name, *cells, show_interval(gain, signed=True), ", ".join(f"{v:.3f}" for v in late.values())])
    parts.append(table(["arm", "first quarter", "last quarter", "gain", "last quarter by seed"], rows))
    for arm in arms:
        if arm.unfinished:
            seeds, kept = ", ".join(map(str, arm.unfinished)), len(arm.unfinished) < len(arm.runs)
            what = "is left out of first and last quarters, here and below" if kept else "has no last quarter yet: quarters are of what there is"
            parts.append(paragraph(f"{arm.name}: seed {seeds} is unfinished and {what}.", "warn"))
    length = curves_figure(arms, "rollout/episode_length", "Episode length", "steps", window=window)
    if length is not None:
        parts.append(figure_html(length, "fig-length", curves_table(arms, "rollout/episode_length", window)))
    return "".join(parts)


def ties(arms: Sequence[Arm]) -> str:
    """How many groups give GRPO nothing to learn from."""
    figure = curves_figure(arms, "rollout/tie_rate", "Groups with equal returns", "share", limits=(0.0, 1.0))
    if figure is None:
        return empty("No run has tie rates.")
    rows = []
    for arm in arms:
        late = arm.late_mean("rollout/tie_rate")
        if late:
            share = arm.late_mean("opd/share_tied")
            norms = [mean_interval(arm.late_mean(f"optim/grad_norm_opd_{k}", 1.0).values()).estimate for k in ("tied", "untied")]
            rows.append([arm.name, show_interval(mean_interval(late.values())), show_interval(mean_interval(share.values())), *map(number, norms)])
    lead = "In a tied group every advantage is 0, so that the policy term has no gradient there; only distillation (and KL) acts on it."
    headers = ["arm", "tie rate, last quarter", "gate mass on tied groups", "OPD gradient norm, tied", "untied"]
    parts = [paragraph(lead), figure_html(figure, "fig-ties", curves_table(arms, "rollout/tie_rate")), table(headers, rows)]
    return "".join(parts) + _against_chance(arms)


def _against_chance(arms: Sequence[Arm]) -> str:
    """Tie rates beside the rate that the success rate alone would give."""
    sizes = {run.config.stage2.group_size for arm in arms for run in arm.runs.values()}
    if len(sizes) > 1:
        return empty(f"The runs have groups of different sizes ({', '.join(map(str, sorted(sizes)))}), so that no one curve of chance ties fits them.")
    figure = tie_figure(arms, *sizes)
    if figure is None:
        return empty("No update has both a success and a tie rate.")
    rows = []
    for arm in arms:
        success, ties = arm.curve("rollout/success"), arm.curve("rollout/tie_rate")
        if success.size and ties.size:
            p = float(np.nanmean(success))
            rows.append([arm.name, number(p), number(tie_probability(p, *sizes)), number(float(np.nanmean(ties)))])
    lead = "The line is the chance of a tie if all tasks were equally hard. Real tasks differ, some always won and some never, so that points lie above it on average; with few tasks in an update they scatter."
    content = table(["arm", "mean success", "chance of a tie at that rate", "mean tie rate"], rows, numbers=range(1, 4))
    return paragraph(lead) + figure_html(figure, "fig-tie-chance", content)
