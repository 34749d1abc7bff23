"""A run's settings as frames: what each means, and where they depart from the paper."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from seedlab.config.diff import diff_against_paper
from seedlab.config.names import is_section
from seedlab.config.schema import Config
from seedlab.store.reader import Run, open_run


def settings_frame(run: Run | Path | str | Config, *sections: str) -> pd.DataFrame:
    """Index setting; columns value, meaning.  `sections` are some of the configuration's; all of it without one."""
    config = _config(run)
    rows = {}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if sections and name not in sections:
            continue
        if is_section(field):
            rows |= {f"{name}.{key}": (getattr(value, key), inner.description) for key, inner in type(value).model_fields.items()}
        else:
            rows[name] = (value, field.description)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "meaning"]).rename_axis("setting")


def paper_differences(run: Run | Path | str | Config) -> pd.DataFrame:
    """Index setting; columns paper, here, reason: every departure from the paper's tables and method.

    A reason of `own setting` means that none is recorded: somebody set the value for this run.
    """
    rows = {d.key: (d.paper, d.this, d.reason or "own setting") for d in diff_against_paper(_config(run))}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["paper", "here", "reason"]).rename_axis("setting")


def _config(run: Run | Path | str | Config) -> Config:
    if isinstance(run, Config):
        return run
    return (run if isinstance(run, Run) else open_run(run)).config
