"""Many episodes at once against any generator.

Each episode is a coroutine that asks the generator and steps its own environment; a finished one leaves the batch at
once.  Sampled ids and log-probs are carried as they came, never re-tokenised.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Callable, Sequence

from seedlab.config.schema import EnvConfig
from seedlab.envs.protocol import Environment, Family, InfrastructureError
from seedlab.episodes.keys import stream_key
from seedlab.episodes.prompts import History, PromptFormat, PromptTooLong, parse_action
from seedlab.episodes.records import Step, Trajectory
from seedlab.policy.chat import ChatRenderer
from seedlab.policy.protocol import Generator, Sampling


@dataclass(frozen=True)
class Episode:
    """What is to be played: a task and a place in its group.  `skill` stands in the prompt (skill-prompt methods)."""

    task_id: str
    n: int
    skill: str = ""


@dataclass(frozen=True)
class PlaySettings:
    """`phase`, `seed` and `update` name the random streams; `max_prompt_tokens` bounds every prompt."""

    phase: str
    seed: int
    update: int
    temperature: float
    max_response_tokens: int
    max_prompt_tokens: int
    track_progress: bool = False


def history_of(trajectory: Trajectory, steps: int) -> History:
    """The history before step number `steps` (0-based), as the prompt of that step saw it.

    Equals what the episode was played with, so that a prompt can be rendered again with a skill (H of the paper).
    """
    seen = trajectory.steps[: steps + 1]
    past = trajectory.steps[:steps]
    last = seen[-1] if len(seen) > steps else None
    return History(
        goal=trajectory.goal,
        observations=[s.observation for s in seen],
        responses=[s.response for s in past],
        actions=[s.action for s in past],
        holding=[s.holding for s in seen],
        admissible=list(last.admissible_commands) if last is not None else [],
        name=trajectory.id,
    )


def identity(episode: Episode, settings: PlaySettings) -> str:
    """The trajectory's id, unique in a run."""
    return f"{settings.phase}{settings.update:06d}/{episode.task_id}/n{episode.n}"


def unplayed(episode: Episode, settings: PlaySettings, cause: str) -> Trajectory:
    """The record of an episode that the infrastructure lost before it left any of its own."""
    return Trajectory(
        id=identity(episode, settings), task_id=episode.task_id, task_type="", goal="", update=settings.update, n=episode.n,
        seed=settings.seed, infra_failure=cause, prompt_skill=episode.skill,
    )


async def play_one(
    episode: Episode, family: Family, generator: Generator, chat: ChatRenderer, prompts: PromptFormat, env_cfg: EnvConfig,
    settings: PlaySettings,
) -> Trajectory:
    """Play one episode to its end.  An InfrastructureError ends it with `infra_failure` set, never with a zero reward."""
    env = family.make(episode.task_id)
    trajectory = Trajectory(
        id=identity(episode, settings), task_id=episode.task_id, task_type=env.task_type, goal=env.goal, update=settings.update, n=episode.n,
        seed=settings.seed, prompt_skill=episode.skill,
    )
    try:
        await _run(trajectory, env, episode, family, generator, chat, prompts, env_cfg, settings)
    except InfrastructureError as error:
        trajectory.infra_failure = str(error) or type(error).__name__
    finally:
        env.close()
    return trajectory


async def _run(trajectory, env: Environment, episode, family, generator, chat, prompts, env_cfg, settings) -> None:
    observation, trajectory.goal = env.reset(), env.goal
    history = History(goal=env.goal, observations=[], responses=[], actions=[], holding=[], admissible=[], name=trajectory.id)
    previous: tuple[list[int], list[int], list[dict], int] | None = None
    distance = family.oracle_distance(env) if settings.track_progress else None
    while True:
        holding = env.holding() or ""
        commands = tuple(env.admissible())
        history.observations.append(observation)
        history.holding.append(holding)
        history.admissible = list(commands)
        try:
            prompt_ids, messages, kept_from = _prompt(history, chat, prompts, settings.max_prompt_tokens, episode.skill, previous)
        except PromptTooLong:
            if not trajectory.steps:
                raise  # the task itself does not fit: a configuration error, named by the exception
            trajectory.truncated = True  # an observation that fits no prompt ends the episode; nothing is cut silently
            trajectory.final_observation = observation
            return
        key = stream_key(settings.seed, settings.phase, settings.update, episode.task_id, episode.n, len(trajectory.steps))
        generation = await generator.generate(
            prompt_ids,
            Sampling(settings.temperature, settings.max_response_tokens, key, tuple(chat.stop_ids)),
            trajectory_id=trajectory.id,
        )
        response = chat.decode(generation.ids)
        action, parsed = parse_action(response, env_cfg.prompt, env_cfg.fallback_characters)
        result = env.step(action)
        progress = None
        if settings.track_progress:
            after = 0 if result.info.won else family.oracle_distance(env)
            progress, distance = float(distance - after), after
        trajectory.steps.append(
            Step(
                observation=observation, response=response, action=action, prompt_ids=prompt_ids,
                response_ids=list(generation.ids), logprobs=list(generation.logprobs), entropies=list(generation.entropies),
                finish=generation.finish, parsed=parsed, admissible=result.info.admissible, reward=result.reward,
                kept_from=kept_from, holding=holding, admissible_commands=commands, progress=progress,
            )
        )
        trajectory.returned += result.reward
        if generation.finish == "length" and len(generation.ids) < settings.max_response_tokens:
            trajectory.truncated = True  # the context ended in the middle of an answer
        observation = result.observation
        if result.done or trajectory.truncated:
            trajectory.final_observation = observation
            trajectory.success = result.info.won
            trajectory.truncated = trajectory.truncated or result.info.truncated
            return
        history.responses.append(response)
        history.actions.append(action)
        previous = (prompt_ids, list(generation.ids), messages, kept_from)


def _prompt(history, chat, prompts, limit, skill, previous):
    """Ids, messages and first kept turn of the next prompt, extending the ids already seen where the template allows."""
    if previous is not None:
        seen_ids, response_ids, seen_messages, kept_from = previous
        messages = prompts.messages(history, skill=skill, kept_from=kept_from)
        if prompts.extends:
            extended = chat.extend(seen_ids, response_ids, seen_messages, messages)
            if extended is not None and len(extended) <= limit:
                return extended, messages, kept_from
    messages, kept_from = prompts.fit(chat.render, history, limit, skill=skill)
    return chat.render(messages), messages, kept_from


def play(
    episodes: Sequence[Episode], family: Family, generator, chat: ChatRenderer, prompts: PromptFormat, env_cfg: EnvConfig,
    settings: PlaySettings, *, on_done: Callable[[Trajectory], None] = lambda t: None, at_once: int | None = None,
) -> list[Trajectory]:
    """Play all episodes and return their trajectories in the order given.

    `at_once` bounds how many share a batch; episodes are then played in blocks.  The result does not depend on it
    beyond floating point, since every draw has its own stream.
    """
    block = at_once or len(episodes) or 1

    async def run_block(part):
        generator.expect(len(part))

        async def one(episode):
            try:
                trajectory = await play_one(episode, family, generator, chat, prompts, env_cfg, settings)
            finally:
                generator.leave()
            on_done(trajectory)
            return trajectory

        return await asyncio.gather(*(one(e) for e in part))

    out: list[Trajectory] = []
    for start in range(0, len(episodes), block):
        out += asyncio.run(run_block(episodes[start : start + block]))
    return out
