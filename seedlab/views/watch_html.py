"""A reading of a run as HTML: styles inside the elements, so that the live view, a saved notebook and a page of its own
show the same; everything that came from outside is escaped."""

from __future__ import annotations

import time
from collections.abc import Callable

import pandas as pd

from seedlab.store.metrics import describe
from seedlab.views.svg import Chart, Series, draw, short
from seedlab.views.template import escape
from seedlab.views.theme import SERIES_COLOURS, method_colour
from seedlab.views.watch_state import NOT_THERE, WatchState

_BLUE, _ORANGE, _GREEN = SERIES_COLOURS[:3]
_GREY = "#8a94a3"
SOFT = "opacity:.72;font-size:12.5px"
LINE = "1px solid rgba(138,148,163,.45)"
FONT = "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:14px;line-height:1.5"

# Symbol, background and ink of each state: a word and a mark, never colour alone.
STATES = {
    "queued": ("◷", "#e7ecf3", "#1d2430"), "running": ("▶", "#d8ecfa", "#0b3d5c"), "succeeded": ("✓", "#d9f2e4", "#0b4a29"),
    "failed": ("✕", "#fde3d6", "#7a2a00"), "cancelled": ("■", "#e7ecf3", "#1d2430"), "interrupted": ("‖", "#fff0cc", "#5a4000"),
    "lost": ("?", "#fde3d6", "#7a2a00"), "damaged": ("!", "#fde3d6", "#7a2a00"), NOT_THERE: ("○", "#e7ecf3", "#1d2430"),
}  # fmt: skip


def head(state: WatchState) -> str:
    """State, progress and time left."""
    times = [f"elapsed {duration(state.elapsed_s)}"] if state.elapsed_s is not None else []
    if state.eta_s is not None:
        times.append(f"about {duration(state.eta_s)} left")
    if state.resumed:
        times.append(f"resumed {state.resumed} time{'s' if state.resumed > 1 else ''}")
    times.append(f"read at {time.strftime('%H:%M:%S', time.localtime(state.time))}")
    title = f'<b style="font-size:16px">{escape(state.title or state.path.name)}</b>'
    lines = [
        f'<div style="display:flex;flex-wrap:wrap;gap:6px 14px;align-items:center">{chip(state.state)}{title}<span style="{SOFT}">{escape(" · ".join(times))}</span></div>',
        f'<div style="{SOFT}">{escape(str(state.path))}</div>',
    ]
    if state.planned:
        lines.append(bar("updates", state.updates_done, state.planned, _BLUE))
    if state.live and state.total:
        lines.append(bar(state.phase or "phase", state.done, state.total, _GREY, state.note))
    lines += [f'<p style="margin:6px 0">{escape(line)}</p>' for line in words(state)]
    lines += [f'<p style="margin:6px 0;border-left:4px solid {_ORANGE};padding-left:10px">Not shown: {escape(p)}</p>' for p in state.problems]
    return f'<div style="{FONT}">{"".join(lines)}</div>'


def chip(name: str) -> str:
    """A state as a mark, a word and a colour."""
    mark, background, ink = STATES[name]
    word = "no run yet" if name == NOT_THERE else name
    return f'<span style="background:{background};color:{ink};border-radius:12px;padding:2px 12px;font-weight:600;white-space:nowrap">{mark} {word}</span>'


