"""The household family played by the official engine: the same tasks, panels, expert and oracle, another engine.

Texts and commands are those of our engine (`seedlab envs verify` compares them); it is the reference, one process per
environment and hundreds of times slower.
"""

from __future__ import annotations

from seedlab.config.schema import EnvConfig
from seedlab.envs.household import oracle
from seedlab.envs.household.engine import Household
from seedlab.envs.household.export import Rules, game_data
from seedlab.envs.household.family import HouseholdFamily
from seedlab.envs.household.official import game_path
from seedlab.envs.textworld.client import ProcessPool, official_python
from seedlab.envs.textworld.environment import OfficialEpisode


class TextworldFamily(HouseholdFamily):
    """`make` gives episodes on the official engine.  Generated rooms are handed to it as official game data."""

    def __init__(self, config: EnvConfig):
        super().__init__(config)
        official_python()  # a missing engine is said now, not in the middle of a run
        self.pool = ProcessPool(config.official_timeout_s)
        self._rules: Rules | None = None

    def make(self, task_id: str) -> OfficialEpisode:
        """A fresh episode, opened, so that its goal is known.  InfrastructureError where the engine fails."""
        world = self._world(task_id)  # refuses an unknown id or game by name, as our engine does
        if self.root is not None:
            game: str | dict = str(game_path(self.root, task_id).resolve())
        else:
            game = game_data(self.facts(task_id), "room", self.rules())
        env = OfficialEpisode(
            game, task_id, world.goal.task_type, self.pool, self.config.max_steps, self.config.success_reward
        )
        env.goal = world.sentence
        return env

    def rules(self) -> Rules:
        """Domain and grammar of the installed engine, asked for once."""
        if self._rules is None:
            process = self.pool.lease("rules of the installed alfworld")
            found = process.ask("rules")
            self.pool.give_back(process)
            self._rules = Rules(found["domain"], found["grammar"])
        return self._rules

    def mirror(self, env: OfficialEpisode) -> Household:
        """The episode as our engine plays it, for the oracle, which needs the state and not only the texts."""
        copy = Household(self._world(env.task_id), env.task_id, env.max_steps, env.success_reward)
        for action in env.actions:
            copy.step(action)
        return copy

    def oracle_plan(self, env: OfficialEpisode) -> list[str]:
        return oracle.oracle_plan(self.mirror(env))

    def oracle_distance(self, env: OfficialEpisode) -> int:
        return oracle.oracle_distance(self.mirror(env))

    def progress(self, env_before: OfficialEpisode, action: str) -> float:
        return oracle.progress(self.mirror(env_before), action)

    def close(self) -> None:
        """End the idle processes; those of open episodes end with their `close`."""
        self.pool.close()
