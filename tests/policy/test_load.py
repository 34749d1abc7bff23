"""Policies from folders: saved and read back exactly, and every kind of damage named."""

import copy
import json

import pytest
import torch
from transformers import Gemma2Config, Gemma2ForCausalLM

from seedlab.config.schema import ModelConfig
from seedlab.errors import UserError
from seedlab.policy.load import hub_commit, load_policy, model_hash, tokenizer_hash, wrap
from seedlab.policy.score import ScoreRow, forward_rows, score

CFG = ModelConfig(context=64)
ROW = ScoreRow([3, 40, 41, 42, 43], [2, 3, 4])


@pytest.fixture
def policy(random_policy, micro):
    return random_policy(micro("model.context=64"))


@pytest.fixture
def folder(policy, tmp_path):
    policy.save(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_policy_is_read_back_bit_for_bit(policy, folder):
    found = load_policy(folder, CFG)
    assert model_hash(found.model) == model_hash(policy.model)
    assert tokenizer_hash(found.tokenizer) == tokenizer_hash(policy.tokenizer)
    assert found.chat.template_hash == policy.chat.template_hash
    assert found.chat.stop_ids == policy.chat.stop_ids
    assert (found.pad_id, found.parameters) == (policy.pad_id, policy.parameters)
    text = "go to cabinet 1\nskill : put ≠"
    assert found.chat.encode(text) == policy.chat.encode(text)
    for (a, _), (b, _) in zip(score(found.model, [ROW]), score(policy.model, [ROW])):
        assert torch.equal(a, b)


def test_the_hash_sees_one_changed_weight(policy):
    before = model_hash(policy.model)
    with torch.no_grad():
        policy.model.get_input_embeddings().weight[7, 3] += 1e-6
    assert model_hash(policy.model) != before


def test_trained_weights_stay_float32_and_are_computed_in_the_configured_format(folder):
    cfg = CFG.model_copy(update={"dtype": "bfloat16"})
    assert load_policy(folder, cfg).model.dtype == torch.bfloat16
    trained = load_policy(folder, cfg, trainable=True)
    assert trained.model.dtype == torch.float32
    with trained.compute():
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16


def test_gradient_checkpointing_changes_no_log_prob_and_no_gradient(folder):
    gradients = []
    for on in (False, True):
        policy = load_policy(folder, CFG.model_copy(update={"gradient_checkpointing": on}), trainable=True)
        policy.model.train()
        forward_rows(policy.model, [ROW])[0].sum().backward()
        gradients.append([p.grad for p in policy.model.parameters()])
    for a, b in zip(*gradients):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


# ---- damage


def damage_cut_weights(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def damage_garbled_header(folder):
    file = folder / "model.safetensors"
    file.write_bytes(b"\xff" * 64 + file.read_bytes()[64:])


def damage_empty_weights(folder):
    (folder / "model.safetensors").write_bytes(b"")


def damage_no_weights(folder):
    (folder / "model.safetensors").unlink()


def damage_no_tokenizer(folder):
    for file in folder.glob("tokenizer*"):
        file.unlink()


def damage_cut_tokenizer(folder):
    file = folder / "tokenizer.json"
    file.write_text(file.read_text()[:200])


def damage_cut_tokenizer_config(folder):
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": ')


def damage_cut_config(folder):
    (folder / "config.json").write_text('{"model_type": "qwen2"')


def damage_no_config(folder):
    (folder / "config.json").unlink()


def damage_empty_folder(folder):
    for file in folder.iterdir():
        file.unlink()


def damage_unknown_architecture(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "no_such_model"}))


def damage_other_width(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": config["intermediate_size"] * 2}))


DAMAGES = [value for name, value in sorted(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda d: d.__name__)
def test_a_damaged_folder_is_named(folder, damage):
    damage(folder)
    with pytest.raises(UserError, match=str(folder)):
        load_policy(folder, CFG)


def test_missing_parameters_are_not_filled_in_at_random(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="up_proj"):
        load_policy(folder, CFG)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        load_policy(tmp_path / "nowhere", CFG)


def test_a_tokenizer_without_a_chat_template_is_refused(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="no chat template"):
        load_policy(folder, CFG)


def test_capped_logits_are_refused(vocabulary):
    config = Gemma2Config(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.5, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with pytest.raises(UserError, match="Gemma2ForCausalLM changes its logits"):
        wrap(Gemma2ForCausalLM(config).eval(), vocabulary, CFG)


@pytest.mark.parametrize("value, counted", [(float("nan"), "2 NaN of"), (float("inf"), "2 infinite of")])
@pytest.mark.parametrize("shard", ["20KB", "1GB"])
def test_weights_that_are_not_finite_are_named_with_their_file(policy, tmp_path, value, counted, shard):
    """Not called scaling or capping: NaN differs from NaN in any comparison of log-probs."""
    broken = copy.deepcopy(policy.model)
    name = "model.layers.1.mlp.up_proj.weight"
    broken.get_parameter(name).data[3, :2] = value
    broken.save_pretrained(tmp_path, max_shard_size=shard)
    policy.tokenizer.save_pretrained(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    file = json.loads(index.read_text())["weight_map"][name] if shard == "20KB" else "model.safetensors"
    assert index.exists() == (shard == "20KB")
    with pytest.raises(UserError) as caught:
        load_policy(tmp_path, CFG)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / file}: the tensor {name} is not finite ({counted} ") and "changes its logits" not in message


def test_finite_weights_whose_logits_overflow_are_told_apart(policy, vocabulary):
    large = copy.deepcopy(policy.model)
    large.model.norm.weight.data.fill_(3e38)
    with pytest.raises(UserError, match="logits of .* are not finite although its weights are: they overflow in float32"):
        wrap(large, vocabulary, CFG)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_device_that_is_not_there_is_named(folder):
    with pytest.raises(UserError, match="model.device=cuda.*doctor"):
        load_policy(folder, CFG.model_copy(update={"device": "cuda"}))


def test_the_commit_of_hub_weights_is_the_one_of_the_cached_files(tmp_path, monkeypatch):
    from huggingface_hub import constants

    cache = tmp_path / "models--someone--model"
    for ref, commit in (("main", "a" * 40), ("v2", "b" * 40)):
        (cache / "refs").mkdir(parents=True, exist_ok=True)
        (cache / "refs" / ref).write_text(commit)
        (cache / "snapshots" / commit).mkdir(parents=True)
        (cache / "snapshots" / commit / "config.json").write_text("{}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert hub_commit("someone/model", None) == "a" * 40
    assert hub_commit("someone/model", "v2") == hub_commit("someone/model", "b" * 40) == "b" * 40
    assert hub_commit("someone/other", None) is None
    assert hub_commit(str(tmp_path), None) is None
