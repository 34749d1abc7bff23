"""The resolved configuration of a run: frozen, typed, without torch.

Every setting that changes a result is a field here.  A preset is a plain
dictionary in :mod:`seedlab.config.presets`; a method is a bundle of switches in
:mod:`seedlab.methods`; both end up in one :class:`Config`, whose JSON form goes
into the run folder and whose hash names a cell of a comparison.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from seedlab.config.bounds import contradictions
from seedlab.config.learning import ObjectiveConfig, Stage1Config, Stage2Config
from seedlab.config.section import Section


class ModelConfig(Section):
    """Which policy is trained, and how it is held in memory."""

    path: str = Field("tiny", description="`tiny`, a Hugging Face folder, or a hub id")
    revision: str | None = Field(None, description="hub revision; recorded in the manifest")
    gguf_file: str | None = Field(None, description="file name inside `path` when the weights are GGUF")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="number format of the weights in memory")
    device: str = Field("cpu", pattern=r"^(cpu|cuda(:\d+)?)$", description="`cpu`, `cuda`, or one of several GPUs such as `cuda:1`")
    attention: Literal["sdpa", "eager"] = Field("sdpa", description="attention implementation of transformers")
    gradient_checkpointing: bool = Field(False, description="recompute activations in the backward pass: less memory, more time")
    lora_rank: int = Field(0, ge=0, description="0 trains all weights")
    lora_alpha: int = Field(32, ge=1, description="scale of the LoRA update; used where lora_rank > 0")
    context: int = Field(1024, gt=0, description="tokens of one sequence, prompt and responses and skill")
    enable_thinking: bool | None = Field(None, description="passed to the chat template where it is not None")


class TinyConfig(Section):
    """The from-scratch policy of the embedded default and its pretraining."""

    hidden: int = Field(128, gt=0, description="width of the residual stream")
    layers: int = Field(3, gt=0, description="transformer blocks")
    heads: int = Field(4, gt=0, description="query heads; hidden must be divisible by it")
    kv_heads: int = Field(1, gt=0, description="key-value heads; heads must be divisible by it")
    intermediate: int = Field(320, gt=0, description="width of the feed-forward layer")
    init_std: float = Field(0.1, gt=0, description="standard deviation of the initial weights")
    documents: int = Field(4200, gt=0, description="scripted demonstrations")
    skill_fraction: float = Field(0.35, ge=0, le=1, description="share of demonstrations that carry a skill")
    observation_weight: float = Field(0.1, ge=0, description="loss weight of tokens that are not actions")
    expert_noise: tuple[float, float] = Field((0.05, 0.4), description="share of random actions, first and last document")
    learning_rate: float = Field(2.5e-3, gt=0, description="peak learning rate of the pretraining")
    batch_tokens: int = Field(2048, gt=0, description="tokens of one optimizer step of the pretraining")
    sort_window: int = Field(
        1, gt=0, description="successive demonstrations that are sorted by length before they are batched, so that little is padded; 1 keeps their order"
    )
    seed: int = Field(0, ge=0, description="seed of initial weights and demonstrations; not the seed of the run")


class EnvConfig(Section):
    """The environment, its tasks and how a history becomes a prompt."""

    name: str = Field("household", description="an environment family of seedlab.envs")
    data: str | None = Field(
        None, description="folder of official games (ALFWORLD_DATA layout), `$NAME` is read from the environment; None means generated rooms"
    )
    incomplete: bool = Field(False, description="official games: evaluate on what is there although games of an evaluation split are missing")
    backend: Literal["household", "textworld"] = Field(
        "household", description="ALFWorld's engine: our own, or the official one in a process per environment (the same answers, for comparison)"
    )
    official_timeout_s: float = Field(120.0, gt=0, description="backend=textworld: seconds that one answer may take before its process counts as hung")
    max_steps: int = Field(15, gt=0, description="environment steps after which an episode is cut")
    layout: Literal["step", "conversation"] = Field("conversation", description="one training row per step with a fresh prompt, or one multi-turn row per trajectory")
    history_window: int | None = Field(None, ge=0, description="(observation, action) pairs kept in the prompt; None keeps all that fit")
    prompt: Literal["compact", "terse", "brief", "instruct"] = Field(
        "compact", description="`terse` is `compact` without articles, commas and `and`; `brief` also without stops, colons and the line of empty hands; `instruct` asks for think and action tags"
    )
    show_admissible: bool = Field(False, description="list the admissible commands in each prompt")
    list_help: bool = Field(True, description="`help` stands among the listed commands; the public code leaves it out")
    task_line: Literal["always", "unless_stated"] = Field("always", description="instruct prompt: `unless_stated` leaves the task line out where the observation names the task, as in the public code's first step")
    history_lines: Literal["plain", "bracketed"] = Field("plain", description="instruct prompt: past turns as two lines each, or as the public code's `[Observation 1: '...', Action 1: '...']`")
    fallback_characters: int = Field(30, gt=0, description="instruct prompt: characters from the end of a response without action tags that are sent as its command (WebShop 20 in the public code)")
    restate: bool = Field(True, description="repeat goal and inventory in every observation (compact, terse and brief prompt)")
    success_reward: float = Field(1.0, gt=0, description="return of a successful episode")
    receptacles: tuple[int, int] = Field((6, 9), description="generated rooms: least and most receptacles")
    distractors: tuple[int, int] = Field((3, 5), description="generated rooms: least and most other objects")
    panel_seed: int = Field(0, ge=0, description="seed that draws the task ids of the panels")
    panel_sizes: dict[str, int] = Field(
        default_factory=lambda: {"stage1": 180, "train": 600, "dev": 96, "seen": 96, "unseen": 96},
        description="task ids of each panel; `demonstrations`, which may be left out, keeps tasks for the tiny policy's demonstrations alone",
    )
    panel_limits: dict[str, int] = Field(default_factory=dict, description="use only the first k ids of a panel")
    train_fraction: float = Field(1.0, gt=0, le=1, description="share of the train panel that is used")


class RolloutConfig(Section):
    """How training episodes are sampled."""

    temperature: float = Field(1.0, gt=0, description="sampling temperature of training rollouts; every scorer divides logits by it")
    top_p: float = Field(1.0, description="must stay 1.0: nucleus sampling renormalises probabilities")
    top_k: int = Field(0, description="must stay 0: top-k sampling renormalises probabilities")
    max_response_tokens: int = Field(12, gt=0, description="sampled tokens of one step, at most")
    max_prompt_tokens: int = Field(768, gt=0, description="tokens of a prompt, at most; the oldest whole turns are dropped to fit")
    skill: Literal["none", "library"] = Field("none", description="`library` puts the static skill of a task's type into its training prompts (skill-grpo)")


class SkillsConfig(Section):
    """The library of static skills: texts by task type, written once, for teachers (objective.skill_from=static) and prompts (rollout.skill, evaluation.skill)."""

    library: str = Field(
        "builtin", min_length=1,
        description="`builtin` (seedlab's own), `snapshot` (written once, before the first update, by the weights Stage 2 starts from), or a file: JSON lines, or one JSON object from task type to text; the run keeps a copy, which a resumed run reads",
    )
    retrieve: Literal["both", "task_type", "general"] = Field("both", description="what one prompt gets: the general skill and that of the task's type, or one of them")
    snapshot_tries: int = Field(4, ge=1, description="library=snapshot: episodes on tasks of panel `stage1` per task type; the first usable skill is kept, of a success where there is one")


class AnalyzerConfig(Section):
    """Who writes hindsight skills, in which contract, and what makes one usable."""

    contract: Literal["marker", "json"] = Field("marker", description="JSON for instruct models, marker text for the tiny policy")
    temperature: float = Field(0.0, ge=0, description="sampling temperature of skills; 0 is greedy")
    max_tokens: int = Field(48, gt=0, description="tokens of a skill, at most; one cut off there is unusable")
    min_words: int = Field(5, ge=0, description="a shorter skill is unusable")
    max_words: int = Field(200, gt=0, description="a longer skill is unusable")
    max_copied_fraction: float = Field(0.9, ge=0, le=1, description="share of a skill's 8-word windows found in the transcript above which it counts as a copy")
    drop_unusable: bool = Field(True, description="False keeps OPD on trajectories without a usable skill, as the paper's algorithm reads")
    max_prompt_tokens: int = Field(960, gt=0, description="tokens of the analyzer's prompt, at most")


class ExternalAnalyzerConfig(Section):
    """Stage 1's labeller: an OpenAI-compatible endpoint, or the scripted analyzer of the environment."""

    kind: Literal["scripted", "openai"] = Field("scripted", description="the environment's own rule-based analyzer, or an OpenAI-compatible endpoint")
    base_url: str = Field("https://api.openai.com/v1", pattern=r"^[^@]*$", description="address of the endpoint, without user name or password: it is written down")
    model: str = Field("glm-5.2", description="model name sent to the endpoint")
    api_key_env: str = Field("OPENAI_API_KEY", description="name of the environment variable with the key; the key is never written")
    temperature: float = Field(0.0, ge=0, description="sampling temperature of the labels")
    max_tokens: int = Field(4096, gt=0, description="tokens of one answer, at most")
    concurrency: int = Field(8, gt=0, description="requests in flight at once")
    retries: int = Field(6, ge=0, description="further tries after a failed request, with growing pauses")
    timeout_s: float = Field(120.0, gt=0, description="seconds that one request may take")
    requests_per_minute: int | None = Field(None, gt=0, description="rate limit that the client keeps by itself; None is no limit")
    price_per_million_prompt: float = Field(0.0, ge=0, description="price of a million prompt tokens, for the cost report")
    price_per_million_completion: float = Field(0.0, ge=0, description="price of a million answered tokens, for the cost report")