def words(state: WatchState) -> list[str]:
    """What the state means and what can be done."""
    path = state.path
    if state.state == NOT_THERE:
        if state.background:
            return ["The job was handed in and has not reported yet."]
        return ["There is no run in this folder yet; the view fills by itself when one begins.", f"Start one: seedlab submit tiny --out {path}"]
    if state.state == "queued":
        return ["The job waits for a free place in the queue; `seedlab jobs` shows who is ahead."]
    if state.state == "lost":
        return [f"It says that it runs, but its process is gone: {state.error}.", f"`seedlab resume {path}` goes on from the last checkpoint."]
    if state.state == "failed":
        return [f"It failed: {state.error or 'without a message'}.", f"The log below has the rest; `seedlab resume {path}` tries again from the last checkpoint."]
    if state.state in ("interrupted", "cancelled"):
        return [f"It was stopped{f' ({state.error})' if state.error else ''}; `seedlab resume {path}` goes on from the last checkpoint."]
    if state.stale:
        return ["The process lives but has not reported for a minute: suspended, or out of memory."]
    if state.state == "running" and not state.updates_done:
        return ["No update is complete yet, so that there are no curves."]
    return []


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 5400:
        return f"{seconds // 60} min {seconds % 60:02d} s" if seconds < 600 else f"{round(seconds / 60)} min"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def bar(name: str, done: int, total: int, colour: str, note: str = "") -> str:
    """Progress in words and as a bar."""
    share = min(1.0, done / total)
    label = f"{name}: {done} of {total}" + (f" {note}" if note else "")
    return (
        f'<div style="margin:6px 0"><div style="font-size:12.5px">{escape(label)}</div>'
        f'<div role="progressbar" aria-valuenow="{done}" aria-valuemax="{total}" style="height:8px;border-radius:4px;background:rgba(138,148,163,.25);max-width:660px">'
        f'<div style="height:8px;border-radius:4px;width:{100 * share:.1f}%;background:{colour}"></div></div></div>'
    )


def charts(state: WatchState) -> list[Chart]:
    """The curves that the run has values for."""
    m, own = state.metrics, method_colour(state.method) if state.method else _BLUE
    if m.empty:
        return []

    def line(name: str, metric: str, colour: str, dash: str = "", spread: str | None = None, sparse: bool = False) -> Series | None:
        if metric not in m or pd.to_numeric(m[metric], errors="coerce").notna().sum() == 0:
            return None
        values = pd.to_numeric(m[metric], errors="coerce").astype(float)
        band = m[spread].astype(float).tolist() if spread is not None and spread in m else None
        return Series(name, m["update"].tolist(), values.tolist(), colour, dash, band, sparse)

    share = (0.0, 1.0)
    wanted = [
        ("Success of the rollouts", "share", share, [line("success", "rollout/success", own)]),
        ("Return of the rollouts", "reward", None, [line("return", "rollout/return", own)] if _differs(m) else []),
        ("Groups that tie", "share", share, [line("tied", "rollout/tie_rate", own), line("with penalties", "rollout/tie_rate_penalised", _GREY, "5 3")]),
        ("Gate, mean ± standard deviation", "1", share, [line("gate", "opd/gate_mean", own, spread="opd/gate_std")]),
        ("Δ: log-prob with the skill − without", "nats", None, [line("after success", "opd/delta_success", _BLUE), line("after failure", "opd/delta_failure", _ORANGE, "5 3")]),
        ("Entropy of the policy", "nats", None, [line("entropy", "policy/entropy", own)]),
        ("KL to the reference", "nats", None, [line("KL", "policy/kl", own)]),
        ("Skills", "share", share, [line("accepted", "analyzer/accepted", own), line("exactly right", "analyzer/exact", _GREEN, "5 3")]),
        ("Gradient norm", "1", None, [line("whole", "optim/grad_norm", own), line("OPD term alone", "optim/grad_norm_opd", _GREY, "5 3", sparse=True)]),
        ("Length of an episode", "steps", None, [line("steps", "rollout/episode_length", own)]),
        ("Time of an update", "s", None, [line("seconds", "cost/update_seconds", own)]),
    ]  # fmt: skip
    made = [(title, unit, limits, tuple(s for s in series if s is not None)) for title, unit, limits, series in wanted]
    return [Chart(title, unit, series, limits, last=max(state.planned - 1, 1)) for title, unit, limits, series in made if series]


def _differs(metrics: pd.DataFrame) -> bool:
    """Whether the return says more than success does."""
    if "rollout/return" not in metrics or "rollout/success" not in metrics:
        return False
    gap = pd.to_numeric(metrics["rollout/return"], errors="coerce") - pd.to_numeric(metrics["rollout/success"], errors="coerce")
    return bool((gap.abs() > 1e-9).any())


