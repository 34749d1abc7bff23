"""The weights of the embedded default's from-scratch policy: Qwen2 architecture (`tiny_tokenizer` has the rest).

It is an ordinary Hugging Face folder once saved; nothing downstream knows that it is tiny.
"""

from __future__ import annotations

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from seedlab.config.schema import TinyConfig


def build_model(cfg: TinyConfig, vocabulary: int, context: int, *, eos: int, pad: int) -> Qwen2ForCausalLM:
    """An untrained float32 policy; its weights depend on `cfg.seed` alone."""
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=cfg.hidden,
        intermediate_size=cfg.intermediate,
        num_hidden_layers=cfg.layers,
        num_attention_heads=cfg.heads,
        num_key_value_heads=cfg.kv_heads,
        max_position_embeddings=context,
        # transformers' default of 0.02 never learns the task at this width
        initializer_range=cfg.init_std,
        tie_word_embeddings=True,
        use_sliding_window=False,
        eos_token_id=eos,
        pad_token_id=pad,
        bos_token_id=None,
        attention_dropout=0.0,
    )
    state = torch.get_rng_state()
    torch.manual_seed(cfg.seed)
    model = Qwen2ForCausalLM(config)
    torch.set_rng_state(state)
    return model.float().eval()
