"""The report's sections on cost, Stage 1 and limits."""

from __future__ import annotations

import json
from collections.abc import Sequence

from seedlab.analysis.compare import main_pair, same_start
from seedlab.analysis.curves import cost_table
from seedlab.analysis.frames import PHASES, Arm, evaluation_frame
from seedlab.analysis.stage1 import MEASURED
from seedlab.store.errors import RunError
from seedlab.views.figures import cost_figure, figure_html
from seedlab.views.template import empty, number, paragraph, table


def cost(arms: Sequence[Arm]) -> str:
    """Seconds, tokens and FLOPs per update and phase, SEED against GRPO."""
    costs = {arm.name: cost_table(arm) for arm in arms}
    costs = {name: c for name, c in costs.items() if c}
    if not costs:
        return empty("No run has recorded its costs.")
    rows = [[phase, *(number(c.get(phase), 2) for c in costs.values())] for phase in (*PHASES, "update")]
    content = table(["phase", *costs], rows, numbers=range(1, len(costs) + 1))
    parts = [
        paragraph("Mean over updates and seeds. Runs that shared a machine slowed each other down; diagnostics and storing are ours, not the method's."),
        figure_html(cost_figure(costs, PHASES), "fig-cost", content),
        content,
    ]
    seed, grpo = main_pair(arms)
    if seed is None or grpo is None or seed.name not in costs or grpo.name not in costs:
        return "".join(parts) + empty("SEED and GRPO from the same start are not both here, so that there is no ratio.")
    if not same_start(seed, grpo):
        parts.append(paragraph("The two start from different weights: episodes of different length are part of the ratio.", "warn"))
    a, b = costs[seed.name], costs[grpo.name]
    ratio = {p: a[p] / b[p] for p in (*PHASES, "update") if a.get(p) and b.get(p)}
    if "update" in ratio:
        extra = sum(a.get(p, 0.0) for p in ("analyzer", "teacher"))
        parts.append(
            paragraph(
                f"An update of {seed.name} takes {a['update']:.2f} s, one of {grpo.name} {b['update']:.2f} s: {ratio['update']:.2f} times as long. "
                f"Writing skills and scoring with them takes {extra:.2f} s of it ({extra / a['update']:.0%}); the rest of the gap comes from "
                "episodes of different length and, where present, diagnostics and storing."
            )
        )
    flops = {arm.name: _per_update(arm, "flops") for arm in (seed, grpo)}
    if all(flops.values()):
        parts.append(paragraph(f"By estimated arithmetic the ratio is {flops[seed.name] / flops[grpo.name]:.2f} ({flops[seed.name]:.2e} against {flops[grpo.name]:.2e} FLOP per update)."))
    return "".join(parts)


def _per_update(arm: Arm, unit: str) -> float:
    frames = [arm.metrics(seed) for seed in arm.runs]
    total = sum(frame[c].sum() for frame in frames for c in frame if c.startswith("cost/") and c.endswith(f"_{unit}"))
    updates = sum(map(len, frames))
    return float(total / updates) if updates else 0.0


def stage1(arms: Sequence[Arm]) -> str:
    """Labels, losses and acting before and after the skill SFT; once per distinct record."""
    records: dict[str, tuple[dict, list[str]]] = {}
    problems = []
    for arm in arms:
        for run in arm.runs.values():
            try:
                record = run.stage1
            except RunError as error:
                problems.append(paragraph(error, "warn"))
                continue
            if record is not None:
                records.setdefault(json.dumps(record, sort_keys=True), (record, []))[1].append(run.name)
    if not records:
        return "".join(problems) + empty("No run here has a Stage 1: all start from the base policy, or Stage 1 was left out.")
    parts = problems
    if len(records) > 1:
        parts.append(paragraph("The runs do not share one Stage 1; differences between them may come from it.", "warn"))
    for record, names in records.values():
        parts.append(_stage1_record(record, names))
    return "".join(parts)


