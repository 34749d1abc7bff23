"""What an episode leaves behind.  Plain data: no environment, no model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Step:
    """One environment step.

    ``prompt_ids`` are exactly the ids that the sampler saw, ``response_ids`` exactly the ids it sampled and
    ``logprobs`` (float32) their log-probabilities under the distribution sampled from.  Never re-tokenised.
    ``kept_from`` is the first turn still in the prompt (0 when nothing was dropped).
    """

    observation: str  # what the policy saw before acting
    response: str  # decoded response
    action: str  # what was sent to the environment
    prompt_ids: list[int]
    response_ids: list[int]
    logprobs: list[float]
    entropies: list[float]
    finish: str  # stop | length | abort
    parsed: bool  # the response had the required form
    admissible: bool  # the environment listed the command
    reward: float
    kept_from: int = 0
    holding: str = ""  # what the agent held before acting, as the prompt restated it
    admissible_commands: tuple[str, ...] = ()
    progress: float | None = None  # change of the oracle's remaining distance, where an oracle was asked


@dataclass
class Trajectory:
    """One finished episode.  ``id`` is ``u{update}/{task}/n{n}``, unique in a run.

    ``first_observation`` is the text after reset, ``goal`` the task sentence.  ``returned`` is R(tau).
    ``final_observation`` answers the last action.  ``truncated``: the step limit (or a cut response) ended it.
    """

    id: str
    task_id: str
    task_type: str
    goal: str
    update: int
    n: int
    seed: int
    steps: list[Step] = field(default_factory=list)
    final_observation: str = ""
    returned: float = 0.0
    success: bool = False
    truncated: bool = False
    infra_failure: str | None = None
    skill: "Skill | None" = None
    prompt_skill: str = ""  # skill text that stood in the rollout prompt (skill-grpo); empty otherwise


@dataclass
class Skill:
    """A hindsight skill and its verdict.  ``text`` is empty where ``accepted`` is False and nothing was parseable."""

    id: str
    trajectory_id: str
    text: str
    accepted: bool
    reason: str  # "ok", or why it was rejected
    analyzer: str  # own | scripted | openai:<model> | static | shuffled:<trajectory id>
    snapshot: int  # update whose weights wrote it; -1 where no policy did
    tokens: int
    raw: str = ""
    steps: list["StepSkill"] = field(default_factory=list)  # of its critical steps (objective.critical_steps)
    contrast: "Skill | None" = None  # of a group mate, for the gate's baseline (objective.baseline=context)
    others: list["Skill"] = field(default_factory=list)  # further ones that a teacher reads apart (objective.average_skills)


@dataclass
class StepSkill:
    """Advice for one critical step of a trajectory (0-based); it replaces the episode's skill there where accepted."""

    step: int
    text: str
    accepted: bool
    reason: str
