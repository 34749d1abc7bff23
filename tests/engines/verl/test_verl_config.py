"""verl's whole configuration for every preset that runs on it, checked against the pinned version."""

import json

import pytest

from seedlab.config.preset_values import PRESETS

# One interpreter for all presets: importing verl takes longer than composing.
COMPOSE = """
import json, sys
from omegaconf import OmegaConf
from seedlab.config.presets import load_config
from seedlab.engines.verl.config import compose
from seedlab.errors import UserError

def one(preset, overrides):
    try:
        cfg = load_config(preset, overrides)
        return {"verl": OmegaConf.to_container(compose(cfg), resolve=True), "cfg": cfg.model_dump(mode="json")}
    except UserError as error:
        return {"error": str(error)}

sys.stdout = sys.stderr
found = [one(preset, overrides) for preset, overrides in json.loads(sys.argv[1])]
open(sys.argv[2], "w").write(json.dumps(found))
"""
VERL_PRESETS = [name for name, values in PRESETS.items() if values.get("engine") == "verl"]


@pytest.fixture(scope="module")
def composed(under_verl, tmp_path_factory):
    def run(*wanted):
        out = tmp_path_factory.mktemp("composed") / "found.json"
        under_verl("-c", COMPOSE, json.dumps(wanted), out)
        return json.loads(out.read_text())

    return run


@pytest.mark.full
@pytest.mark.timeout(700)
def test_every_gpu_preset_composes_and_validates(composed):
    assert len(VERL_PRESETS) >= 22
    for preset, found in zip(VERL_PRESETS, composed(*([name, []] for name in VERL_PRESETS))):
        assert "error" not in found, (preset, found)
        cfg, verl = found["cfg"], found["verl"]
        assert verl["trainer"]["nnodes"] * verl["trainer"]["n_gpus_per_node"] == 8, preset
        rollout, actor, model = (verl["actor_rollout_ref"][name] for name in ("rollout", "actor", "model"))
        assert rollout["name"] == "vllm" and 8 % rollout["tensor_model_parallel_size"] == 0
        assert model["path"] == cfg["model"]["path"] and model["override_config"] == {"attn_implementation": "sdpa"}
        assert rollout["temperature"] == cfg["rollout"]["temperature"] and (rollout["top_p"], rollout["top_k"]) == (1.0, -1)
        assert rollout["max_model_len"] == cfg["model"]["context"] and rollout["load_format"] == "dummy"
        assert actor["optim"]["lr"] == cfg["stage2"]["learning_rate"] and actor["optim"]["betas"] == list(cfg["stage2"]["betas"])
        assert actor["use_kl_loss"] and actor["fsdp_config"]["mixed_precision"]["param_dtype"] == "bf16"
        assert verl["trainer"]["v1"]["trainer_mode"] == "seed_sync" and not verl["critic"]["enable"]


@pytest.mark.full
@pytest.mark.timeout(700)
def test_what_the_engine_cannot_do_is_refused_by_key(composed):
    preset = "paper/alfworld-qwen3-1.7b"
    lora, stale, initial, small, none, kl = composed(
        [preset, ["model.lora_rank=8"]], [preset, ["objective.refresh_every=4"]], [preset, ["objective.analyzer_snapshot=initial"]],
        [preset, ["stage2.minibatch_rows=4"]], [preset, ["objective.kl_coef=0"]], ["micro", ["engine=verl", "cluster.gpus=2"]],
    )  # fmt: skip
    assert "model.lora_rank" in lora["error"] and "objective.refresh_every" in stale["error"]
    assert "objective.analyzer_snapshot" in initial["error"] and "stage2.minibatch_rows=4" in small["error"]
    assert none["verl"]["actor_rollout_ref"]["actor"]["use_kl_loss"] is False
    assert kl["verl"]["actor_rollout_ref"]["rollout"]["name"] == "transformers"
    assert kl["verl"]["actor_rollout_ref"]["actor"]["fsdp_config"]["mixed_precision"]["param_dtype"] == "fp32"


@pytest.mark.full
@pytest.mark.timeout(700)
def test_a_key_that_verl_does_not_know_is_refused(under_verl):
    code = (
        "from seedlab.engines.verl import config\n"
        "from seedlab.errors import ConfigError\n"
        "for key in ('actor_rollout_ref.actor.ppo_mini_batch', 'actor_rollout_ref.nothing.here'):\n"
        "    try:\n"
        "        config._compose({key: 1})\n"
        "    except ConfigError as error:\n"
        "        assert key.rpartition('.')[0] in str(error), error\n"
        "    else:\n"
        "        raise AssertionError(key)\n"
    )
    under_verl("-c", code)


def test_without_verl_the_error_names_the_command(monkeypatch):
    from seedlab.config.presets import load_config
    from seedlab.engines import verl
    from seedlab.engines.verl.config import compose
    from seedlab.errors import UserError

    monkeypatch.setattr(verl, "NEEDED", {"seedlab_has_no_such_module": "verl"})
    with pytest.raises(UserError, match="environment.yml.*requirements/verl-cpu.lock"):
        compose(load_config("paper/alfworld-qwen3-1.7b"))


def test_ray_of_a_run_has_a_token_that_only_its_owner_can_read(tmp_path, monkeypatch):
    from seedlab.engines.verl.loop import own_token

    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    variables = own_token(tmp_path)
    file = tmp_path / "verl" / "ray-token"
    assert (variables["RAY_AUTH_MODE"], variables["RAY_AUTH_TOKEN_PATH"]) == ("token", str(file))
    assert file.stat().st_mode & 0o777 == 0o600 and len(token := file.read_text()) >= 32
    own_token(tmp_path)
    assert file.read_text() == token
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "mine"))
    assert own_token(tmp_path)["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "mine")
