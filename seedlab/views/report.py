"""report.html: what a set of runs shows, in one file that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from plotly.offline import get_plotlyjs

from seedlab.analysis.compare import verdict
from seedlab.analysis.frames import load_arms
from seedlab.store.files import write_text
from seedlab.views import report_process, report_results, report_skills
from seedlab.views.template import page, paragraph

MAX_BYTES = 8_000_000


def write_report(
    arms: Mapping[str, Sequence[Path]], out: Path, *, title: str, quick: bool = False, timings: Mapping[str, float] | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write one self-contained page about `arms` ({readable name: run folders, one per seed}) to `out`.

    A folder that cannot be read is named in the page, and the rest is shown without it.  `quick` prints no claim on
    learning.  `timings` are seconds by name; `notes` are sentences of the caller.  Raises ValueError without any arm.
    """
    if not arms:
        raise ValueError("write_report needs at least one arm")
    loaded = load_arms(arms)
    sections = [
        ("runs", "What was run", report_results.what_was_run(loaded, timings, notes)),
        ("evaluation", "Evaluation", report_results.evaluation(loaded)),
        ("learning", "Learning curves", report_results.learning(loaded)),
        ("ties", "Tied groups", report_results.ties(loaded)),
        ("gate", "Gate and Δ", report_skills.gate(loaded)),
        ("skills", "Skills beside their outcomes", report_skills.skills(loaded)),
        ("tokens", "One trajectory, token by token", report_skills.tokens(loaded)),
        ("shuffled", "Control: shuffled skills", report_skills.shuffled(loaded)),
        ("signals", "Warning signals", report_skills.signals(loaded)),
        ("cost", "What an update costs", report_process.cost(loaded)),
        ("stage1", "Stage 1", report_process.stage1(loaded)),
        ("limits", "What cannot be claimed", report_process.limits(loaded, quick)),
    ]
    lead = '<div class="verdict">' + "".join(paragraph(line) for line in verdict(loaded, quick=quick)) + "</div>"
    problems = [f"{arm.name}: {text}" for arm in loaded for text in arm.problems]
    lead += "".join(paragraph(f"Not shown: {text}", "warn") for text in problems)
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    text = page(title, lead, sections, script=get_plotlyjs())
    write_text(out, text)
    return out
