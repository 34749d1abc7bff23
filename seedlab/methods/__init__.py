"""Named methods: a name is a vetted set of switches, and anything set on top is the user's own assembly."""

from __future__ import annotations

from seedlab.config.names import suggestion
from seedlab.errors import ConfigError
from seedlab.methods.bundles import METHODS, Bundle

__all__ = ["METHODS", "Bundle", "get_method", "register"]


def get_method(name: str) -> Bundle:
    """The bundle of an available method.  Raises ConfigError for an unknown one and for one that is not built yet."""
    if name not in METHODS:
        known = ", ".join(sorted(n for n, b in METHODS.items() if b.available))
        raise ConfigError(f"unknown method {name!r}{suggestion(name, METHODS)} (available: {known})")
    bundle = METHODS[name]
    if not bundle.available:
        raise ConfigError(f"method {name!r} is known but not built yet: it needs {bundle.missing}")
    return bundle


def register(bundle: Bundle) -> None:
    """Add a method to this process, for notebooks and scripts; a lasting one belongs into bundles.py.

    Raises ConfigError where the name is taken, or where the settings do not resolve on the preset `tiny`.
    """
    from seedlab.config.presets import load_config  # presets resolve methods, so this import has to wait

    if bundle.name in METHODS:
        raise ConfigError(f"method {bundle.name!r} exists already; choose another name")
    METHODS[bundle.name] = bundle
    try:
        if bundle.available:
            load_config("tiny", {"method": bundle.name})
    except ConfigError as error:
        del METHODS[bundle.name]
        raise ConfigError(f"method {bundle.name!r}: {error}") from error
