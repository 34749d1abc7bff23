"""One trajectory's sampled tokens coloured by gate or Δ, with its skill beside it; plain HTML, no script."""

from __future__ import annotations

import math

import pandas as pd

from seedlab.views.template import Raw, escape, number

DELTA_LIMIT = 2.0  # nats; the colour saturates there, the hover text has the value
HEAT_TOKENS = 4000  # a longer trajectory is cut, and the page says so
NO_TEACHER = "#eceff3"


def gate_colour(value: float) -> str:
    """White at 0 to strong blue at 1: a fixed domain, so that pictures compare."""
    if math.isnan(value):
        return NO_TEACHER
    share = min(1.0, max(0.0, value))
    return _mix((255, 255, 255), (0, 114, 178), share * 0.85)


def delta_colour(value: float) -> str:
    """Diverging around 0: orange below, blue above, white at 0; saturated at ±DELTA_LIMIT."""
    if math.isnan(value):
        return NO_TEACHER
    share = min(1.0, abs(value) / DELTA_LIMIT)
    return _mix((255, 255, 255), (0, 114, 178) if value > 0 else (213, 94, 0), share * 0.85)


def _mix(a: tuple[int, int, int], b: tuple[int, int, int], share: float) -> str:
    return "#" + "".join(f"{round(x + (y - x) * share):02x}" for x, y in zip(a, b))


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
        + '<input type="radio" name="heat" id="show-gate" checked><label for="show-gate"> gate</label> '
        + '<input type="radio" name="heat" id="show-delta"><label for="show-delta"> Δ</label> <span class=soft>'
        + f'gate 0<span class="scale" style="background:linear-gradient(90deg,{gate_colour(0)},{gate_colour(1)})"></span>1 &nbsp; '
        + f'Δ −{DELTA_LIMIT:g}<span class="scale" style="background:linear-gradient(90deg,{delta_colour(-9)},{delta_colour(0)},{delta_colour(9)})"></span>'
        + f"+{DELTA_LIMIT:g} nats &nbsp; grey: no teacher</span>"
        + f'<div class="columns"><div>{"".join(turns)}{cut}<div class="seen">{escape(_clip(trajectory["final_observation"]))}</div></div>'
        + f'<div class="skill">{_skill(skill)}{f"<p class=soft>{escape(taught_by)}</p>" if taught_by else ""}</div></div>'
    )


def _span(row: dict) -> str:
    title = (
        f"{row['text']!r}\ngate {number(row['gate'])}  Δ {number(row['delta'])}\nlog-prob {number(row['logp_student'])}, "
        f"with skill {number(row['logp_teacher'])}\nadvantage {number(row['advantage'])}  net {number(row['net_coefficient'])}"
    )
    style = f"--g:{gate_colour(row['gate'])};--d:{delta_colour(row['delta'])}"
    return f'<span class="t" style="{style}" title="{escape(title)}">{escape(row["text"])}</span>'


def _skill(skill: pd.Series | None) -> str:
    if skill is None:
        return "<p class=soft>No skill was written for this trajectory.</p>"
    verdict = "accepted" if skill["accepted"] else f"rejected: {skill['reason']}"
    return f"<b>Its hindsight skill</b><p>{escape(skill['text'] or skill['raw'] or '(empty)')}</p><p class=soft>{escape(verdict)}, by {escape(skill['analyzer'])}</p>"


def _clip(text: str, limit: int = 600) -> str:
    return text if len(text) <= limit else text[:limit] + " …"
