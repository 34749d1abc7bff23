"""All runs below a folder as cards: state, progress and the latest success at a glance."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seedlab.jobs.listing import run_folders
from seedlab.views import watch_html
from seedlab.views.svg import Chart, Series, image
from seedlab.views.template import escape
from seedlab.views.theme import method_style
from seedlab.views.watch_state import Watcher, WatchState

CARD_WIDTH = 300


def run_cards(root: str | Path = "runs") -> "RunCards":
    """The runs below `root`, in the last line of a notebook's cell.  Raises JobError where `root` is no folder."""
    return RunCards(Path(root))


class RunCards:
    """A picture of the moment it is shown at; without scripts, so that it stays in a saved notebook."""

    def __init__(self, root: Path):
        self.root = root
        self.folders = list(run_folders(root))

    def __repr__(self) -> str:
        return f"RunCards({self.root}: {len(self.folders)} runs)"

    def _repr_html_(self) -> str:
        if not self.folders:
            return f'<p style="{watch_html.FONT}">No run below {escape(self.root)} yet. Start one: seedlab submit tiny</p>'
        cards = "".join(_card(self.root, Watcher(folder).read()) for folder in self.folders)
        return f'<div style="{watch_html.FONT};display:flex;flex-wrap:wrap;gap:10px">{cards}</div>'


def _card(root: Path, state: WatchState) -> str:
    name = state.path.relative_to(root) if state.path != root else state.path.name
    rows = [f'<div style="display:flex;justify-content:space-between;gap:8px"><b>{escape(name)}</b>{watch_html.chip(state.state)}</div>']
    rows.append(f'<div style="{watch_html.SOFT}">{escape(state.title)}</div>')
    if state.planned:
        rows.append(watch_html.bar("updates", state.updates_done, state.planned, method_style(state.method)[0]))
    success = _success(state)
    rows.append(image(success) if success is not None else f'<div style="{watch_html.SOFT}">no update yet</div>')
    rows += [f'<div style="font-size:12.5px">{escape(problem)}</div>' for problem in state.problems[:1]]
    return f'<div style="border:{watch_html.LINE};border-radius:8px;padding:8px 12px;width:{CARD_WIDTH + 26}px;box-sizing:border-box">{"".join(rows)}</div>'


def _success(state: WatchState) -> Chart | None:
    if "rollout/success" not in state.metrics:
        return None
    values = pd.to_numeric(state.metrics["rollout/success"], errors="coerce").tolist()
    line = Series("success", state.metrics["update"].tolist(), values, method_style(state.method)[0])
    return Chart("Success of the rollouts", "share", (line,), (0.0, 1.0), last=max(state.planned - 1, 1), width=CARD_WIDTH, height=110)
