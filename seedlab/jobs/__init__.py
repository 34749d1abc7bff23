"""Background jobs: a run that outlives the notebook, terminal or kernel that started it.

`submit` starts a command in a session of its own, `attach` finds it again by its run folder, `jobs` lists them.
"""

from importlib import import_module

_HOMES = {
    "Job": "job", "attach": "job", "JobError": "record", "submit": "submission", "submit_train": "submission",
    "submit_resume": "submission", "jobs": "listing", "jobs_frame": "listing", "find_run": "listing",
    "LogReader": "log_reader", "StopFlag": "signals", "stop_on_signals": "signals",
}  # fmt: skip

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
