"""The from-scratch policy of the embedded default: Qwen2 architecture, own tokenizer, own chat template.

It is an ordinary Hugging Face folder once saved; nothing downstream knows that it is tiny.
"""

from __future__ import annotations

from typing import Iterable

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from seedlab.config.schema import TinyConfig

SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Unigram scores: a word costs less than any way of spelling it in bytes, so one word is one token.
_WORD_SCORE, _BYTE_SCORE = -1.0, -10.0


def build_tokenizer(words: Iterable[str], context: int) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer in which each of `words` is one token, at a line start and after a space.

    Any other text is spelt in bytes, so every string can be encoded and decoded back exactly.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    space, newline = "Ġ", "Ċ"  # ByteLevel's names of " " and "\n"
    pieces: dict[str, float] = {character: _BYTE_SCORE for character in alphabet}
    pieces[space] = pieces[newline] = _WORD_SCORE
    for word in sorted(set(words)):
        if any(character.isspace() for character in word) or not word:
            raise ValueError(f"the tokenizer's words are single words; {word!r} is not")
        encoded = "".join(piece for piece, _ in pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(word))
        pieces[encoded] = _WORD_SCORE
        pieces[space + encoded] = _WORD_SCORE
    vocabulary = [(token, 0.0) for token in SPECIAL_TOKENS] + sorted(pieces.items())
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=None, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|system|>", "<|user|>", "<|assistant|>"],
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


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
