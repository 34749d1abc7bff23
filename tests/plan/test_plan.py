"""The plan against transformers' own parameter counts, torch's own FLOP counter, and figures worked out by hand."""

import json

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
)  # fmt: skip

from seedlab.cli.main import main
from seedlab.config.presets import PRESETS, load_config
from seedlab.errors import UserError
from seedlab.plan import DEVICES, MODELS, Assumptions, make_plan, shape_of
from seedlab.plan.shapes import ModelShape, read_shape


def config_of(shape, kind=Qwen2Config):
    values = dict(
        hidden_size=shape.hidden_size, num_hidden_layers=shape.num_hidden_layers, num_attention_heads=shape.num_attention_heads,
        num_key_value_heads=shape.num_key_value_heads, intermediate_size=shape.intermediate_size, vocab_size=shape.vocab_size,
        tie_word_embeddings=shape.tie_word_embeddings,
    )  # fmt: skip
    return kind(**values, head_dim=shape.head_dim) if kind is Qwen3Config else kind(**values)


def counted(build, config):
    with torch.device("meta"):
        return sum(p.numel() for p in build(config).parameters())


# ---- parameters


@pytest.mark.parametrize(
    "name, kind, build, published",
    [
        ("Qwen/Qwen2.5-3B-Instruct", Qwen2Config, Qwen2ForCausalLM, 3_085_938_688),
        ("Qwen/Qwen2.5-7B-Instruct", Qwen2Config, Qwen2ForCausalLM, 7_615_616_512),
        ("Qwen/Qwen3-1.7B", Qwen3Config, Qwen3ForCausalLM, 1_720_574_976),
    ],
)
def test_parameters_are_those_of_the_real_classes(name, kind, build, published):
    shape = MODELS[name]
    assert counted(build, config_of(shape, kind)) == shape.parameters == published


def test_parameters_of_the_visual_model():
    shape = MODELS["Qwen/Qwen2.5-VL-3B-Instruct"]
    vision = shape.vision
    config = Qwen2_5_VLConfig(
        text_config=config_of(shape).to_dict() | {"model_type": "qwen2_5_vl_text"}, tie_word_embeddings=True,
        vision_config=dict(depth=vision.depth, hidden_size=vision.hidden_size, intermediate_size=vision.intermediate_size,
                           out_hidden_size=vision.out_hidden_size, num_heads=16),
    )  # fmt: skip
    assert counted(Qwen2_5_VLForConditionalGeneration, config) == shape.parameters == 3_754_622_976


def test_parameters_of_the_tiny_policy(random_policy, micro):
    cfg = micro()
    policy = random_policy(cfg)
    assert shape_of(cfg).parameters == policy.parameters


def test_a_local_folder_is_read(tmp_path, random_policy, micro):
    random_policy(micro()).save(tmp_path / "policy")
    cfg = micro(f"model.path={tmp_path / 'policy'}")
    assert shape_of(cfg) == shape_of(micro())
    for kind, shape in ((Qwen3Config, MODELS["Qwen/Qwen3-1.7B"]), (Qwen2Config, MODELS["Qwen/Qwen2.5-7B-Instruct"])):
        config_of(shape, kind).save_pretrained(tmp_path)
        assert read_shape(tmp_path / "config.json") == shape


def test_an_unknown_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="the shape of model.path='some/model' is not known"):
        make_plan(load_config("tiny", ["model.path=some/model"]))
    for text, message in (("{", "is not a config.json"), ('{"model_type": "gpt2"}', "model_type 'gpt2'"), ('{"model_type": "qwen2"}', "num_attention_heads")):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match=message):
            read_shape(tmp_path / "config.json")


