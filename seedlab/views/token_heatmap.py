"""One trajectory's sampled tokens coloured by gate, Δ, advantage, …, with its skill beside it; plain HTML, no script."""

from __future__ import annotations

import pandas as pd

from seedlab.views.quantities import NO_TEACHER, QUANTITIES, VALUES, Quantity
from seedlab.views.template import Raw, escape, number

HEAT_TOKENS = 4000  # a longer trajectory is cut, and the page says so


def choose_trajectory(tokens: pd.DataFrame, skills: pd.DataFrame) -> str | None:
    """The trajectory with an accepted skill whose Δ varies most: the most visible one, not a typical one.

    Falls back to any trajectory that had a teacher; None where none had.
    """
    taught = tokens[tokens["mask_opd"]]
    if taught.empty:
        return None
    spread = taught.groupby("trajectory")["delta"].std(ddof=0).sort_values(ascending=False, kind="stable")
    accepted = set(skills.loc[skills["accepted"], "trajectory"])
    preferred = [name for name in spread.index if name in accepted]
    return (preferred or list(spread.index))[0]


def heatmap(tokens: pd.DataFrame, steps: pd.DataFrame, trajectory: pd.Series, skill: pd.Series | None, *, taught_by: str = "") -> Raw:
    """`tokens` and `steps` of one trajectory, its row of the trajectories' frame and its own skill's row, if any.

    `taught_by` says whose skill the teacher read where that is not the trajectory's own.
    """
    tokens = tokens.sort_values(["step", "position"])
    shown = tokens.head(HEAT_TOKENS)
    seen = dict(zip(steps["step"], steps["observation"]))
    turns = []
    for step, part in shown.groupby("step", sort=True):
        spans = "".join(map(_span, part.to_dict("records")))
        turns.append(
            f'<div class="turn"><div class="seen">{escape(_clip(seen.get(step, "")))}</div>'
            f'<div class="tokens">&gt; {spans}</div></div>'
        )
    cut = f"<p class=soft>The first {HEAT_TOKENS} of {len(tokens)} tokens.</p>" if len(tokens) > HEAT_TOKENS else ""
    outcome = "success" if trajectory["success"] else "failure"
    head = (
        f"<p><b>{escape(trajectory['goal'])}</b> <span class=soft>{escape(trajectory['id'])}, {outcome}, return {trajectory['return']:g}, "
        f"advantage {trajectory['advantage']:+.3f}{', tied group' if trajectory['tied'] else ''}</span></p>"
    )
    return Raw(
        head
        + _choice()
        + f'<div class="columns"><div>{"".join(turns)}{cut}<div class="turn"><div class="seen">{escape(_clip(trajectory["final_observation"]))}</div></div></div>'
        + f'<div class="skill">{_skill(skill)}{f"<p class=soft>{escape(taught_by)}</p>" if taught_by else ""}</div></div>'
    )


def _choice() -> str:
    """Radio buttons and the scale of the chosen quantity; style sheets do the rest, so that no script is needed."""
    buttons = "".join(
        f'<input type="radio" name="heat" id="show-{q.key}"{" checked" if q is QUANTITIES[0] else ""}><label for="show-{q.key}">{escape(q.label)}</label> '
        for q in QUANTITIES
    )
    scales = "".join(_scale(q) for q in QUANTITIES)
    return f'{buttons}<p class="scales soft">{scales}<span class="scale" style="background:{NO_TEACHER};width:18px"></span>does not apply</p>'


def _scale(q: Quantity) -> str:
    low, high = q.domain
    stops = ",".join(q.colour(low + (high - low) * i / 4) for i in range(5))
    ends = f"{low:g}", f"{high:g} {q.unit}".strip()
    return (
        f'<span class="of-{q.key}">{escape(q.label)} {ends[0]}<span class="scale" style="background:linear-gradient(90deg,{stops})"></span>'
        f"{ends[1]}, saturated beyond &nbsp; </span>"
    )


def _span(row: dict) -> str:
    values = "\n".join(f"{name} {number(row[column])}" for name, column in VALUES)
    title = f"{row['text']!r}, id {row['token_id']}\n{values}\nminibatch {row['minibatch']}{', clipped' if row['clipped'] else ''}"
    colours = [q.colour(float(row[q.column])) for q in QUANTITIES]
    # `background` itself for readers that drop the page's style sheet; the sheet picks among the others.
    style = f"background:{colours[0]};" + ";".join(f"--{q.key}:{c}" for q, c in zip(QUANTITIES, colours))
    return f'<span class="t" style="{style}" title="{escape(title)}">{escape(row["text"])}</span>'


def _skill(skill: pd.Series | None) -> str:
    if skill is None:
        return "<p class=soft>No skill was written for this trajectory.</p>"
    verdict = "accepted" if skill["accepted"] else f"rejected: {skill['reason']}"
    return f"<b>Its hindsight skill</b><p>{escape(skill['text'] or skill['raw'] or '(empty)')}</p><p class=soft>{escape(verdict)}, by {escape(skill['analyzer'])}</p>"


def _clip(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else text[:limit] + " …"
