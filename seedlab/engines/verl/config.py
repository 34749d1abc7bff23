"""From our configuration to verl's: hydra's composition of `ppo_trainer` with our values, checked against the version.

A pure function of the configuration: nothing is started, no GPU and no model is looked for.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seedlab.config.schema import Config
from seedlab.engines.verl import require
from seedlab.engines.verl.names import AGENT, PACKAGE, TRAINER, on_cpu, rollout_name
from seedlab.errors import ConfigError, UserError

VERSION = "0.9.1"
PLACEHOLDER = "RUN"  # stands for the run folder where a configuration is only looked at


def compose(cfg: Config, *, run: str | Path = PLACEHOLDER, model: str | Path | None = None) -> DictConfig:
    """verl's whole configuration for `cfg`.

    `run` is the run folder, `model` the folder with the weights that training starts from (default: `model.path`).
    Raises UserError where verl is absent or another version, ConfigError where `cfg` asks for what this engine cannot
    do, where verl does not know a key, or where its own validation refuses a value.
    """
    require()
    found = version("verl")
    if found != VERSION:
        raise UserError(f"verl {found} is installed; engine=verl is written for verl {VERSION} (see environment.yml)")
    refuse_unsupported(cfg)
    overrides = settings(cfg, Path(run), str(model if model is not None else cfg.model.path))
    composed = _compose(overrides)
    _validate(composed)
    return composed


def refuse_unsupported(cfg: Config) -> None:
    """ConfigError naming what engine=verl does not offer, and what to do."""
    objective = cfg.objective
    refused = [
        (cfg.model.lora_rank > 0, "model.lora_rank", "it trains all weights; set model.lora_rank=0, or engine=local"),
        (cfg.model.gguf_file is not None, "model.gguf_file", "give a folder in Hugging Face's own format"),
        (objective.refresh_every > 1, "objective.refresh_every", "its rollout servers hold the live weights alone; set it to 1, or engine=local"),
        (objective.analyzer_snapshot != "synchronised", "objective.analyzer_snapshot", "its rollout servers hold the live weights alone; set it to synchronised, or engine=local"),
        (on_cpu(cfg) and cfg.cluster.tensor_parallel > 1, "cluster.tensor_parallel", "on a CPU every rank has a rollout server of its own; set it to 1"),
    ]  # fmt: skip
    for wrong, key, advice in refused:
        if wrong:
            raise ConfigError(f"engine=verl does not offer {key}: {advice}")
    rows = cfg.stage2.minibatch_rows
    if rows is not None and rows < cfg.cluster.world_size:
        raise ConfigError(f"stage2.minibatch_rows={rows} is below the {cfg.cluster.world_size} ranks of cluster.nodes x cluster.gpus; every rank needs a row")


def settings(cfg: Config, run: Path, model: str) -> dict[str, object]:
    """Every key of verl's configuration that matters here, set on purpose; `+` marks keys that only its classes know."""
    cluster, stage2, cpu = cfg.cluster, cfg.stage2, on_cpu(cfg)
    kl = cfg.objective.kl_coef != 0 and cfg.objective.reference == "initial"
    number = "float32" if cfg.model.dtype == "float32" else "bfloat16"
    short = {"float32": "fp32", "bfloat16": "bf16"}[number]
    precision = {"param_dtype": short, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    fsdp = {
        "strategy": "fsdp2", "model_dtype": "fp32", "dtype": number, "+mixed_precision": precision, "fsdp_size": -1,
        "reshard_after_forward": True, "use_torch_compile": False, "ulysses_sequence_parallel_size": 1,
        "use_no_sync_for_gradient_accumulation": False, "seed": cfg.seed,
    }  # fmt: skip
    actor, ref, rollout, hf = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "rollout", "model"))
    out: dict[str, object] = {
        # the model; attention is transformers' own, so that flash-attn stays optional
        f"{hf}.path": model,
        f"{hf}.external_lib": f"{PACKAGE}.engine",
        f"+{hf}.override_config.attn_implementation": cfg.model.attention,
        f"{hf}.enable_gradient_checkpointing": cfg.model.gradient_checkpointing,
        f"{hf}.use_remove_padding": False,  # packed rows need flash-attn's kernels to be worth their masks
        f"{hf}.use_fused_kernels": False,  # our engine never makes logits of whole sequences
        f"{hf}.lora_rank": 0,
        # the actor
        f"{actor}.strategy": "fsdp2",
        f"{actor}.use_dynamic_bsz": True,
        f"{actor}.ppo_max_token_len_per_gpu": stage2.micro_batch_tokens,
        f"{actor}.ppo_mini_batch_size": 1,  # the driver sends one minibatch at a time
        f"{actor}.ppo_epochs": 1,
        f"{actor}.shuffle": False,
        f"{actor}.grad_clip": stage2.grad_clip,
        f"{actor}.use_kl_loss": kl,  # what verl goes by to load a reference; the term itself is our objective's
        f"{actor}.kl_loss_coef": cfg.objective.kl_coef,
        f"{actor}.use_torch_compile": False,
        f"{actor}.optim.lr": stage2.learning_rate,
        f"{actor}.optim.weight_decay": stage2.weight_decay,
        f"{actor}.optim.betas": list(stage2.betas),
        f"{actor}.optim.clip_grad": stage2.grad_clip,
        f"{actor}.optim.lr_scheduler_type": "constant",
        f"{actor}.optim.lr_warmup_steps_ratio": 0.0,
        f"{actor}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        f"{actor}.checkpoint.load_contents": ["model", "optimizer", "extra"],
        f"{actor}.fsdp_config.param_offload": cluster.offload_parameters and not cpu,
        f"{actor}.fsdp_config.optimizer_offload": cluster.offload_optimizer and not cpu,
        **{_inside(f"{actor}.fsdp_config", key): value for key, value in fsdp.items()},
        # the reference
        f"{ref}.strategy": "fsdp2",
        f"{ref}.use_torch_compile": False,
        f"{ref}.log_prob_use_dynamic_bsz": True,
        f"{ref}.log_prob_max_token_len_per_gpu": stage2.micro_batch_tokens,
        f"{ref}.fsdp_config.param_offload": cluster.offload_reference and not cpu,
        **{_inside(f"{ref}.fsdp_config", key): value for key, value in fsdp.items()},
        # rollout servers
        f"{rollout}.name": rollout_name(cfg),
        f"{rollout}.mode": "async",
        f"{rollout}.n": 1,  # a row is an episode; groups are ours
        f"{rollout}.temperature": cfg.rollout.temperature,
        f"{rollout}.top_p": 1.0,
        f"{rollout}.top_k": -1,
        f"{rollout}.do_sample": True,
        f"{rollout}.prompt_length": cfg.rollout.max_prompt_tokens,
        f"{rollout}.response_length": cfg.rollout.max_response_tokens,
        f"{rollout}.max_model_len": cfg.model.context,
        f"{rollout}.dtype": number,
        f"{rollout}.load_format": "dummy",  # the actor's weights come before the first request
        f"{rollout}.calculate_log_probs": True,
        f"{rollout}.logprobs_mode": "processed_logprobs",  # those of the distribution sampled from
        f"{rollout}.tensor_model_parallel_size": cluster.tensor_parallel,
        f"{rollout}.data_parallel_size": 1,
        f"{rollout}.pipeline_model_parallel_size": 1,
        f"{rollout}.gpu_memory_utilization": cluster.gpu_memory_utilization,
        f"{rollout}.free_cache_engine": cluster.sleep and not cpu,
        f"{rollout}.enforce_eager": cluster.enforce_eager,
        f"{rollout}.max_num_seqs": cluster.max_sequences,
        f"{rollout}.max_num_batched_tokens": cluster.max_prefill_tokens,
        f"{rollout}.enable_chunked_prefill": True,
        f"{rollout}.enable_prefix_caching": True,
        f"{rollout}.seed": cfg.seed,
        f"{rollout}.log_prob_use_dynamic_bsz": True,
        f"{rollout}.log_prob_max_token_len_per_gpu": stage2.micro_batch_tokens,
        f"{rollout}.checkpoint_engine.backend": "naive",
        f"{rollout}.agent.num_workers": cluster.workers,
        f"{rollout}.agent.default_agent_loop": AGENT,
        f"{rollout}.agent.agent_loop_config_path": str(run / "verl" / "agent_loop.yaml"),
        # the trainer
        "trainer.use_v1": True,
        "trainer.v1.trainer_mode": TRAINER,
        "trainer.nnodes": cluster.nodes,
        "trainer.n_gpus_per_node": cluster.gpus,
        "trainer.device": cfg.model.device,
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": max(1, stage2.updates),
        "trainer.logger": ["console"],
        "trainer.project_name": "seedlab",
        "trainer.experiment_name": run.name,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,  # our run folder's checkpoints instead
        "trainer.resume_mode": "disable",
        "trainer.default_local_dir": str(run / "verl" / "checkpoints"),
        # what verl would do by itself and we do
        "algorithm.adv_estimator": "grpo",  # no critic; advantages are seedlab.objective's
        "algorithm.use_kl_in_reward": False,
        "critic.enable": False,
        "reward.num_workers": 0,  # rewards come from the environment
        "reward.reward_model.enable": False,
        "data.train_batch_size": stage2.tasks_per_update * stage2.group_size,
        "data.max_prompt_length": cfg.rollout.max_prompt_tokens,
        "data.max_response_length": cfg.rollout.max_response_tokens,
        "data.train_files": "none",
        "data.val_files": "none",
        "data.dataloader_num_workers": 0,
        "transfer_queue.enable": True,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1 if cpu else 8,
        "transfer_queue.backend.SimpleStorage.total_storage_size": 1_000_000,
    }  # fmt: skip
    return out


