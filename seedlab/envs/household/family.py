"""The household family: generated rooms, or the official games of a folder, behind one interface."""

from __future__ import annotations

import warnings
from functools import lru_cache

import numpy as np

from seedlab.config.schema import EnvConfig
from seedlab.envs.base import EnvironmentSettingsError, FamilyBase, check_panel_sizes, cut_panels
from seedlab.envs.household import critical, hindsight, oracle
from seedlab.envs.household.engine import Household
from seedlab.envs.household.expert import Demonstration, demonstrate
from seedlab.envs.household.games import load_game
from seedlab.envs.household.goals import TASK_TYPES
from seedlab.envs.household.official import game_path, games_hash, games_root, official_panels
from seedlab.envs.household.rooms import KINDS, generate_facts
from seedlab.envs.household.skills import SkillAgreement, SkillFacts, skill_agreement, skill_facts
from seedlab.envs.household.tasks import DEMONSTRATIONS, PANELS, generated_panels, parse_task_id
from seedlab.envs.household.words import vocabulary
from seedlab.envs.household.world import Facts, World, build_world
from seedlab.envs.protocol import Panel

LEAST_RECEPTACLES = 4  # target, appliance and two places where the object may start
MOST_RECEPTACLES = max(sum(kind.receptacles.values()) for kind in KINDS.values())
MOST_DISTRACTORS = max(len(kind.objects) for kind in KINDS.values())
_WORLDS_KEPT = 2048
EVALUATION = ("seen", "unseen")


class HouseholdFamily(FamilyBase):
    """Tasks of one EnvConfig.  Worlds are kept, so that making the same task again costs microseconds."""

    name = "household"
    task_types = TASK_TYPES
    has_scripted_analyzer = True

    def __init__(self, config: EnvConfig):
        check_panel_sizes(config.panel_sizes, PANELS, (DEMONSTRATIONS,))
        _check_range("receptacles", config.receptacles, LEAST_RECEPTACLES, MOST_RECEPTACLES, "the largest kind of room has so many places")
        _check_range("distractors", config.distractors, 0, MOST_DISTRACTORS, "the richest kind of room has so many kinds of objects")
        self.config = config
        self.root = games_root(config.data) if config.data is not None else None
        self.notes: tuple[str, ...] = ()  # what panels() found missing from the official games
        self._world = lru_cache(maxsize=_WORLDS_KEPT)(self._load if self.root else self._generate)
        self._panels: dict[str, Panel] | None = None

    def _load(self, task_id: str) -> World:
        return load_game(game_path(self.root, task_id)).world

    def _generate(self, task_id: str) -> World:
        return build_world(self.facts(task_id))

    def facts(self, task_id: str) -> Facts:
        """What a generated room holds, from which its world and its official game file are made."""
        return generate_facts(task_id, *parse_task_id(task_id), self.config.receptacles, self.config.distractors)

    def make(self, task_id: str) -> Household:
        """A fresh episode of the task; ValueError (or GameFileError) names what is wrong with the id."""
        return Household(self._world(task_id), task_id, self.config.max_steps, self.config.success_reward)

    def panels(self) -> dict[str, Panel]:
        """stage1, train, dev, seen and unseen, and demonstrations where it has a size: pairwise disjoint, task types
        alternating, cut as the config says.

        An incomplete evaluation split of official games is refused, or with `env.incomplete` said in a warning; `notes`
        keep what is missing.
        """
        if self._panels is None:
            self._panels = cut_panels(self.whole_panels(), self.config.panel_limits, self.config.train_fraction)
            for note in self.notes:
                warnings.warn(note, stacklevel=2)
        return dict(self._panels)

    def whole_panels(self) -> dict[str, Panel]:
        """The panels before `panel_limits` and `train_fraction` cut them."""
        sizes, seed = self.config.panel_sizes, self.config.panel_seed
        if self.root is None:
            return generated_panels(sizes, seed)
        panels, self.notes = official_panels(self.root, sizes, seed, self.config.incomplete)
        return panels

    def demonstration_tasks(self) -> tuple[str, ...]:
        """Tasks that a scripted expert may show: a panel of their own where it has a size, else the whole train panel."""
        panels = self.whole_panels()
        return panels.get(DEMONSTRATIONS, panels["train"]).task_ids

    def data_hash(self) -> str | None:
        """Over the official games of all panels but `seen` and `unseen`; None for generated rooms."""
        if self.root is None:
            return None
        return games_hash(self.root, [i for name, panel in self.whole_panels().items() if name not in EVALUATION for i in panel.task_ids])

    def demonstrate(self, env: Household, rng: np.random.Generator, noise: float, skill: str | None = None) -> Demonstration:
        return demonstrate(env, rng, noise, skill)

    def hindsight_skill(self, goal: str, observations: list[str], actions: list[str], success: bool) -> str:
        return hindsight.hindsight_skill(goal, observations, actions, success)

    def step_skills(self, goal: str, observations: list[str], actions: list[str], success: bool, limit: int) -> dict[int, str]:
        return critical.step_skills(goal, observations, actions, success, limit)

    def skill_facts(self, skill: str) -> SkillFacts:
        return skill_facts(skill)

    def skill_agreement(self, own: str, scripted: str) -> SkillAgreement:
        return skill_agreement(own, scripted)

    def oracle_plan(self, env: Household) -> list[str]:
        return oracle.oracle_plan(env)

    def oracle_distance(self, env: Household) -> int:
        return oracle.oracle_distance(env)

    def progress(self, env_before: Household, action: str) -> float:
        return oracle.progress(env_before, action)

    def vocabulary(self) -> list[str]:
        return vocabulary()


def _check_range(key: str, bounds: tuple[int, int], least: int, most: int, why: str) -> None:
    low, high = bounds
    if not least <= low <= high <= most:
        raise EnvironmentSettingsError(
            f"env.{key}={low},{high} must be two rising numbers, the first at least {least}, the last at most {most}: {why}"
        )
