"""How often a group has nothing to learn from, as a number: reports need it, and they need no torch."""

from __future__ import annotations


def tie_probability(success_rate: float, group_size: int) -> float:
    """p^N + (1-p)^N: the chance that N independent outcomes of success rate p are all equal (paper section 6)."""
    if not 0.0 <= success_rate <= 1.0 or group_size < 1:
        raise ValueError(f"need 0 <= p <= 1 and N >= 1, got p={success_rate}, N={group_size}")
    return success_rate**group_size + (1.0 - success_rate) ** group_size