def _inside(section: str, key: str) -> str:
    return f"+{section}.{key[1:]}" if key.startswith("+") else f"{section}.{key}"


def _compose(overrides: dict[str, object]) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_module
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    GlobalHydra.instance().clear()
    with initialize_config_module(config_module="verl.trainer.config", version_base=None):
        # the rollout's and the actor's mandatory values have to stand before interpolations are read
        base = hydra_compose(config_name="ppo_trainer", overrides=["model_engine=dp"])
    for key, value in overrides.items():
        name = key.removeprefix("+")
        parent, _, leaf = name.rpartition(".")
        try:
            section = OmegaConf.select(base, parent, throw_on_missing=False)
        except (OmegaConfBaseException, HydraException) as error:
            raise ConfigError(f"verl {VERSION} has no section {parent!r}: {error}") from error
        if section is None or (not key.startswith("+") and leaf not in list(section.keys())):
            raise ConfigError(f"verl {VERSION} does not know the key {name!r}; this seedlab is written for that version")
        OmegaConf.update(base, name, value, merge=False, force_add=key.startswith("+"))
    return base


def _validate(composed: DictConfig) -> None:
    """verl's own checks: its configuration classes, and `validate_config`."""
    from verl.trainer.ppo.utils import need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    try:
        OmegaConf.to_container(composed, resolve=True, throw_on_missing=False)
        for part in ("actor", "rollout"):
            omega_conf_to_dataclass(composed.actor_rollout_ref[part])
        validate_config(composed, use_reference_policy=need_reference_policy(composed), use_critic=False)
    except Exception as error:  # assertions, ValueErrors and hydra's own, all about a value in `composed`
        raise ConfigError(f"verl {VERSION} refuses this configuration: {str(error).splitlines()[0]}") from error