def _stage1_record(record: dict, names: list[str]) -> str:
    labels, accepted = record.get("labels", 0), record.get("accepted", 0)
    reasons = ", ".join(f"{k} {v}" for k, v in record.get("reasons", {}).items() if k != "ok") or "none rejected"
    lead = (
        f"{record.get('trajectories', '?')} base trajectories on {record.get('tasks', '?')} tasks ({record.get('successes', '?')} successes), labelled by the "
        f"{record.get('external_analyzer', '?')} analyzer: {accepted} of {labels} labels accepted"
        f"{f' ({accepted / labels:.1%})' if labels else ''}; rejected: {reasons}. {record.get('train_rows', '?')} rows trained on, "
        f"{record.get('held_out_rows', '?')} held out, {record.get('replay_documents', 0)} replay documents, {record.get('sft_steps', '?')} steps. "
        f"Shared by {len(names)} runs: {', '.join(names)}."
    )
    before, after = record.get("before", {}), record.get("after", {})
    rows = []
    for key, name in MEASURED:
        if key not in before and key not in after:
            continue
        total = before.get("own_skills") if key == "own_skills_accepted" else None
        cells = [_of(values.get(key), total) for values in (before, after)]
        rows.append([name, *cells])
    if before.get("own_skills") and not after.get("own_skills_accepted"):
        note = paragraph("After Stage 1 the policy still writes no acceptable skill on held-out trajectories: Stage 2's distillation then has almost nothing to read.", "warn")
    else:
        note = ""
    table_ = table(["", "before", "after"], rows, numbers=[1, 2]) if rows else empty("Nothing was measured before and after.")
    n = f"Held-out skills: {before.get('own_skills', '?')}; dev episodes: {before.get('dev_episodes', '?')}."
    return paragraph(lead) + table_ + paragraph(n, "soft") + note


def _of(value, total) -> str:
    return f"{value} of {total}" if total is not None and value is not None else number(value)


def limits(arms: Sequence[Arm], quick: bool) -> str:
    """What these runs cannot show, from what they are."""
    seeds = {arm.name: len(arm.runs) for arm in arms}
    frame = evaluation_frame(arms)
    items = []
    if quick:
        items.append("Anything about learning: the run is too short, with one seed and small panels.")
    single = [name for name, count in seeds.items() if count == 1]
    if single:
        items.append(f"The spread of {', '.join(single)}: one seed has no interval, and its number is one draw.")
    if max(seeds.values(), default=0) > 1:
        items.append(f"Small differences: with {max(seeds.values())} seeds only large ones can stand out, and an interval around 0 does not show equality.")
    absent = [name for name, count in seeds.items() if count == 0]
    if absent:
        items.append(f"Anything about {', '.join(absent)}: no run could be read.")
    if frame.empty:
        items.append("Anything about held-out tasks: nothing was evaluated.")
    else:
        alone = "one interval that excludes 0 is weak evidence" if max(seeds.values()) > 1 else "the largest of many differences is large by chance alone"
        items.append(f"Several panels, measures and arms are compared at once without correction: {alone}.")
    if any(run.config.model.path == "tiny" for arm in arms for run in arm.runs.values()):
        items.append(
            "Anything about large models: the policy is a tiny one trained from scratch on scripted demonstrations, and its tasks are "
            "short. The paper's backbones start where this one cannot, and its numbers are not comparable with these."
        )
    if any(run.config.external.kind == "scripted" and run.config.initial == "stage1" for arm in arms for run in arm.runs.values()):
        items.append("What a language model's hindsight skills would do: Stage 1's labels come from a rule-based analyzer that knows the room.")
    items.append("That a signal above causes a result: they are measured on the same runs and none was varied alone, but for the shuffled control.")
    return "<ul>" + "".join(f"<li>{paragraph(item)}</li>" for item in items) + "</ul>"
