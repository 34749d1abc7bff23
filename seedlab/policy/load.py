"""A policy from the tiny recipe, a Hugging Face folder or a hub id: the same object either way."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import try_to_load_from_cache
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast
from transformers.utils import logging as hf_logging

from seedlab.config.schema import ModelConfig
from seedlab.errors import UserError
from seedlab.policy.chat import ChatRenderer
from seedlab.policy.lora import has_lora, merged_state
from seedlab.policy.score import ScoreRow, forward_rows

hf_logging.disable_progress_bar()  # ours says more, and a log stays readable

TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass
class Policy:
    """Weights, tokenizer and chat rendering that belong together."""

    model: torch.nn.Module
    tokenizer: object
    chat: ChatRenderer
    compute_dtype: torch.dtype = torch.float32
    source: str = ""  # folder or hub id that the weights were read from
    commit: str | None = None  # the hub's commit of the weights, where they came from a hub

    def compute(self):
        """Context in which forward passes run: bf16 autocast over float32 master weights where configured.

        A learning rate of 1e-6 is below the resolution of bf16 weights, so the weights that are trained stay float32.
        """
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16, enabled=self.compute_dtype == torch.bfloat16)

    @property
    def pad_id(self) -> int:
        return self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else 0

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    def save(self, folder: Path) -> None:
        """A plain Hugging Face folder; LoRA weights are merged into it."""
        merged = {"state_dict": merged_state(self.model)} if has_lora(self.model) else {}
        self.model.save_pretrained(folder, safe_serialization=True, **merged)
        self.tokenizer.save_pretrained(folder)


def load_policy(path: str | Path, cfg: ModelConfig, *, trainable: bool = False) -> Policy:
    """Load weights and tokenizer from a folder or hub id.

    Raises UserError where the folder is damaged, lacks a chat template, or computes logits in a way that chunked
    scoring would not reproduce (scaled or capped logits).
    """
    local = Path(path)
    options = {"revision": cfg.revision} if cfg.revision and not local.exists() else {}
    if cfg.gguf_file:
        options["gguf_file"] = cfg.gguf_file
    if not cfg.gguf_file:
        _refuse_no_tokenizer(local)
    device = torch.device(cfg.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("model.device=cuda, but torch sees no CUDA device; set model.device=cpu or run `seedlab doctor`")
    try:
        tokenizer = _tokenizer_class(local).from_pretrained(path, **options)
        model, found = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32 if trainable else DTYPES[cfg.dtype], attn_implementation=cfg.attention,
            output_loading_info=True, **options,
        )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"cannot load a policy from {path}: {error}\n"
            "Give a folder with config.json, weights and tokenizer files, or a hub id that this machine can reach."
        ) from error
    if found["missing_keys"]:
        # transformers only warns, and draws the missing ones at random.
        names = ", ".join(sorted(found["missing_keys"])[:5])
        raise UserError(f"the weights in {path} lack {len(found['missing_keys'])} parameters of {type(model).__name__}: {names}")
    model.to(device).eval()
    policy = wrap(model, tokenizer, cfg, trainable=trainable, source=str(path))
    policy.source, policy.commit = str(path), hub_commit(str(path), cfg.revision)
    return policy


def load_chat(path: str | Path, cfg: ModelConfig) -> ChatRenderer:
    """Chat rendering of a policy folder, equal to that of `load_policy`, without its weights.

    Raises UserError where the folder's tokenizer or configuration cannot be read.
    """
    _refuse_no_tokenizer(Path(path))
    try:
        tokenizer = _tokenizer_class(Path(path)).from_pretrained(path)
        if (Path(path) / "generation_config.json").exists():
            generation = GenerationConfig.from_pretrained(path)
        else:  # as transformers does when it loads the weights
            generation = GenerationConfig.from_model_config(AutoConfig.from_pretrained(path))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"cannot load the tokenizer of {path}: {error}") from error
    return ChatRenderer(tokenizer, enable_thinking=cfg.enable_thinking, stop_ids=_stop_ids(generation))


def _refuse_no_tokenizer(folder: Path) -> None:
    """transformers would make an empty tokenizer of the model's kind."""
    if folder.is_dir() and not any(list(folder.glob(pattern)) for pattern in TOKENIZER_FILES):
        raise UserError(f"{folder} holds no tokenizer ({', '.join(TOKENIZER_FILES)}); copy it there from the model it belongs to")