# ---- FLOPs


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_forward_flops_are_torch_s_count(kv_heads):
    shape = ModelShape(256, 3, 4, kv_heads, 512, 200, True, 64)
    config = config_of(shape)
    config._attn_implementation = "eager"  # two plain matrix products, which the counter knows on every machine
    model = Qwen2ForCausalLM(config).eval()
    length = 96
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(2, length, dtype=torch.long))
    attention = sum(count for op, count in counter.get_flop_counts()["Global"].items() if "bmm" in str(op))
    matrices = counter.get_total_flops() - attention
    assert attention > 0.05 * matrices
    # torch counts the whole square of attention, a causal pass needs half of it; biases and norms cost next to nothing
    expected = matrices + attention / 2
    assert shape.forward_flops(2 * length, length) == pytest.approx(expected, rel=0.005)


# ---- memory, worked out by hand


def parts_of(plan, phase):
    [found] = [m for m in plan.memory if m.name == phase]
    return {part.name: part.bytes for part in found.parts}


def plan_disk(plan):
    return {part.name: part.bytes for part in plan.disk}


def test_memory_of_the_paper_s_3b_preset():
    plan = make_plan(load_config("paper/alfworld-qwen2.5-3b"))
    p = 3_085_938_688
    update = parts_of(plan, "stage 2: update")
    assert update["parameters"] == update["gradients"] == p / 2  # 4 bytes / 8 GPUs
    assert update["optimizer (Adam)"] == p
    assert update["reference"] == 0
    assert update["gathered layers"] == 4 * 151936 * 2048
    # one input of 2,048 per layer and, of one layer, 4x2048 + 2x2048 + 2x256 + 4x11008 elements; bf16
    assert update["activations"] == 16384 * (36 * 2048 + 56832) * 2
    assert update["vocabulary logits"] == 2 * 32 * 2**20 * 4
    assert update["parameters"] + plan_disk(plan)["checkpoints"] == p / 2 + 3 * 16 * p
    sft = parts_of(plan, "stage 1: SFT")
    assert (sft["parameters"], sft["gradients"]) == (2 * p, p / 4)
    assert sft["optimizer (Adam, float32 masters)"] == 1.5 * p
    assert sft["activations"] == 32768 * (36 * 2048 + 56832) * 2
    generate = parts_of(plan, "stage 2: generation")
    assert generate["vLLM: weights"] + generate["vLLM: KV cache and work space"] == 40e9
    assert sum(parts_of(plan, "stage 1: sampling").values()) == 40e9 + 4 * p + 4e9
    assert plan.host[0].bytes == 32 * p


def test_settings_move_memory_where_they_say():
    def total(phase, *overrides):
        return sum(parts_of(make_plan(load_config("paper/alfworld-qwen2.5-7b", list(overrides))), phase).values())

    p = 7_615_616_512
    assert total("stage 2: update", "cluster.offload_reference=false") - total("stage 2: update") == pytest.approx(p / 2)
    assert total("stage 2: update", "cluster.sleep=false") - total("stage 2: update") == pytest.approx(40e9)
    assert total("stage 2: generation") - total("stage 2: generation", "cluster.offload_optimizer=true") == pytest.approx(p)
    assert total("stage 1: SFT") - total("stage 1: SFT", "cluster.sft_zero_stage=3") == pytest.approx(2 * p * 7 / 8)
    assert total("stage 1: SFT") - total("stage 1: SFT", "cluster.sft_offload_optimizer=true") == pytest.approx(1.5 * p)
    assert total("stage 2: update", "model.gradient_checkpointing=false") > total("stage 2: update") + 50e9
    assert total("stage 1: SFT", "cluster.sft_pack_tokens=32768") - total("stage 1: SFT") == 32768**2


def test_lora_trains_what_peft_adds():
    peft = pytest.importorskip("peft", reason="wanted: peft (extra lora)")
    from seedlab.policy.lora import TARGETS

    cfg = load_config("gpu1/alfworld-qwen3-1.7b", ["model.lora_rank=16"])
    shape = shape_of(cfg)
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config_of(shape, Qwen3Config))
        peft.inject_adapter_in_model(peft.LoraConfig(r=16, target_modules=TARGETS), model)
    adapters = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    assert parts_of(make_plan(cfg), "stage 2: update")["gradients"] == 4 * adapters


