"""Values that would end a run only after much of it is done are refused before it starts."""

import pytest

from seedlab.config.presets import load_config
from seedlab.errors import ConfigError

REFUSED = {
    "evaluation.panels=[sen]": "names 'sen', which is no panel",
    "evaluation.panels=[seen,seen]": "names a panel twice",
    "env.panel_limits.seen=0": "names 'seen', which has no tasks",
    "stage2.minibatches=0": "stage2.minibatches must be at least 1",
    "stage2.betas=[1.5,2]": r"stage2.betas\[0\]=1.5",
    "objective.dual_clip=0.5": "greater than 1",
    "objective.kl_coef=-1": "greater than or equal to 0",
    "seed=99999999999999999999": "seed=",
    "external.base_url=https://user:word@host/v1": "external.base_url",
}


@pytest.mark.parametrize("override", REFUSED)
def test_it_is_refused_when_the_configuration_is_made(override):
    with pytest.raises(ConfigError, match=REFUSED[override]):
        load_config("tiny", [override])