def curves(state: WatchState, picture: Callable[[Chart], str] = draw) -> str:
    """Cards of charts; `picture` draws one (`svg.image` where SVG itself would be dropped)."""
    cards = "".join(_card(chart, picture) for chart in charts(state))
    return f'<div style="{FONT};display:flex;flex-wrap:wrap;gap:10px;margin-top:10px">{cards}</div>' if cards else ""


def _card(chart: Chart, picture: Callable[[Chart], str]) -> str:
    names = " &nbsp; ".join(
        f'<span style="white-space:nowrap"><span style="display:inline-block;width:16px;border-top:3px {"dashed" if s.dash else "solid"} {s.colour};vertical-align:middle"></span> '
        f"{escape(s.name)} <b>{short(s.points[-1][1])}</b></span>"
        for s in chart.series
        if s.points
    )
    unit = "" if chart.unit == "1" else f' <span style="{SOFT}">{escape(chart.unit)}</span>'
    return (
        f'<div style="border:{LINE};border-radius:8px;padding:8px 10px;width:{chart.width + 22}px;max-width:100%;box-sizing:border-box">'
        f'<div style="font-weight:600;font-size:13.5px">{escape(chart.title)}{unit}</div><div style="font-size:12px">{names}</div>{picture(chart)}</div>'
    )


def skills(state: WatchState) -> str:
    """The newest update's skills beside what happened, then the evaluation where there is one."""
    parts = []
    if state.skills:
        rows = "".join(
            f'<div style="border-top:{LINE};padding:4px 0;display:flex;gap:12px;flex-wrap:wrap"><span style="flex:0 0 96px">{"✓ success" if s.success else "✕ failure"}</span>'
            f'<span style="flex:1 1 240px;{SOFT}">{escape(s.goal)}</span><span style="flex:2 1 320px">{escape(s.text) or "(empty)"}</span>'
            f'<span style="flex:0 0 150px">{"✓ accepted" if s.accepted else "✕ rejected: " + escape(s.reason)}</span></div>'
            for s in state.skills
        )
        parts.append(f"<b>Skills of update {state.skills[0].update}, the first of each task</b>{rows}")
    if len(state.evaluations):
        cells = "".join(
            f'<div style="border-top:{LINE};padding:4px 0">{escape(row["panel"])}, update {row["update"]}: success <b>{row["success_macro"]:.3f}</b> '
            f'<span style="{SOFT}">mean over task types; {row["success_micro"]:.3f} over episodes</span></div>'
            for row in state.evaluations.to_dict("records")
        )
        parts.append(f'<b style="display:block;margin-top:10px">Evaluation</b>{cells}')
    return f'<div style="{FONT};margin-top:6px">{"".join(parts)}</div>' if parts else ""


def log(state: WatchState) -> str:
    """The last lines of the log, as a terminal would show them."""
    if not state.log:
        return ""
    lines = escape("\n".join(state.log))
    return (
        f'<div style="{FONT};margin-top:6px"><b>Log</b> <span style="{SOFT}">last lines</span>'
        f'<pre style="margin:2px 0;padding:8px 10px;border:{LINE};border-radius:6px;background:rgba(138,148,163,.12);font-size:12px;line-height:1.45;overflow-x:auto;white-space:pre">{lines}</pre></div>'
    )


def numbers(state: WatchState) -> str:
    """The last values of what the curves show, with the registry's sentence; for a page that is read without pictures."""
    found = [name for name in ("rollout/success", "rollout/return", "rollout/tie_rate", "opd/gate_mean", "policy/entropy", "policy/kl") if name in state.metrics]
    rows = "".join(
        f'<tr><td style="padding:1px 12px 1px 0">{escape(describe(name)[1])}</td><td style="text-align:right;padding-left:12px">{_last(state.metrics[name])}</td><td style="padding-left:6px">{escape(describe(name)[0].replace("1", ""))}</td></tr>'
        for name in found
    )
    return f'<table style="font-size:12.5px;border-collapse:collapse;margin-top:8px"><caption style="text-align:left;font-weight:600">Last values</caption>{rows}</table>' if rows else ""


def _last(values: pd.Series) -> str:
    found = pd.to_numeric(values, errors="coerce").dropna()
    return short(float(found.iloc[-1])) if len(found) else "—"
