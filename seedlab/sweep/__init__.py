"""Sweeps: many runs, or many executions of a notebook, from one YAML file; what is finished is never run again."""

from importlib import import_module

_HOMES = {"read_sweep": "file", "Sweep": "cells", "Cell": "cells", "run_sweep": "run", "sweep_frame": "index", "summary": "index"}

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