class EvaluationConfig(Section):
    """What is evaluated, and with which decoding."""

    panels: tuple[str, ...] = Field(("seen", "unseen"), description="panels evaluated once, after the last update")
    temperature: float = Field(0.4, ge=0, description="sampling temperature; 0 is greedy")
    seed: int = Field(1000, ge=0, description="seed of the sampling; the same for every arm")
    batch: int = Field(96, gt=0, description="episodes played at once; never changes a result beyond floating point")
    samples_per_task: int = Field(1, gt=0, description="episodes per task id")
    skill: Literal["none", "library"] = Field("none", description="`none` proves skills absent from every evaluation prompt; `library` puts in the static skill of the task's type and proves it present")


class StoreConfig(Section):
    """What is kept of a run."""

    tokens: Literal["all", "none"] | Annotated[int, Field(ge=1)] = Field("all", description="`all`, `none`, or k: every k updates")
    min_free_gb: float = Field(0.2, ge=0, description="refuse to save a checkpoint when less disk is free")


class ClusterConfig(Section):
    """The GPUs of engine=verl and of Stage 1 on several processes; the configuration's hash leaves it out, for it changes no result beyond floating point (but `generator`: vLLM draws other samples)."""

    nodes: int = Field(1, gt=0, le=10_000, description="machines; the world size of both stages is nodes x gpus")
    gpus: int = Field(1, gt=0, le=1024, description="GPUs, that is processes, of one machine")
    gpu_memory_gb: float = Field(80.0, gt=0, le=10_000, description="memory of one GPU in 1e9 bytes; `seedlab plan` judges by it")
    tensor_parallel: int = Field(1, gt=0, description="GPUs that one copy of vLLM spans; the world size must be divisible by it")
    gpu_memory_utilization: float = Field(0.5, gt=0, lt=1, description="share of a GPU (without one: of the machine) whose memory vLLM takes for weights and KV cache while it generates")
    sleep: bool = Field(True, description="vLLM frees its weights and KV cache while the policy is scored and updated")
    enforce_eager: bool = Field(False, description="vLLM without CUDA graphs: slower, starts sooner, less memory")
    max_sequences: int = Field(256, gt=0, description="sequences that one copy of vLLM generates at once")
    max_prefill_tokens: int = Field(16384, gt=0, description="prompt tokens that one copy of vLLM reads in one step")
    offload_parameters: bool = Field(False, description="policy weights wait in the machine's memory while vLLM generates")
    offload_optimizer: bool = Field(False, description="optimizer states wait in the machine's memory outside the update")
    offload_reference: bool = Field(True, description="the reference's weights wait in the machine's memory outside its scoring")
    max_cache_tokens: int = Field(0, ge=0, description="tokens whose keys and values this process's own generator holds at once, rows times the longest; 0 is no bound")
    generator: Literal["local", "vllm"] = Field("local", description="who samples Stage 1's rollouts and own skills, and evaluations: this process's torch, or vLLM's engine")
    sft_zero_stage: Literal[0, 1, 2, 3] = Field(0, description="Stage 1's training: 0 in this process, 1 to 3 DeepSpeed ZeRO under torchrun on all GPUs")
    sft_offload_optimizer: bool = Field(False, description="DeepSpeed keeps the optimizer's states in the machine's memory")
    sft_pack_tokens: int = Field(0, ge=0, description="tokens of one packed row of Stage 1's training; 0 packs nothing")
    sft_checkpoint_every: int = Field(50, gt=0, description="optimizer steps between checkpoints of Stage 1's training under DeepSpeed")
    start_timeout_s: float = Field(1800.0, gt=0, description="seconds until all workers and vLLM must have started; then the run fails")
    generate_timeout_s: float = Field(1800.0, gt=0, description="seconds that one generation may take; then its trajectory is an infrastructure failure")
    episode_timeout_s: float = Field(3600.0, gt=0, description="seconds that one episode may take under engine=verl; then it is an infrastructure failure, also where its environment hangs")
    max_lost_share: float = Field(0.5, ge=0, le=1, description="share of an update's trajectories lost to infrastructure above which the run stops")
    workers: int = Field(8, gt=0, description="processes that play episodes under engine=verl; never changes a result beyond floating point")
    collective_timeout_s: float = Field(1800.0, gt=0, description="seconds that processes wait for one another; then the run fails and can be resumed")

    @property
    def world_size(self) -> int:
        return self.nodes * self.gpus

    @model_validator(mode="after")
    def _whole_copies(self):
        if self.world_size % self.tensor_parallel:
            raise ValueError(
                f"cluster.tensor_parallel={self.tensor_parallel} does not divide the {self.world_size} GPUs of "
                f"cluster.nodes={self.nodes} x cluster.gpus={self.gpus}"
            )
        return self


