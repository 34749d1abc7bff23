"""Tasks and environments: `make_family(env_config)` is the way in."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from seedlab.config.names import suggestion
from seedlab.config.schema import EnvConfig
from seedlab.envs.base import EnvironmentSettingsError, FamilyBase, NoScriptedAnalyzer
from seedlab.errors import UserError

FAMILIES = ("household",)
# named by presets, so that they can be compared, planned and dry-run
PLANNED = ("webshop", "search", "sokoban", "ezpoints")


def make_family(env_config: EnvConfig) -> FamilyBase:
    """The family that `env_config.name` names.  An unknown name raises EnvironmentSettingsError (a ValueError)."""
    if env_config.name == "household" and env_config.backend == "textworld":
        from seedlab.envs.textworld.family import TextworldFamily

        return TextworldFamily(env_config)
    if env_config.name == "household":
        from seedlab.envs.household.family import HouseholdFamily

        return HouseholdFamily(env_config)
    if env_config.name in PLANNED:
        raise EnvironmentSettingsError(
            f"env.name={env_config.name}: this environment is known but not built yet; built: {', '.join(FAMILIES)}. "
            "Its presets can be shown, compared and planned (seedlab config, diff, plan)"
        )
    close = difflib.get_close_matches(env_config.name, FAMILIES, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise EnvironmentSettingsError(f"unknown environment env.name={env_config.name!r}; {hint}known: {', '.join(FAMILIES)}")


def check_settings(env_config: EnvConfig) -> None:
    """EnvironmentSettingsError for settings that no machine could play; whether the data are there is not looked at."""
    make_family(env_config.model_copy(update={"data": None, "backend": "household"}))


def refuse_unknown_panels(names: Iterable[str], known: Collection[str]) -> None:
    """UserError naming the first of `names` that is none of the panels `known`, and the closest of these."""
    for name in names:
        if name not in known:
            raise UserError(f"there is no panel {name!r}{suggestion(name, known)} (panels: {', '.join(known)})")


__all__ = ["FAMILIES", "PLANNED", "EnvironmentSettingsError", "FamilyBase", "NoScriptedAnalyzer", "check_settings", "make_family", "refuse_unknown_panels"]