@pytest.mark.parametrize("name", [n for n in PRESETS if "/" in n])
def test_every_gpu_preset_fits_80_gb_also_at_its_limits(name):
    cfg = load_config(name)
    plan = make_plan(cfg, DEVICES["a800"], Assumptions.limits(cfg))
    assert plan.capacity == 80e9
    assert plan.fits, {m.name: m.total for m in plan.memory}
    assert all(m.total < 0.95 * plan.capacity for m in plan.memory)
    # a scored row, teacher's skill included, is no longer than what a forward pass holds
    assert cfg.rollout.max_prompt_tokens + cfg.rollout.max_response_tokens + cfg.analyzer.max_tokens <= cfg.stage2.micro_batch_tokens


def test_what_does_not_fit_is_said(capsys):
    assert main(["plan", "paper/alfworld-qwen2.5-7b", "cluster.gpu_memory_gb=40"]) == 1
    assert "DOES NOT FIT" in capsys.readouterr().out


# ---- tokens and times, worked out by hand


def test_tokens_flops_and_seconds_of_an_update():
    cfg = load_config("paper/alfworld-qwen2.5-3b")
    device = DEVICES["a800"]
    a = Assumptions(steps=10, prompt=1000, response=100, observation=50, skill=150, flops_efficiency=0.5, bandwidth_efficiency=0.5)
    work = {w.name: w for w in make_plan(cfg, device, a).work}
    shape = shape_of(cfg)
    rollouts, teacher, update = work["stage 2: rollouts"], work["stage 2: teacher"], work["stage 2: update"]
    assert (rollouts.times, rollouts.tokens) == (150, 128 * 10 * 1100)
    assert teacher.tokens == 1280 * 1250
    assert update.tokens == 1280 * 1100
    matrices = 36 * shape.layer_parameters + 151936 * 2048
    assert update.flops == pytest.approx(4 * 1280 * 1100 * (2 * matrices + 4 * 36 * 2048 * 550))
    assert update.seconds == pytest.approx(update.flops / (8 * 312e12 * 0.5))
    # 16 episodes on each of 8 copies: 10 steps x 100 tokens, each reading all weights and 16 caches of about 1,050 tokens
    read = 1_280_000 * (2 * matrices + 4 * 36 * 2048 * 500) / (8 * 312e12 * 0.5)
    sampled = 10 * 100 * (2 * shape.parameters + 16 * 1050 * 36864) / (2.039e12 * 0.5)
    assert rollouts.seconds == pytest.approx(read + sampled)
    assert work["stage 2: skills"].tokens == 128 * (10 * 150 + 150)
    assert work["stage 1: labels"].seconds is None


def test_the_scorer_s_budget_is_the_plan_s():
    from seedlab.plan import memory
    from seedlab.policy.score import LOGIT_BUDGET

    assert memory.CHUNKED_LOGITS == 2 * 4 * LOGIT_BUDGET


@pytest.mark.full
def test_disk_is_what_a_real_run_left(micro, tmp_path):
    from seedlab.plan.compute import TOKEN_ROW_BYTES
    from seedlab.store.checkpoint import latest_checkpoint
    from seedlab.train.run import train

    cfg = micro()
    run = train(cfg, tmp_path / "run")
    p = make_plan(cfg).shape.parameters
    weights = (tmp_path / "run" / "checkpoints" / "reference" / "model.safetensors").stat().st_size
    assert weights == pytest.approx(4 * p, rel=0.05)
    folder = latest_checkpoint(run.path)[1]
    size = sum((folder / name).stat().st_size for name in ("model.safetensors", "trainer.pt"))
    assert size == pytest.approx(12 * p, rel=0.15)  # the rest are names and headers, which weigh nothing in a real model
    tokens = sum(len(run.tokens(update=u)) for u in run.updates)
    size = sum(f.stat().st_size for f in (run.path / "updates").rglob("tokens.parquet"))
    print(f"{size / tokens:.1f} bytes of a token row in {tokens} rows")
    assert size / tokens < 4 * TOKEN_ROW_BYTES  # small files carry their schema; docs/plan.md has the large ones


