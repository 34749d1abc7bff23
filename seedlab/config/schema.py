"""The resolved configuration of a run: frozen, typed, without torch.

Every setting that changes a result is a field here.  A preset is a plain
dictionary in :mod:`seedlab.config.presets`; a method is a bundle of switches in
:mod:`seedlab.methods`; both end up in one :class:`Config`, whose JSON form goes
into the run folder and whose hash names a cell of a comparison.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """Base of every section: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Section):
    """Which policy is trained, and how it is held in memory."""

    path: str = Field("tiny", description="`tiny`, a Hugging Face folder, or a hub id")
    revision: str | None = Field(None, description="hub revision; recorded in the manifest")
    gguf_file: str | None = Field(None, description="file name inside `path` when the weights are GGUF")
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = Field("cpu", description="`cpu` or `cuda`")
    attention: Literal["sdpa", "eager"] = "sdpa"
    gradient_checkpointing: bool = False
    lora_rank: int = Field(0, ge=0, description="0 trains all weights")
    lora_alpha: int = Field(32, ge=1)
    context: int = Field(1024, gt=0, description="tokens of one sequence, prompt and responses and skill")
    enable_thinking: bool | None = Field(None, description="passed to the chat template where it is not None")


class TinyConfig(Section):
    """The from-scratch policy of the embedded default and its pretraining."""

    hidden: int = 96
    layers: int = 3
    heads: int = 3
    kv_heads: int = 1
    intermediate: int = 256
    init_std: float = 0.1
    documents: int = Field(9000, gt=0, description="scripted demonstrations")
    skill_fraction: float = Field(0.35, ge=0, le=1, description="share of demonstrations that carry a skill")
    observation_weight: float = Field(0.1, ge=0, description="loss weight of tokens that are not actions")
    expert_noise: tuple[float, float] = Field((0.05, 0.6), description="share of random actions, first and last document")
    learning_rate: float = 3e-3
    batch_tokens: int = 8192
    seed: int = 0


class EnvConfig(Section):
    """The environment, its tasks and how a history becomes a prompt."""

    name: str = Field("household", description="an environment family of seedlab.envs")
    data: str | None = Field(None, description="folder of official games (ALFWORLD_DATA layout); None means generated rooms")
    max_steps: int = Field(15, gt=0)
    layout: Literal["step", "conversation"] = "conversation"
    history_window: int | None = Field(None, description="(observation, action) pairs kept in the prompt; None keeps all that fit")
    prompt: Literal["compact", "instruct"] = Field("compact", description="`instruct` asks for think and action tags")
    show_admissible: bool = Field(False, description="list the admissible commands in each prompt")
    restate: bool = Field(True, description="repeat goal and inventory in every observation (compact prompt)")
    success_reward: float = Field(1.0, gt=0, description="return of a successful episode")
    receptacles: tuple[int, int] = Field((6, 9), description="generated rooms: least and most receptacles")
    distractors: tuple[int, int] = Field((3, 5), description="generated rooms: least and most other objects")
    panel_seed: int = 0
    panel_sizes: dict[str, int] = Field(
        default_factory=lambda: {"stage1": 180, "train": 600, "dev": 96, "seen": 96, "unseen": 96}
    )
    panel_limits: dict[str, int] = Field(default_factory=dict, description="use only the first k ids of a panel")
    train_fraction: float = Field(1.0, gt=0, le=1, description="share of the train panel that is used")


class RolloutConfig(Section):
    temperature: float = Field(1.0, gt=0)
    top_p: float = 1.0
    top_k: int = 0
    max_response_tokens: int = Field(12, gt=0)
    max_prompt_tokens: int = Field(768, gt=0)


class AnalyzerConfig(Section):
    """Who writes hindsight skills, in which contract, and what makes one usable."""

    contract: Literal["marker", "json"] = Field("marker", description="JSON for instruct models, marker text for the tiny policy")
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(48, gt=0)
    min_words: int = Field(5, ge=0, description="a shorter skill is unusable")
    max_words: int = Field(200, gt=0)
    max_copied_fraction: float = Field(0.9, ge=0, le=1, description="share of a skill's 8-word windows found in the transcript above which it counts as a copy")
    drop_unusable: bool = Field(True, description="False keeps OPD on trajectories without a usable skill, as the paper's algorithm reads")
    max_prompt_tokens: int = Field(960, gt=0)


class ExternalAnalyzerConfig(Section):
    """Stage 1's labeller: an OpenAI-compatible endpoint, or the scripted analyzer of the environment."""

    kind: Literal["scripted", "openai"] = "scripted"
    base_url: str = "https://api.openai.com/v1"
    model: str = "glm-5.2"
    api_key_env: str = Field("OPENAI_API_KEY", description="name of the environment variable with the key; the key is never written")
    temperature: float = 0.0
    max_tokens: int = 4096
    concurrency: int = Field(8, gt=0)
    retries: int = Field(6, ge=0)
    timeout_s: float = 120.0
    requests_per_minute: int | None = None
    price_per_million_prompt: float = 0.0
    price_per_million_completion: float = 0.0


class Stage1Config(Section):
    """Hindsight-skill SFT (paper section 2)."""

    enabled: bool = True
    tasks: int = Field(180, gt=0)
    rollouts_per_task: int = Field(8, gt=0)
    rollout_temperature: float = Field(1.0, gt=0)
    epochs: int = Field(3, gt=0)
    learning_rate: float = 1.5e-3
    min_learning_rate_ratio: float = 0.1
    batch_size: int = Field(32, gt=0, description="sequences per optimizer step")
    warmup_ratio: float = 0.1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.95)
    grad_clip: float = 1.0
    held_out: float = Field(0.1, ge=0, lt=1)
    transcript_weight: float = Field(0.0, ge=0, description="loss weight of the transcript's own action tokens; 0 in the paper")
    replay_ratio: float = Field(0.0, ge=0, description="replay documents per trajectory; 0 in the paper")
    replay_skill_fraction: float = Field(0.7, ge=0, le=1)


