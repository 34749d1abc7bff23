"""Shapes of the models: what their config.json says, and what follows from it.

The numbers of `MODELS` are those of the models' own config.json files (field names as there), so that a plan needs no
download; a local Hugging Face folder is read instead where the configuration names one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from seedlab.config.schema import Config
from seedlab.errors import UserError


@dataclass(frozen=True)
class VisionShape:
    """`vision_config` of Qwen2.5-VL."""

    depth: int
    hidden_size: int
    intermediate_size: int
    out_hidden_size: int
    patch_size: int = 14
    temporal_patch_size: int = 2
    spatial_merge_size: int = 2
    in_chans: int = 3

    @property
    def parameters(self) -> int:
        h, i = self.hidden_size, self.intermediate_size
        patch = self.in_chans * self.temporal_patch_size * self.patch_size**2 * h
        attention = h * 3 * h + 3 * h + h * h + h
        block = 2 * h + attention + 2 * (h * i + i) + i * h + h
        merged = h * self.spatial_merge_size**2
        merger = h + merged * merged + merged + merged * self.out_hidden_size + self.out_hidden_size
        return patch + self.depth * block + merger


@dataclass(frozen=True)
class ModelShape:
    """A decoder of the Qwen family.  `qkv_bias` (Qwen2) and `qk_norm` (Qwen3) follow from `model_type`."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool
    head_dim: int
    qkv_bias: bool = True
    qk_norm: bool = False
    vision: VisionShape | None = None

    @property
    def query_width(self) -> int:
        return self.num_attention_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.num_key_value_heads * self.head_dim

    @property
    def embedding(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def layer_parameters(self) -> int:
        h = self.hidden_size
        attention = h * (self.query_width + 2 * self.kv_width) + self.query_width * h
        bias = self.query_width + 2 * self.kv_width if self.qkv_bias else 0
        norms = 2 * h + (2 * self.head_dim if self.qk_norm else 0)
        return attention + bias + norms + 3 * h * self.intermediate_size

    @property
    def parameters(self) -> int:
        """All weights; a tied output embedding counts once."""
        embeddings = self.embedding * (1 if self.tie_word_embeddings else 2)
        vision = self.vision.parameters if self.vision else 0
        return embeddings + self.num_hidden_layers * self.layer_parameters + self.hidden_size + vision

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in bf16."""
        return 2 * self.num_hidden_layers * self.kv_width * 2

    def forward_flops(self, tokens: float, context: float) -> float:
        """FLOPs of a forward pass over `tokens`, each attending to half of `context` tokens on average (causal).

        Two per weight that is multiplied (the output embedding included, the lookup of the input embedding not) and four
        per query width and attended token.
        """
        matrices = self.num_hidden_layers * self.layer_parameters + self.embedding
        attention = 4 * self.num_hidden_layers * self.query_width * context / 2
        return tokens * (2 * matrices + attention)


MODELS: dict[str, ModelShape] = {
    "Qwen/Qwen2.5-3B-Instruct": ModelShape(2048, 36, 16, 2, 11008, 151936, True, 128),
    "Qwen/Qwen2.5-7B-Instruct": ModelShape(3584, 28, 28, 4, 18944, 152064, False, 128),
    "Qwen/Qwen3-1.7B": ModelShape(2048, 28, 16, 8, 6144, 151936, True, 128, qkv_bias=False, qk_norm=True),
    "Qwen/Qwen2.5-VL-3B-Instruct": ModelShape(
        2048, 36, 16, 2, 11008, 151936, True, 128, vision=VisionShape(32, 1280, 3420, 2048)
    ),
}  # fmt: skip
# transformers leaves a default out of config.json
_DEFAULT_TIE = {"qwen2": False, "qwen3": False, "qwen2_5_vl": False}


def shape_of(cfg: Config) -> ModelShape:
    """The shape of the configuration's model; UserError where neither a table nor a folder knows it."""
    path = cfg.model.path
    if path == "tiny":
        return _tiny_shape(cfg)
    if (Path(path) / "config.json").is_file():
        return read_shape(Path(path) / "config.json")
    if path in MODELS:
        return MODELS[path]
    raise UserError(
        f"the shape of model.path={path!r} is not known: give a local folder that holds its config.json, or one of {', '.join(MODELS)}"
    )


def read_shape(file: Path) -> ModelShape:
    """From a config.json of model_type qwen2, qwen3 or qwen2_5_vl; UserError names the file and what it lacks."""
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        kind = values["model_type"]
        if kind not in _DEFAULT_TIE:
            raise UserError(f"{file}: model_type {kind!r} is not one that a plan knows ({', '.join(_DEFAULT_TIE)})")
        text = values.get("text_config") or values
        heads = text["num_attention_heads"]
        vision = values.get("vision_config") if kind == "qwen2_5_vl" else None
        return ModelShape(
            text["hidden_size"], text["num_hidden_layers"], heads, text["num_key_value_heads"], text["intermediate_size"],
            text["vocab_size"], values.get("tie_word_embeddings", _DEFAULT_TIE[kind]), text.get("head_dim") or text["hidden_size"] // heads,
            qkv_bias=kind != "qwen3", qk_norm=kind == "qwen3", vision=_vision(vision) if vision else None,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} is not a config.json that a plan can read: {error!r}") from error


def _vision(values: dict) -> VisionShape:
    return VisionShape(values["depth"], values["hidden_size"], values["intermediate_size"], values["out_hidden_size"])


def _tiny_shape(cfg: Config) -> ModelShape:
    from seedlab.envs import make_family
    from seedlab.episodes.prompts import COMPACT_WORDS
    from seedlab.policy.tiny_tokenizer import pieces_of

    tiny = cfg.tiny
    vocabulary = len(pieces_of([*make_family(cfg.env).vocabulary(), *COMPACT_WORDS]))
    return ModelShape(
        tiny.hidden, tiny.layers, tiny.heads, tiny.kv_heads, tiny.intermediate, vocabulary, True, tiny.hidden // tiny.heads
    )
