"""Environments that presets name and this version does not have yet."""

import pytest

from seedlab.config.presets import load_config
from seedlab.envs import FAMILIES, PLANNED, EnvironmentSettingsError, make_family


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_environment_is_known_and_says_that_it_is_not_built(name):
    assert name not in FAMILIES
    cfg = load_config(next(f"paper/{name}-{m}" for m in ("qwen2.5-3b", "qwen2.5-vl-3b") if (name in ("webshop", "search")) == (m == "qwen2.5-3b")))
    with pytest.raises(EnvironmentSettingsError, match=f"env.name={name}: this environment is known but not built yet; built: household"):
        make_family(cfg.env)


def test_an_unknown_environment_is_not_taken_for_a_planned_one():
    with pytest.raises(EnvironmentSettingsError, match="unknown environment env.name='webshopp'"):
        make_family(load_config("tiny", ["env.name=webshopp"]).env)


