"""The tiny recipe's tokenizer and weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seedlab.config.schema import TinyConfig
from seedlab.policy.load import model_hash
from seedlab.policy.tiny import build_model
from seedlab.policy.tiny_tokenizer import SPECIAL_TOKENS, build_tokenizer

WORDS = ["go", "to", "cabinet", "1", ":", "countertop"]
TINY = TinyConfig(hidden=16, layers=1, heads=2, kv_heads=1, intermediate=16)


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(WORDS, 64)


def encode(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_one_token_at_a_line_start_and_after_a_space(tokenizer, word):
    assert len(encode(tokenizer, word)) == 1
    assert len(encode(tokenizer, f"{word} {word}")) == 2
    assert len(encode(tokenizer, f"{word}\n{word}")) == 3


@given(st.text(max_size=40))
@settings(deadline=None, max_examples=150)
def test_any_text_is_decoded_back_exactly(tokenizer, text):
    # `split_special_tokens`: text that spells a control token is text
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_control_tokens_have_the_first_ids(tokenizer):
    assert [tokenizer.convert_tokens_to_ids(t) for t in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert (tokenizer.pad_token, tokenizer.eos_token) == ("<|pad|>", "<|end|>")
    assert set(SPECIAL_TOKENS) == set(tokenizer.all_special_tokens)


def test_the_template_ends_every_turn(tokenizer):
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "to"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|user|>go<|end|><|assistant|>to<|end|><|assistant|>"


@pytest.mark.parametrize("word", ["two words", "", "line\nbreak"])
def test_only_single_words_are_taken(word):
    with pytest.raises(ValueError, match="single words"):
        build_tokenizer([word], 64)


def test_the_order_of_words_does_not_matter(tokenizer):
    assert build_tokenizer(WORDS[::-1] + WORDS, 64).get_vocab() == tokenizer.get_vocab()


def test_weights_depend_on_the_seed_alone():
    def build(seed):
        return model_hash(build_model(TINY.model_copy(update={"seed": seed}), 40, 64, eos=1, pad=0))

    torch.manual_seed(5)
    first = build(0)
    torch.manual_seed(6)
    torch.rand(3)
    before = torch.get_rng_state()
    assert build(0) == first
    assert build(1) != first
    assert torch.equal(torch.get_rng_state(), before), "the caller's random stream must not move"


def test_the_model_is_float32_tied_and_in_evaluation_mode():
    model = build_model(TINY, 40, 64, eos=1, pad=0)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert not model.training
    assert model.generation_config.eos_token_id == 1
    assert model.get_input_embeddings().weight.std().item() == pytest.approx(TINY.init_std, rel=0.1)