class Config(Section):
    """One run, fully resolved."""

    schema_version: Literal[1] = Field(1, description="version of this schema; a reader refuses another")
    preset: str = Field("tiny", description="preset that the run started from")
    method: str = Field("seed", description="named method (bundle of switches) that was applied to the preset")
    seed: int = Field(0, ge=0, lt=2**63, description="seed of the run: tasks, sampling and shuffling")
    engine: Literal["local", "verl"] = Field("local", description="in-process torch, or verl on a cluster")
    initial: Literal["base", "stage1"] = Field("stage1", description="where Stage 2 starts: the base model or theta_sft")
    threads: int = Field(1, gt=0, le=1024, description="torch threads of the process")
    model: ModelConfig = ModelConfig()
    tiny: TinyConfig = TinyConfig()
    env: EnvConfig = EnvConfig()
    rollout: RolloutConfig = RolloutConfig()
    skills: SkillsConfig = SkillsConfig()
    analyzer: AnalyzerConfig = AnalyzerConfig()
    external: ExternalAnalyzerConfig = ExternalAnalyzerConfig()
    stage1: Stage1Config = Stage1Config()
    stage2: Stage2Config = Stage2Config()
    objective: ObjectiveConfig = ObjectiveConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    store: StoreConfig = StoreConfig()
    cluster: ClusterConfig = ClusterConfig()

    @property
    def uses_library(self) -> bool:
        """Whether a static skill stands in any prompt of the run."""
        return "library" in (self.rollout.skill, self.evaluation.skill) or self.objective.skill_from == "static"

    @model_validator(mode="after")
    def _evaluated_panels_exist(self):
        """Known before anything is trained: a misspelt panel would be found after the last update only."""
        sizes = self.env.panel_sizes
        for name in self.evaluation.panels:
            if name not in sizes:
                raise ValueError(f"evaluation.panels names {name!r}, which is no panel; panels: {', '.join(sizes)}")
            if sizes[name] == 0 or self.env.panel_limits.get(name, 1) < 1:
                raise ValueError(f"evaluation.panels names {name!r}, which has no tasks (env.panel_sizes, env.panel_limits)")
        if len(set(self.evaluation.panels)) < len(self.evaluation.panels):
            raise ValueError("evaluation.panels names a panel twice")
        return self

    @model_validator(mode="after")
    def _fields_agree(self):
        faults = contradictions(self)
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @model_validator(mode="after")
    def _sampler_has_exact_log_probs(self):
        if self.rollout.top_p != 1.0 or self.rollout.top_k != 0:
            raise ValueError(
                "rollout.top_p and rollout.top_k renormalise probabilities, so that ratios and gates would be wrong; "
                "training needs rollout.top_p=1.0 and rollout.top_k=0"
            )
        return self
