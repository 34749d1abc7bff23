"""Coefficients that change over a run: a function of the update's number alone, so that a resumed run needs no state."""

from __future__ import annotations

from seedlab.config.schema import ObjectiveConfig


def at_update(cfg: ObjectiveConfig, update: int) -> ObjectiveConfig:
    """The objective of update number `update` (from 0): `opd_coef` and `scale_share` are that update's own values.

    With S = `schedule_updates` the factor of `opd_coef` is min(1, (u + 1) / S) for `ramp`, max(0, 1 - u / S) for `decay`,
    and 1 before update S, 0 from it on, for `stop`.  `scale_share` falls linearly to 0 at update `scale_updates`.
    """
    changed = {}
    factor = _factor(cfg.schedule, update, cfg.schedule_updates)
    if factor != 1.0:
        changed["opd_coef"] = cfg.opd_coef * factor
    if cfg.skill_advantage == "scaled":
        changed["scale_share"] = cfg.scale_share * max(0.0, 1.0 - update / cfg.scale_updates)
    return cfg.model_copy(update=changed) if changed else cfg


def _factor(schedule: str, update: int, updates: int) -> float:
    if schedule == "ramp":
        return min(1.0, (update + 1) / updates)
    if schedule == "decay":
        return max(0.0, 1.0 - update / updates)
    if schedule == "stop":
        return 1.0 if update < updates else 0.0
    return 1.0
