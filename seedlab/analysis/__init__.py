"""Frames from run folders.  Every function of the list below takes one run folder, a folder of runs, several of them, or
arms that `load` has opened, and returns a pandas frame; `seedlab.views.analysis_figures` draws them.

The names load pandas on first use only.
"""

from importlib import import_module

_HOMES = {
    "load": "frames", "runs_frame": "tables", "learning_curves": "tables", "evaluation_table": "tables", "tie_rates": "tables", "gate_histogram": "tables",
    "skills_by_outcome": "tables", "token_frame": "tables", "by_task_type": "tables", "paired_differences": "tables",
    "curve_bands": "curves", "sample_efficiency": "curves", "first_reached": "curves", "episode_lengths": "curves", "gates": "curves",
    "skill_quality": "curves", "cost_per_update": "curves", "groups": "ties", "tie_theory": "ties", "settings_frame": "settings", "paper_differences": "settings",
    "collected": "stage1", "labels": "stage1", "verdicts": "stage1", "before_after": "stage1", "sft_losses": "stage1", "sample": "stage1",
    "differing_settings": "compare", "verdict": "compare",
}  # fmt: skip

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