class ObjectiveConfig(Section):
    """`rl_coef L_rl + opd_coef L_opd + kl_coef KL - entropy_coef H` with its switches."""

    rl_coef: float = 1.0
    opd_coef: float = Field(0.01, description="lambda_opd")
    beta: float = Field(5.0, description="beta_opd of the gate sigma(beta * delta)")
    kl_coef: float = Field(0.01, description="beta_KL")
    entropy_coef: float = 0.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = Field(3.0, description="lower bound c of the dual clip for negative advantages; None is off")
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    reference: Literal["initial", "old", "none"] = Field("initial", description="pi_ref: the checkpoint Stage 2 starts from, theta_old, or no KL")
    advantage: Literal["grpo", "rloo"] = "grpo"
    advantage_scale: Literal["std", "mean"] = Field("std", description="`mean` only subtracts the group mean")
    advantage_ddof: Literal[0, 1] = 0
    advantage_eps: float = 1e-6
    group_statistics: Literal["trajectories", "steps"] = "trajectories"
    group_of_one: Literal["zero", "identity"] = Field("zero", description="`identity` is mean 0, std 1, as in the authors' code")
    invalid_penalty: float = Field(0.0, ge=0)
    aggregation: Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "fixed"] = "token-mean"
    fixed_denominator: float = Field(4096.0, gt=0, description="tokens; used by aggregation=fixed only")
    teacher: Literal["live", "once"] = Field("live", description="score the skill context under live theta, or once per update under theta_old")
    skill_from: Literal["own", "static", "scripted", "shuffled", "empty"] = "own"
    analyzer_snapshot: Literal["synchronised", "initial"] = "synchronised"
    refresh_every: int = Field(1, ge=1, description="updates between refreshes of the analyzer snapshot")
    where: Literal["all", "tied", "successes", "failures"] = "all"

    @model_validator(mode="after")
    def _k1_has_no_gradient(self):
        if self.kl_estimator == "k1" and self.kl_coef and self.reference != "none":
            raise ValueError(
                "objective.kl_estimator=k1 has zero expected gradient inside the loss; use k3 (the default) or k2, "
                "or set objective.kl_coef=0"
            )
        return self


class Stage2Config(Section):
    """Self-evolving on-policy distillation (paper section 3)."""

    updates: int = Field(24, ge=0)
    tasks_per_update: int = Field(8, gt=0)
    group_size: int = Field(8, gt=0)
    minibatches: int | None = Field(2, description="optimizer steps per update; exactly one of this and minibatch_rows")
    minibatch_rows: int | None = Field(None, description="rows per minibatch: step samples or trajectories, by layout")
    micro_batch_tokens: int = Field(16384, gt=0, description="padded tokens of one forward pass; changes memory, never the gradient")
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    grad_clip: float = 1.0
    checkpoint_every: int = Field(8, gt=0)
    keep_checkpoints: int = Field(2, gt=0)
    log_gradient_terms_every: int = Field(4, ge=0, description="updates between measurements of each term's gradient norm; 0 is never")

    @model_validator(mode="after")
    def _one_minibatch_rule(self):
        if (self.minibatches is None) == (self.minibatch_rows is None):
            raise ValueError("set exactly one of stage2.minibatches and stage2.minibatch_rows")
        return self


class EvaluationConfig(Section):
    panels: tuple[str, ...] = ("seen", "unseen")
    temperature: float = Field(0.4, ge=0)
    seed: int = 1000
    batch: int = Field(96, gt=0, description="episodes played at once; never changes a result beyond floating point")
    samples_per_task: int = Field(1, gt=0)


class StoreConfig(Section):
    tokens: Literal["all", "none"] | int = Field("all", description="`all`, `none`, or k: every k updates")
    min_free_gb: float = Field(0.2, ge=0, description="refuse to save a checkpoint when less disk is free")


class Config(Section):
    """One run, fully resolved."""

    schema_version: Literal[1] = 1
    preset: str = "tiny"
    method: str = "seed"
    seed: int = 0
    engine: Literal["local", "verl"] = "local"
    initial: Literal["base", "stage1"] = Field("stage1", description="where Stage 2 starts: the base model or theta_sft")
    threads: int = Field(1, gt=0, description="torch threads of the process")
    model: ModelConfig = ModelConfig()
    tiny: TinyConfig = TinyConfig()
    env: EnvConfig = EnvConfig()
    rollout: RolloutConfig = RolloutConfig()
    analyzer: AnalyzerConfig = AnalyzerConfig()
    external: ExternalAnalyzerConfig = ExternalAnalyzerConfig()
    stage1: Stage1Config = Stage1Config()
    stage2: Stage2Config = Stage2Config()
    objective: ObjectiveConfig = ObjectiveConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    store: StoreConfig = StoreConfig()

    @model_validator(mode="after")
    def _sampler_has_exact_log_probs(self):
        if self.rollout.top_p != 1.0 or self.rollout.top_k != 0:
            raise ValueError(
                "rollout.top_p and rollout.top_k renormalise probabilities, so that ratios and gates would be wrong; "
                "training needs rollout.top_p=1.0 and rollout.top_k=0"
            )
        return self
