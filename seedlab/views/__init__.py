"""What a run looks like: figures, the report, the live watch, cards of many runs, and the token inspector.

The names below load on first use only, so that importing the room costs nothing.
"""

from importlib import import_module

_HOMES = {
    "watch": "watching", "WatchView": "watching", "inspect_tokens": "inspector", "TokenInspector": "inspector", "run_cards": "cards",
    "write_report": "report",
}  # fmt: skip

__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
