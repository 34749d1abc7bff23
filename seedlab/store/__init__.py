"""The run folder: writer, reader, checkpoints and the registry of metrics.

The names below load pandas on first use only, so that a job or ``seedlab --help`` starts at once.
"""

from importlib import import_module

_HOMES = {
    "Run": "reader", "open_run": "reader", "RunWriter": "writer", "RunError": "errors", "alive": "process",
    "tail_rows": "files", "save_checkpoint": "checkpoint", "latest_checkpoint": "checkpoint", "METRICS": "metrics",
}  # fmt: skip

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
