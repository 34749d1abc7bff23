"""What a family is and does beside making environments: settings of panels, and the scripted helpers it may offer."""

from __future__ import annotations

from seedlab.envs.protocol import Environment, Panel, StepInfo, StepResult
from seedlab.errors import UserError


class NoScriptedAnalyzer(UserError, NotImplementedError):
    """The family cannot write or judge skills by itself, or has no expert or oracle."""


class EnvironmentSettingsError(UserError, ValueError):
    """A setting under `env.` is wrong; the message names it."""


class FamilyBase:
    """Defaults of a family without scripted expert, analyzer and oracle; a family overrides what it can do."""

    name = "unnamed"
    task_types: tuple[str, ...] = ()
    has_scripted_analyzer = False

    def make(self, task_id: str) -> Environment:
        raise NotImplementedError

    def panels(self) -> dict[str, Panel]:
        raise NotImplementedError

    def data_hash(self) -> str | None:
        """Names the contents of the files that the tasks outside evaluation come from; None where settings make them."""
        return None

    def hindsight_skill(self, goal: str, observations: list[str], actions: list[str], success: bool) -> str:
        raise self._lacks("scripted analyzer", "set external.kind=openai")

    def step_skills(self, goal: str, observations: list[str], actions: list[str], success: bool, limit: int) -> dict[int, str]:
        """{step: advice} for at most `limit` critical steps."""
        raise self._lacks("scripted analyzer of steps", "set external.kind=openai, or objective.critical_steps=0")

    def skill_agreement(self, own: str, scripted: str):
        raise self._lacks("scripted analyzer", "analyzer accuracy cannot be measured here")

    def demonstrate(self, env: Environment, rng, noise: float, skill: str | None = None):
        raise self._lacks("scripted expert", "start from a pretrained model (model.path)")

    def demonstration_tasks(self) -> tuple[str, ...]:
        raise self._lacks("scripted expert", "start from a pretrained model (model.path)")

    def oracle_plan(self, env: Environment) -> list[str]:
        raise self._lacks("oracle", "oracle progress cannot be measured here")

    def oracle_distance(self, env: Environment) -> int:
        raise self._lacks("oracle", "oracle progress cannot be measured here")

    def progress(self, env_before: Environment, action: str) -> float:
        raise self._lacks("oracle", "oracle progress cannot be measured here")

    def vocabulary(self) -> list[str]:
        raise self._lacks("word list", "the tiny policy cannot be built for it; set model.path")

    def _lacks(self, what: str, advice: str) -> NoScriptedAnalyzer:
        return NoScriptedAnalyzer(f"environment {self.name!r} has no {what}: {advice}")


def step_result(
    observation: str, admissible: bool, won: bool, steps: int, max_steps: int, success_reward: float
) -> StepResult:
    """What a step of a task that is won or not gives back; the step limit cuts an episode that is not won by then."""
    truncated = not won and steps >= max_steps
    return StepResult(
        observation=observation,
        reward=success_reward if won else 0.0,
        done=won or truncated,
        info=StepInfo(won=won, score=1.0 if won else 0.0, admissible=admissible, truncated=truncated),
    )


def cut_panels(panels: dict[str, Panel], limits: dict[str, int], train_fraction: float) -> dict[str, Panel]:
    """Panels cut by `env.panel_limits` (first k ids); `train` keeps its first `train_fraction` share, one task at least."""
    for name, limit in limits.items():
        if name not in panels:
            raise EnvironmentSettingsError(f"env.panel_limits names {name!r}; the panels are {', '.join(panels)}")
        if limit < 0:
            raise EnvironmentSettingsError(f"env.panel_limits.{name} is {limit}; it must not be negative")
    out = {}
    for name, panel in panels.items():
        ids = panel.task_ids
        if name == "train" and train_fraction < 1 and ids:
            ids = ids[: max(1, round(train_fraction * len(ids)))]
        out[name] = Panel(name, ids[: limits.get(name, len(ids))])
    return out


def check_panel_sizes(sizes: dict[str, int], names: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    """Every panel of `names` given once with a size of at least 0, those of `optional` at most once;
    EnvironmentSettingsError otherwise."""
    unknown, missing = [n for n in sizes if n not in (*names, *optional)], [n for n in names if n not in sizes]
    if unknown or missing:
        raise EnvironmentSettingsError(
            f"env.panel_sizes must give exactly {', '.join(names)}"
            + (f", and may give {', '.join(optional)}" if optional else "")
            + (f"; unknown: {', '.join(unknown)}" if unknown else "")
            + (f"; missing: {', '.join(missing)}" if missing else "")
        )
    negative = [n for n in sizes if sizes[n] < 0]
    if negative:
        raise EnvironmentSettingsError(f"env.panel_sizes.{negative[0]} is {sizes[negative[0]]}; it must not be negative")