def hub_commit(path: str, revision: str | None) -> str | None:
    """The commit that a hub id's files in the local hub cache belong to; None for a folder."""
    if Path(path).exists():
        return None
    found = try_to_load_from_cache(path, "config.json", revision=revision)
    return Path(found).parent.name if isinstance(found, str) else None  # …/snapshots/COMMIT/config.json


def _tokenizer_class(folder: Path):
    """AutoTokenizer rebuilds the tokenizer of every Qwen2 model as Qwen2's own BPE, whatever tokenizer.json says; a
    folder whose tokenizer names no architecture is therefore read as it stands."""
    config = folder / "tokenizer_config.json"
    if config.is_file():
        name = json.loads(config.read_text(encoding="utf-8")).get("tokenizer_class")
        if name in ("TokenizersBackend", "PreTrainedTokenizerFast"):
            return PreTrainedTokenizerFast
    return AutoTokenizer


def wrap(model, tokenizer, cfg: ModelConfig, *, trainable: bool = False, source: str = "") -> Policy:
    """A Policy around a loaded model, checked and set up for training where asked.

    `source` is where the weights were read from.  Raises UserError where they are not finite, or where logits are
    scaled or capped.
    """
    if trainable and cfg.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    policy = Policy(model, tokenizer, ChatRenderer(tokenizer, enable_thinking=cfg.enable_thinking, stop_ids=_stop_ids(model.generation_config)), DTYPES[cfg.dtype])
    _check_logits(policy, source)
    return policy


def _stop_ids(generation) -> list[int]:
    ids = generation.eos_token_id if generation is not None else None
    return [] if ids is None else [ids] if isinstance(ids, int) else list(ids)


@torch.no_grad()
def _check_logits(policy: Policy, source: str) -> None:
    """Chunked scoring multiplies hidden states by the output embedding; refuse models that do more than that, and such
    as compute no number at all."""
    ids = list(range(3, 11))
    logits = policy.model(input_ids=torch.tensor([ids], device=policy.model.device)).logits.float()
    if not torch.isfinite(logits).all():
        raise UserError(_not_finite(policy.model, source))
    expected = torch.log_softmax(logits, -1)[0, :-1].gather(1, torch.tensor(ids[1:], device=logits.device)[:, None])[:, 0]
    got, _ = forward_rows(policy.model, [ScoreRow(ids, list(range(1, len(ids))))])
    tolerance = 1e-3 if policy.model.dtype == torch.float32 else 0.1
    if not torch.allclose(expected, got, atol=tolerance):
        raise UserError(
            f"{type(policy.model).__name__} changes its logits after the output embedding (scaling or capping); "
            "the chunked scorer does not support that"
        )


def _not_finite(model, source: str) -> str:
    """Which tensor of which file makes the logits NaN or infinite; looked for only then, because it reads every weight."""
    broken = [(name, t) for name, t in model.named_parameters() if not torch.isfinite(t).all()]
    if not broken:
        return (
            f"the logits of {source or type(model).__name__} are not finite although its weights are: they overflow in "
            f"{str(model.dtype).removeprefix('torch.')}; take weights that do not, or another model.dtype"
        )
    name, tensor = broken[0]
    counts = ", ".join(f"{int(count)} {what}" for what, count in (("NaN", tensor.isnan().sum()), ("infinite", tensor.isinf().sum())) if count)
    more = f"; {len(broken) - 1} more tensors are broken as well" if len(broken) > 1 else ""
    return (
        f"{_file_of(name, source)}: the tensor {name} is not finite ({counts} of {tensor.numel()} values){more}. The training that wrote "
        "it diverged, or the file is damaged: take an earlier checkpoint, or copy the file anew"
    )


def _file_of(name: str, source: str) -> str:
    """The file of a parameter in a folder of weights, as far as its index tells."""
    index = Path(source) / "model.safetensors.index.json"
    if source and index.is_file():
        file = json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).get(name)
        return str(Path(source) / file) if file else source
    single = Path(source) / "model.safetensors"
    return str(single) if source and single.is_file() else source or "the weights"


def model_hash(model) -> str:
    """SHA-256 over all parameters and their names, first 16 hex digits."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def tokenizer_hash(tokenizer) -> str:
    """SHA-256 over vocabulary and added tokens, first 16 hex digits."""
    payload = json.dumps(sorted(tokenizer.get_vocab().items())).encode()
    return hashlib.sha256(payload).hexdigest()[:16]
