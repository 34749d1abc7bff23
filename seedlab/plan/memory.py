"""Memory of one GPU, phase by phase and part by part, each part with its arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from seedlab.config.schema import Config
from seedlab.plan.shapes import ModelShape

GB = 1e9
# CUDA context, NCCL's buffers, workspaces and the allocator's gaps; a reserve, not a measurement.
RESERVE = 4e9
# seedlab.policy.score.LOGIT_BUDGET: float32 logits of the chunked scorer, two chunks in the backward pass
CHUNKED_LOGITS = 2 * 32 * 1024 * 1024 * 4


@dataclass(frozen=True)
class Part:
    """`bytes` of one GPU; `how` is the arithmetic as a person would check it."""

    name: str
    bytes: float
    how: str


@dataclass(frozen=True)
class PhaseMemory:
    """What is on one GPU at the same time in a phase."""

    name: str
    parts: tuple[Part, ...]

    @property
    def total(self) -> float:
        return sum(part.bytes for part in self.parts)


def layer_elements(shape: ModelShape) -> int:
    """Elements that one layer keeps per token for its own backward pass (attention's matrix is never stored)."""
    return 4 * shape.hidden_size + 2 * shape.query_width + 2 * shape.kv_width + 4 * shape.intermediate_size


def activations(shape: ModelShape, tokens: int, *, checkpointing: bool, width: int = 2) -> Part:
    """Of a forward pass that will be differentiated; with checkpointing one input per layer and one layer's inside."""
    inside, layers = layer_elements(shape), shape.num_hidden_layers
    if checkpointing:
        elements = layers * shape.hidden_size + inside
        how = f"{tokens:,} tokens x ({layers} layers x {shape.hidden_size} + {inside:,}) x {width} bytes"
    else:
        elements = layers * inside
        how = f"{tokens:,} tokens x {layers} layers x {inside:,} x {width} bytes"
    return Part("activations", tokens * elements * width, how)


def logits(shape: ModelShape, tokens: int) -> Part:
    """Every scorer and every loss of this package goes over the vocabulary in chunks, under every engine."""
    # a small model's whole batch may be less than the budget
    size = min(CHUNKED_LOGITS, 2 * tokens * shape.vocab_size * 4)
    whole = tokens * shape.vocab_size * 4 / GB
    return Part("vocabulary logits", size, f"2 chunks of at most 32 Mi logits x 4 bytes (the whole batch's would be {whole:,.1f} GB)")


def stage1_training(cfg: Config, shape: ModelShape) -> PhaseMemory:
    """SFT: in one process with float32 weights, or DeepSpeed ZeRO over `cluster.gpus`."""
    p, zero, gpus = shape.parameters, cfg.cluster.sft_zero_stage, cfg.cluster.gpus
    bf16 = cfg.model.dtype == "bfloat16"
    if zero == 0:
        parts = [
            _share("parameters", 4, p, 1), *_autocast(cfg, p), _share("gradients", 4, p, 1), _share("optimizer (Adam)", 8, p, 1),
        ]
    else:
        width = 2 if bf16 else 4
        offload = cfg.cluster.sft_offload_optimizer
        optimizer = Part("optimizer (Adam, float32 masters)", 0, "in the machine's memory: cluster.sft_offload_optimizer") if offload else (
            _share("optimizer (Adam, float32 masters)", 12, p, gpus)
        )
        parts = [
            _share("parameters", width, p, gpus if zero == 3 else 1),
            _share("gradients", width, p, gpus if zero >= 2 else 1), optimizer,
        ]
    longest = max(cfg.model.context, cfg.cluster.sft_pack_tokens)
    tokens = max(longest, cfg.stage2.micro_batch_tokens)
    parts += [
        activations(shape, tokens, checkpointing=cfg.model.gradient_checkpointing, width=2 if bf16 else 4),
        logits(shape, tokens),
    ]
    if cfg.cluster.sft_pack_tokens:
        line = cfg.cluster.sft_pack_tokens
        lines = max(1, cfg.stage2.micro_batch_tokens // line)
        parts.append(Part("mask of packed lines", lines * line**2, f"{lines} x {line:,} x {line:,} x 1 byte"))
    return PhaseMemory("stage 1: SFT", _with_reserve(cfg, parts))


def stage1_sampling(cfg: Config, shape: ModelShape) -> PhaseMemory:
    """Rollouts and own skills by vLLM beside this process's weights, on the first GPU; the others have vLLM alone."""
    p = shape.parameters
    parts = [*_vllm(cfg, shape), Part("this process's weights", 4 * p, f"4 bytes x {p:,} (held-out loss before and after)")]
    return PhaseMemory("stage 1: sampling", _with_reserve(cfg, parts))


def _vllm(cfg: Config, shape: ModelShape) -> list[Part]:
    cluster, p = cfg.cluster, shape.parameters
    share = cluster.gpu_memory_utilization * cluster.gpu_memory_gb * GB
    weights = 2 * p / cluster.tensor_parallel
    return [
        Part("vLLM: weights", weights, f"2 bytes x {p:,} / {cluster.tensor_parallel} (tensor parallel)"),
        Part("vLLM: KV cache and work space", max(0.0, share - weights), f"{cluster.gpu_memory_utilization} x {cluster.gpu_memory_gb:g} GB less the weights; "
             f"room for {kv_tokens(cfg, shape):,} tokens at {shape.kv_bytes_per_token:,} bytes"),
    ]  # fmt: skip


def generation(cfg: Config, shape: ModelShape) -> PhaseMemory:
    """Rollouts and skills: vLLM beside the policy's shards, or this process's own generator."""
    if cfg.engine == "verl":
        cluster, p, world = cfg.cluster, shape.parameters, cfg.cluster.world_size
        parts = [
            *_vllm(cfg, shape),
            _resident(4, p, world, "parameters", cluster.offload_parameters, "cluster.offload_parameters"),
            _resident(8, p, world, "optimizer (Adam)", cluster.offload_optimizer, "cluster.offload_optimizer"),
        ]
        return PhaseMemory("stage 2: generation", _with_reserve(cfg, parts))
    rows = min(256, cfg.stage2.tasks_per_update * cfg.stage2.group_size)
    longest = max(
        cfg.rollout.max_prompt_tokens + cfg.rollout.max_response_tokens, cfg.analyzer.max_prompt_tokens + cfg.analyzer.max_tokens
    )
    tokens = rows * longest
    how = f"{rows} rows x {longest:,} tokens"
    if cfg.cluster.max_cache_tokens:
        tokens = min(tokens, max(longest, cfg.cluster.max_cache_tokens))
        how = f"at most {tokens:,} tokens"
    each = shape.kv_bytes_per_token * (1 if cfg.model.dtype == "bfloat16" else 2)
    parts = [*_local_weights(cfg, shape), Part("KV cache", tokens * each, f"{how} x {each:,} bytes, at the limits")]
    return PhaseMemory("stage 2: generation", _with_reserve(cfg, parts))


def kv_tokens(cfg: Config, shape: ModelShape) -> int:
    """Tokens whose keys and values one copy of vLLM can hold (a tenth of its share is left for its own work)."""
    cluster = cfg.cluster
    share = 0.9 * cluster.gpu_memory_utilization * cluster.gpu_memory_gb * GB * cluster.tensor_parallel
    return max(0, int((share - 2 * shape.parameters) / shape.kv_bytes_per_token))


def update(cfg: Config, shape: ModelShape) -> PhaseMemory:
    """The policy update with the teacher's and the reference's scoring in its minibatches."""
    tokens = max(cfg.stage2.micro_batch_tokens, _longest_row(cfg))
    verl = cfg.engine == "verl"
    if verl:
        cluster, p, world = cfg.cluster, shape.parameters, cfg.cluster.world_size
        largest = max(shape.layer_parameters, shape.embedding)
        parts = [
            _share("parameters", 4, p, world), _share("gradients", 4, p, world), _share("optimizer (Adam)", 8, p, world),
            Part("gathered layers", 2 * 2 * largest, f"2 layers x 2 bytes x {largest:,} (the largest, with the next one under way)"),
        ]
        if _uses_reference(cfg):
            parts.append(_resident(4, p, world, "reference", cluster.offload_reference, "cluster.offload_reference"))
        if not cluster.sleep:
            share = cluster.gpu_memory_utilization * cluster.gpu_memory_gb * GB
            parts.append(Part("vLLM (awake)", share, f"{cluster.gpu_memory_utilization} x {cluster.gpu_memory_gb:g} GB: cluster.sleep=false"))
    else:
        parts = _local_weights(cfg, shape)
        trained = _trained(cfg, shape)
        parts.append(Part("gradients", 4 * trained, f"4 bytes x {trained:,}"))
    width = 2 if cfg.model.dtype == "bfloat16" else 4
    parts += [
        activations(shape, tokens, checkpointing=cfg.model.gradient_checkpointing, width=width),
        logits(shape, tokens),
    ]
    return PhaseMemory("stage 2: update", _with_reserve(cfg, parts))


def phases(cfg: Config, shape: ModelShape) -> list[PhaseMemory]:
    found = []
    if cfg.initial == "stage1" and cfg.stage1.enabled:
        found = [stage1_sampling(cfg, shape)] if cfg.cluster.generator == "vllm" and cfg.model.device == "cuda" else []
        found.append(stage1_training(cfg, shape))
    return found + [generation(cfg, shape), update(cfg, shape)]


def host_bytes(cfg: Config, shape: ModelShape) -> list[Part]:
    """Memory of the machine itself that the settings ask for, in all."""
    cluster, p = cfg.cluster, shape.parameters
    parts = []
    if cluster.sft_zero_stage:
        parts.append(Part("stage 1: weights as they are read", 4 * p * cluster.gpus, f"4 bytes x {p:,} x {cluster.gpus} processes, before DeepSpeed takes them"))
    for name, wanted, width in (
        ("reference", cluster.offload_reference and _uses_reference(cfg), 4), ("policy's parameters", cluster.offload_parameters, 4),
        ("optimizer (Adam)", cluster.offload_optimizer, 8),
    ):
        if cfg.engine == "verl" and wanted:
            parts.append(Part(name, width * p / cluster.nodes, f"{width} bytes x {p:,} / {cluster.nodes} machines"))
    return parts


def _uses_reference(cfg: Config) -> bool:
    return cfg.objective.kl_coef != 0 and cfg.objective.reference == "initial"


def _longest_row(cfg: Config) -> int:
    """Tokens of the longest row that is scored: with the skill in the teacher's context, by layout."""
    skill = cfg.analyzer.max_tokens if cfg.objective.uses_teacher else 0
    own = cfg.rollout.max_prompt_tokens + cfg.rollout.max_response_tokens
    return min(cfg.model.context, own + skill)


def _trained(cfg: Config, shape: ModelShape) -> int:
    if not cfg.model.lora_rank:
        return shape.parameters
    h, i, q, kv = shape.hidden_size, shape.intermediate_size, shape.query_width, shape.kv_width
    # rank x (inputs + outputs) of q, k, v, o, gate, up and down
    widths = (h + q) + 2 * (h + kv) + (q + h) + 3 * (h + i)
    return shape.num_hidden_layers * cfg.model.lora_rank * widths


def _local_weights(cfg: Config, shape: ModelShape) -> list[Part]:
    p, trained = shape.parameters, _trained(cfg, shape)
    adapters = trained if cfg.model.lora_rank else 0
    parts = [Part("parameters", 4 * (p + adapters), f"4 bytes x {p + adapters:,} (float32)"), *_autocast(cfg, p)]
    parts.append(Part("optimizer (Adam)", 8 * trained, f"8 bytes x {trained:,}"))
    if _uses_reference(cfg):
        parts.append(_share("reference", 2 if cfg.model.dtype == "bfloat16" else 4, p, 1))
    return parts


def _autocast(cfg: Config, parameters: int) -> list[Part]:
    if cfg.model.dtype != "bfloat16":
        return []
    return [Part("autocast's copies", 2 * parameters, f"2 bytes x {parameters:,} (bf16, until a forward pass ends)")]


def _share(name: str, width: int, parameters: int, processes: int) -> Part:
    over = f" / {processes}" if processes > 1 else ""
    return Part(name, width * parameters / processes, f"{width} bytes x {parameters:,}{over}")


def _resident(width: int, parameters: int, world: int, name: str, away: bool, key: str) -> Part:
    return Part(name, 0.0, f"in the machine's memory: {key}") if away else _share(name, width, parameters, world)


def _with_reserve(cfg: Config, parts: list[Part]) -> tuple[Part, ...]:
    if cfg.model.device != "cuda":
        return tuple(parts)
    return (*parts, Part("reserve", RESERVE, "CUDA context, NCCL, work spaces, gaps: set aside, not computed"))
