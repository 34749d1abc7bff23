"""The tokenizer of the from-scratch policy: one token a word of its environment, bytes for all else, a chat template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Unigram scores: a word costs less than any way of spelling it in bytes, so one word is one token.
_WORD_SCORE, _BYTE_SCORE = -1.0, -10.0


def pieces_of(words: Iterable[str]) -> list[tuple[str, float]]:
    """The vocabulary in the order of its ids, each piece with its score; raises ValueError for what is no single word."""
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
    return [(token, 0.0) for token in SPECIAL_TOKENS] + sorted(pieces.items())


def build_tokenizer(words: Iterable[str], context: int) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer in which each of `words` is one token, at a line start and after a space.

    Any other text is spelt in bytes, so every string can be encoded and decoded back exactly.
    """
    from transformers import PreTrainedTokenizerFast  # loads torch, which counting the pieces does not need

    tokenizer = Tokenizer(models.Unigram(pieces_of(words), unk_id=None, byte_fallback=False))
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