def test_methods_cost_what_they_do():
    def names(*overrides):
        return {w.name for w in make_plan(load_config("paper/alfworld-qwen2.5-3b", list(overrides))).work}

    assert names() - names("method=grpo") == {
        "stage 1: rollouts", "stage 1: labels", "stage 1: SFT", "stage 2: skills", "stage 2: teacher",
    }  # fmt: skip
    assert names() - names("objective.kl_coef=0") == {"stage 2: reference"}
    assert names("method=vanilla") == {"evaluation"}


# ---- the command


def test_a_preset_without_its_environment_is_planned_and_says_so(capsys):
    assert main(["plan", "paper/webshop-qwen2.5-3b"]) == 0
    assert "NOTE: the environment webshop is known but not built yet: this plan can be read, a run will refuse to start" in capsys.readouterr().out


def test_what_the_engine_refuses_is_said_before():
    [text] = make_plan(load_config("paper/alfworld-qwen2.5-3b", ["model.lora_rank=8"])).refusals
    assert text.startswith("engine=verl does not offer model.lora_rank") and text.endswith("a run will refuse to start")
    assert make_plan(load_config("gpu1/alfworld-qwen3-1.7b", ["model.lora_rank=8"])).refusals == ()


def test_an_unpinned_model_is_mentioned():
    cfg = load_config("paper/alfworld-qwen2.5-3b")
    [note] = make_plan(cfg).notes
    assert "pin a commit with model.revision=COMMIT" in note
    assert make_plan(load_config("paper/alfworld-qwen2.5-3b", ["model.revision=abc"])).notes == make_plan(load_config("tiny")).notes == ()


def test_the_page_has_the_presets_as_they_are():
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    for name in PRESETS:
        if name.startswith(("paper/", "gpu1/")):
            found = {m.name: f"{m.total / 1e9:.1f}" for m in make_plan(load_config(name)).memory}
            totals = [found.get(phase, "-") for phase in ("stage 1: sampling", "stage 1: SFT", "stage 2: generation", "stage 2: update")]
            assert f"| `{name}` | {' | '.join(totals)} |" in page, (name, totals)


def test_the_text_shows_its_arithmetic_and_assumptions(capsys):
    assert main(["plan", "paper/alfworld-qwen2.5-3b", "--steps", "13", "--device", "h100"]) == 0
    text = capsys.readouterr().out
    assert "1.54 GB  parameters: 4 bytes x 3,085,938,688 / 8" in text
    assert "13 steps of an episode" in text
    assert "989 TFLOP/s x 0.4" in text
    assert "guesses" in text


def test_json_has_numbers(capsys):
    assert main(["plan", "tiny", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["seconds"], plan["gpu_bytes"], plan["fits"]) == (None, None, True)
    assert plan["memory"]["stage 2: update"]["parts"]["optimizer (Adam)"] == 8 * plan["parameters"]


def test_wrong_options_are_refused(capsys):
    assert main(["plan", "tiny", "--device", "abacus"]) == 2
    assert "--device abacus: known are a800" in capsys.readouterr().err
    assert main(["plan", "tiny", "--steps", "0"]) == 2


@pytest.mark.parametrize("option, value", [("--prompt", "1e308"), ("--steps", "nan"), ("--steps", "x"), ("--flops-efficiency", "5"), ("--skill", "0")])
def test_a_silly_assumption_is_refused_in_words(capsys, option, value):
    assert main(["plan", "tiny", option, value]) == 2
    assert f"argument {option}: must be a number" in capsys.readouterr().err
