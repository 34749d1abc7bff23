"""A training whose numbers have left the numbers: what a too large learning rate looks like."""

from __future__ import annotations

import math
from collections.abc import Mapping

from seedlab.config.schema import Config
from seedlab.errors import UserError


class Diverged(UserError):
    """A loss, a gradient or the weights are no longer finite; the message says where, in which term, and what to lower."""

    exit_code = 1


def learning_rate_advice(cfg: Config) -> str:
    return f"lower stage2.learning_rate={cfg.stage2.learning_rate:g} in a new run"


def broken_terms(terms: Mapping[str, float]) -> str:
    """Which of a loss's terms are not finite, in words."""
    broken = [f"{name} ({value:g})" for name, value in terms.items() if not math.isfinite(value)]
    if not broken:
        return "every term of the loss is still finite, so that the gradient overflowed"
    return f"not finite: {', '.join(broken)}" + ("" if len(broken) < len(terms) else ", which is every term: the policy's own log-probs are broken")
