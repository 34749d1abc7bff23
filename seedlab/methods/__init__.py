"""Named methods: a name is a vetted set of switches, and anything set on top is the user's own assembly."""

from __future__ import annotations

from seedlab.config.names import suggestion
from seedlab.errors import ConfigError
from seedlab.methods.bundles import METHODS, Bundle

__all__ = ["METHODS", "Bundle", "get_method"]


def get_method(name: str) -> Bundle:
    """The bundle of an available method.  Raises ConfigError for an unknown one and for one that is not built yet."""
    if name not in METHODS:
        known = ", ".join(sorted(n for n, b in METHODS.items() if b.available))
        raise ConfigError(f"unknown method {name!r}{suggestion(name, METHODS)} (available: {known})")
    bundle = METHODS[name]
    if not bundle.available:
        raise ConfigError(f"method {name!r} is known but not built yet: it needs {bundle.missing}")
    return bundle
