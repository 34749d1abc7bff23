"""The inspector without scripts: styles inside the elements, because a saved notebook drops style sheets."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seedlab.views.quantities import NO_TEACHER, QUANTITIES, ink
from seedlab.views.template import escape, number
from seedlab.views.token_story import Divergence, Story

FALLBACK_TOKENS = 500  # of each trajectory, so that a notebook stays small
SMALL = 0.02  # nats; a Δ below is no influence, as in the metric opd/delta_abs_small
_CLIP = 400
_SOFT = "opacity:.72;font-size:12.5px"
GATE, DELTA = QUANTITIES[0], QUANTITIES[1]


def fallback_html(stories: Sequence[Story], split: Divergence | None, note: str = "") -> str:
    """Tokens coloured by gate, underlined where the skill makes them likelier and dashed where it makes them less
    likely; the values of each in its title.  `note` stands above them.  Everything is escaped."""
    lead = f"{escape(split.sentence)}" if split is not None else ""
    stored = f'<p style="{_SOFT}">{escape(note)}</p>' if note else ""
    width = 100 // len(stories) - 1
    parts = "".join(
        f'<div style="display:inline-block;vertical-align:top;width:{width}%;min-width:320px;margin-right:8px">{_pane(s, split, i)}</div>'
        for i, s in enumerate(stories)
    )
    return f'<div style="font-family:system-ui,sans-serif;font-size:14px;line-height:1.5">{_legend()}{stored}{f"<p>{lead}</p>" if lead else ""}{parts}</div>'


def _legend() -> str:
    cells = "".join(f'<span style="{_style(v, 0.0)};padding:1px 6px">{v:g}</span>' for v in (0.0, 0.25, 0.5, 0.75, 1.0))
    return (
        f'<p style="{_SOFT}">gate {cells} <span style="background:{NO_TEACHER};color:#5b6575;padding:1px 6px;font-style:italic">does not apply</span>'
        " &nbsp; solid line below: the skill makes the token likelier (Δ &gt; 0.02); dashed: less likely. Values in each token's title. "
        "Run the cell for the live view.</p>"
    )


def _pane(story: Story, split: Divergence | None, side: int) -> str:
    t = story.trajectory
    mark = "✓ " if t["success"] else "✕ "
    facts = mark + ", ".join(story.facts)
    head = (
        f"<p><b>{escape(t['goal'])}</b><br><span>{escape(facts)}</span><br>"
        f'<span style="{_SOFT}">{escape(story.title)} · {escape(t["id"])}</span></p>'
    )
    left, turns = FALLBACK_TOKENS, []
    for turn in story.turns.to_dict("records"):
        part = story.tokens[story.tokens["step"] == turn["step"]]
        if left <= 0:
            turns.append(f'<p style="{_SOFT}">The first {FALLBACK_TOKENS} of {len(story.tokens)} tokens; the live view and to_html() have them all.</p>')
            break
        turns.append(_turn(turn, part.head(left), split, side))
        left -= len(part)
    else:
        turns.append(_seen(t["final_observation"]))
    return head + _skill(story) + "".join(turns)


def _turn(turn: dict, tokens, split: Divergence | None, side: int) -> str:
    at = None if split is None else (split.a, split.b)[side]
    spans = []
    for index, row in zip(tokens.index, tokens.to_dict("records")):
        if split is not None and split.kind == "token" and index == at:
            spans.append("<b> ◆ first difference </b>")
        spans.append(_span(row))
    body = "".join(spans) or f'<span style="{_SOFT}">(no stored token)</span>'
    return f'{_seen(turn["observation"])}<div style="font-family:monospace;line-height:2;white-space:pre-wrap">› {body}</div>'


def _seen(text: str) -> str:
    cut = text if len(text) <= _CLIP else text[:_CLIP] + " …"
    return f'<div style="{_SOFT};white-space:pre-wrap;margin-top:8px">{escape(cut)}</div>'


def _span(row: dict) -> str:
    gate, delta = float(row["gate"]), float(row["delta"])
    title = (
        f"{row['text']!r}\ngate {number(gate)}, Δ {number(delta)}\nlog-prob {number(float(row['logp_student']))}, advantage {number(float(row['advantage']))}, "
        f"net {number(float(row['net_coefficient']))}"
    )
    return f'<span style="{_style(gate, delta)};padding:2px;margin-right:1px" title="{escape(title)}">{escape(row["text"]) or "∅"}</span>'


def _style(gate: float, delta: float) -> str:
    background = GATE.colour(gate)
    if math.isnan(gate):
        return f"background:{background};color:#5b6575;font-style:italic"
    width = 0 if math.isnan(delta) or abs(delta) < SMALL else math.ceil(abs(DELTA.share(delta)) * 3)
    line = f";border-bottom:{width}px {'solid' if delta > 0 else 'dashed'} #1d2430" if width else ""
    return f"background:{background};color:{ink(background)}{line}"


def _skill(story: Story) -> str:
    card = story.skill
    if card is None:
        return ""
    mark = "" if card.accepted is None else "✓ " if card.accepted else "✕ "
    rest = " · ".join(part for part in (mark + card.verdict if card.verdict else "", card.note) if part)
    words = f'<div style="white-space:pre-wrap">{escape(card.text)}</div>' if card.text else ""
    return (
        f'<div style="border:1px solid #9aa5b4;border-radius:6px;padding:6px 10px;margin:6px 0"><b>{escape(card.heading)}</b>{words}'
        f'<div style="{_SOFT}">{escape(rest)}</div></div>'
    )
