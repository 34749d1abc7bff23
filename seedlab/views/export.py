"""An analysis as files: every table as CSV, and one page with figures and tables that opens offline."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from seedlab.analysis.compare import verdict
from seedlab.analysis.frames import Arm
from seedlab.errors import UserError
from seedlab.store.files import disk_error, write_text
from seedlab.views import analysis_figures as figures
from seedlab.views.figures import figure_html
from seedlab.views.template import number, page, paragraph, table

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
ROWS_SHOWN = 200  # a longer table is cut on the page; its CSV is whole

# Figures that belong to the tables of notebook 04, by the table's name.
DRAWN: dict[str, Callable[[pd.DataFrame, Sequence[Arm]], go.Figure]] = {
    "gates": figures.gates_figure,
    "skills": figures.skills_figure,
    "ties": lambda frame, arms: figures.ties_figure(arms, frame),
    "costs": lambda frame, arms: figures.costs_figure(arms),
    "efficiency": figures.efficiency_figure,
    "lengths": figures.lengths_figure,
    "task_types": figures.task_types_figure,
    "differences": lambda frame, arms: figures.differences_figure(frame),
}


def export_analysis(
    folder: str | Path, arms: Sequence[Arm], tables: Mapping[str, pd.DataFrame], drawn: Mapping[str, go.Figure] | None = None,
    title: str = "seedlab analysis",
) -> Path:
    """Write NAME.csv for each table and analysis.html into `folder`; returns the page.

    Tables of notebook 04 get their figures; `drawn` has those of your own, by the table's name.  Raises UserError for a
    name that is no file name, or RunError where the folder cannot be written.
    """
    folder = Path(folder)
    wrong = [name for name in tables if not NAME.fullmatch(name)]
    if wrong:
        raise UserError(f"{wrong[0]!r} cannot name a file; use letters, digits, dot, dash and underscore")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(folder, error) from error
    sections = []
    for name, frame in tables.items():
        write_text(folder / f"{name}.csv", frame.to_csv(index=False))
        figure = (drawn or {}).get(name) or (DRAWN[name](frame, arms) if name in DRAWN else None)
        content = _table(frame)
        sections.append((name, name.replace("_", " "), content if figure is None else figure_html(_see_through(figure), f"fig-{name}", content)))
    lead = '<div class="verdict">' + "".join(paragraph(line) for line in verdict(arms)) + "</div>"
    write_text(folder / "analysis.html", page(title, lead, sections, script=get_plotlyjs()))
    return folder / "analysis.html"


def _see_through(figure: go.Figure) -> go.Figure:
    # The page is light or dark, and the figure's ink follows it.
    return go.Figure(figure).update_layout(paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)")


def _table(frame: pd.DataFrame) -> str:
    numbers = [i for i, kind in enumerate(frame.dtypes) if pd.api.types.is_float_dtype(kind)]
    rows = [[number(v) if i in numbers else v for i, v in enumerate(row)] for row in frame.head(ROWS_SHOWN).itertuples(index=False)]
    cut = paragraph(f"The first {ROWS_SHOWN} of {len(frame)} rows.", "soft") if len(frame) > ROWS_SHOWN else ""
    return table(frame.columns, rows, numbers=numbers) + cut
