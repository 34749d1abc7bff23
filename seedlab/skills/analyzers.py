"""Who writes hindsight skills: the policy's own snapshot, the environment's scripted analyzer, or an endpoint.

One interface for all three: ``async with analyzer``, ``expect(n)`` before n analyses, ``leave()`` after each, and
``await analyze(trajectory, prompt, key)``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Callable, Protocol, Sequence

from seedlab.config.schema import AnalyzerConfig
from seedlab.episodes.prompts import PromptFormat, PromptTooLong
from seedlab.episodes.records import Skill, Trajectory
from seedlab.policy.chat import ChatRenderer
from seedlab.policy.protocol import Generator, Sampling
from seedlab.skills.prompts import AnalyzerPrompt, analyzer_prompt, completion_text, transcript
from seedlab.skills.steps import episode_part, step_skills
from seedlab.skills.validate import validate


@dataclass(frozen=True)
class RawSkill:
    """An analyzer's answer before validation.  `finish`: stop | length | other; tokens are 0 where none were spent."""

    raw: str
    finish: str
    prompt_tokens: int
    completion_tokens: int
    analyzer: str


class Analyzer(Protocol):
    async def __aenter__(self) -> "Analyzer": ...
    async def __aexit__(self, *error) -> None: ...
    def expect(self, analyses: int) -> None: ...
    def leave(self) -> None: ...
    async def analyze(self, trajectory: Trajectory, prompt: AnalyzerPrompt, key: int) -> RawSkill: ...


class OwnAnalyzer:
    """The policy behind `generator` reads its own trajectories; the rollout's cache is used by the trajectory's id."""

    def __init__(self, generator: Generator, chat: ChatRenderer, cfg: AnalyzerConfig):
        self.generator, self.chat, self.cfg = generator, chat, cfg

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return None

    def expect(self, analyses: int) -> None:
        self.generator.expect(analyses)

    def leave(self) -> None:
        self.generator.leave()

    async def analyze(self, trajectory: Trajectory, prompt: AnalyzerPrompt, key: int) -> RawSkill:
        sampling = Sampling(self.cfg.temperature, self.cfg.max_tokens, key, tuple(self.chat.stop_ids))
        generation = await self.generator.generate(prompt.ids, sampling, trajectory_id=trajectory.id)
        raw = self.chat.decode(generation.ids)
        return RawSkill(raw, generation.finish, len(prompt.ids), len(generation.ids), "own")


class ScriptedAnalyzer:
    """The environment's own analyzer, which knows the rules; `contract` is the form that its answer takes.

    It marks at most `critical_steps` steps with skills of their own.
    """

    def __init__(self, family, contract: str = "marker", critical_steps: int = 0):
        self.family, self.contract, self.critical_steps = family, contract, critical_steps

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return None

    def expect(self, analyses: int) -> None:
        return None

    def leave(self) -> None:
        return None

    async def analyze(self, trajectory: Trajectory, prompt: AnalyzerPrompt, key: int) -> RawSkill:
        observations = [s.observation for s in trajectory.steps] + [trajectory.final_observation]
        actions = [s.action for s in trajectory.steps]
        text = self.family.hindsight_skill(trajectory.goal, observations, actions, trajectory.success)
        steps = {}
        if self.critical_steps:
            steps = self.family.step_skills(trajectory.goal, observations, actions, trajectory.success, self.critical_steps)
        return RawSkill(completion_text(text, self.contract, steps=steps) if text else "", "stop", 0, 0, "scripted")


@dataclass(frozen=True)
class SkillBatch:
    """Skills of a batch of trajectories (none for infrastructure failures), with what their analysis took."""

    skills: list[Skill]
    prompt_tokens: int
    completion_tokens: int
    dropped_turns: dict[str, int]  # by trajectory id, only where turns were left out of the analyzer's prompt


def write_skills(
    trajectories: Sequence[Trajectory], analyzer: Analyzer, prompts: PromptFormat, chat: ChatRenderer, cfg: AnalyzerConfig, *,
    key: Callable[[Trajectory], int], snapshot: int, contract: str | None = None, at_once: int | None = None,
    on_done: Callable[[Skill], None] = lambda skill: None, critical_steps: int = 0,
) -> SkillBatch:
    """Ask for a skill of every trajectory and judge it; skills come in the order of the trajectories.

    `contract` overrides `cfg.contract` for labels that another model writes.  A trajectory whose analyzer prompt does
    not fit gets a rejected skill, reason `prompt_too_long`.  `at_once` bounds how many are analysed together.  With
    `critical_steps` above 0 the answer may hold skills of so many steps (`Skill.steps`).
    """
    contract = contract or cfg.contract
    chosen = [t for t in trajectories if not t.infra_failure]
    block = at_once or len(chosen) or 1
    spent = {"prompt": 0, "completion": 0}
    dropped: dict[str, int] = {}

    async def one(trajectory: Trajectory) -> Skill:
        try:
            prompt = analyzer_prompt(trajectory, prompts, chat, cfg, contract=contract, critical_steps=critical_steps)
            answer = await analyzer.analyze(trajectory, prompt, key(trajectory))
        except PromptTooLong as error:
            skill = _skill(trajectory, "", False, "prompt_too_long", "none", snapshot, 0, str(error))
            on_done(skill)
            return skill
        finally:
            analyzer.leave()
        if prompt.dropped:
            dropped[trajectory.id] = prompt.dropped
        spent["prompt"] += answer.prompt_tokens
        spent["completion"] += answer.completion_tokens
        read, whole = transcript(trajectory), episode_part(answer.raw, contract) if critical_steps else answer.raw
        text, accepted, reason = validate(whole, contract, cfg, read, answer.finish)
        tokens = answer.completion_tokens or chat.count(answer.raw)
        skill = _skill(trajectory, text, accepted, reason, answer.analyzer, snapshot, tokens, answer.raw)
        if critical_steps and answer.finish == "stop":
            skill.steps = step_skills(answer.raw, contract, trajectory, read, cfg, critical_steps)
        on_done(skill)
        return skill

    async def everything() -> list[Skill]:
        out: list[Skill] = []
        async with analyzer:
            for start in range(0, len(chosen), block):
                part = chosen[start : start + block]
                analyzer.expect(len(part))
                # All are waited for, so that answers under way are kept when another one fails.
                results = await asyncio.gather(*(one(t) for t in part), return_exceptions=True)
                for result in results:
                    if isinstance(result, BaseException):
                        raise result
                out += results
        return out

    return SkillBatch(asyncio.run(everything()), spent["prompt"], spent["completion"], dropped)


def _skill(trajectory: Trajectory, text, accepted, reason, analyzer, snapshot, tokens, raw) -> Skill:
    return Skill(
        id=f"{trajectory.id}/skill", trajectory_id=trajectory.id, text=text, accepted=accepted, reason=reason,
        analyzer=analyzer, snapshot=snapshot if analyzer == "own" else -1, tokens=tokens, raw=raw,
    )
