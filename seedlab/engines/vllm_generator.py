"""vLLM's engine behind the generator protocol: Stage 1's rollouts and own skills, and evaluations, on GPUs.

Weights are those of a folder or hub id and stay as they are; after a training the engine starts again from the folder
that it left.  Sampled tokens depend on what shares a batch (vLLM's kernels differ by batch size beyond floating point),
so unlike with the local engine two runs need not sample the same ids.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from seedlab.config.schema import Config
from seedlab.envs.protocol import InfrastructureError
from seedlab.errors import UserError
from seedlab.policy.local import PromptTooLong
from seedlab.policy.protocol import Generation, Sampling


class VllmFailed(UserError):
    """vLLM did not start or died; the message has its cause."""

    exit_code = 1


@dataclass(frozen=True)
class VllmSettings:
    """What the engine is started with; `options` go to vLLM's own AsyncEngineArgs."""

    options: dict
    context: int
    start_timeout_s: float
    generate_timeout_s: float


def require_vllm() -> None:
    """Raises UserError where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise UserError("cluster.generator=vllm needs vLLM: install the environment of environment.yml, or set cluster.generator=local")


def settings_of(cfg: Config, source: str) -> VllmSettings:
    """The configuration's model and section `cluster` in vLLM's words."""
    model, cluster = cfg.model, cfg.cluster
    if model.gguf_file:
        raise UserError("cluster.generator=vllm reads Hugging Face weights; model.gguf_file needs cluster.generator=local")
    options = {
        "model": source, "dtype": model.dtype, "max_model_len": model.context, "seed": 0,
        # Log-probs of the distribution sampled from, logits / T, as the protocol has it.
        "logprobs_mode": "processed_logprobs",
        # Temperature and the ids that end a turn come with each request; nothing may be added from the model's folder.
        "generation_config": "vllm", "skip_tokenizer_init": True,
        "enforce_eager": cluster.enforce_eager, "max_num_seqs": cluster.max_sequences,
        "max_num_batched_tokens": max(cluster.max_prefill_tokens, cluster.max_sequences), "enable_prefix_caching": True,
        # vLLM's build for CPUs reads it as a share of the machine's memory; its own default, 0.92, seldom is free there.
        "gpu_memory_utilization": cluster.gpu_memory_utilization, "disable_log_stats": True,
    }  # fmt: skip
    if model.revision and not Path(source).exists():
        options["revision"] = model.revision
    if model.device == "cuda":
        options |= {"tensor_parallel_size": cluster.tensor_parallel, "data_parallel_size": cluster.gpus // cluster.tensor_parallel}
    return VllmSettings(options, model.context, cluster.start_timeout_s, cluster.generate_timeout_s)


class VllmGenerator:
    """Samples through vLLM's asynchronous engine, which starts with the first request and batches by itself.

    The engine lives on an event loop in a thread of its own: every `play` has a loop of its own, and an engine belongs to
    the loop it was first used on.  Entropies are NaN: vLLM gives none.
    """

    def __init__(self, settings: VllmSettings):
        require_vllm()
        self.settings = settings
        self.weights_version = 0
        self.prompt_tokens = 0
        self.sampled_tokens = 0
        self._numbers = itertools.count()
        self._start_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._engine = None

    # ---- the protocol

    def expect(self, episodes: int) -> None:
        """vLLM batches whatever has arrived; nobody is waited for."""

    def leave(self) -> None:
        pass

    def release(self, trajectory_id: str) -> None:
        """vLLM's prefix cache evicts by itself."""

    def weights_changed(self, saved: Path | None) -> None:
        """The next request starts an engine on the weights saved in that folder."""
        if saved is None:
            raise ValueError("vLLM reads weights from a folder: save them first")
        self.close()
        self.settings = VllmSettings(
            {k: v for k, v in self.settings.options.items() if k != "revision"} | {"model": str(saved)}, self.settings.context,
            self.settings.start_timeout_s, self.settings.generate_timeout_s,
        )  # fmt: skip
        self.weights_version += 1

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, trajectory_id: str, images: tuple = ()
    ) -> Generation:
        """Raises PromptTooLong, InfrastructureError where one request hangs, VllmFailed where the engine is dead."""
        if images:
            raise NotImplementedError("this adapter generates from text only")
        room = self.settings.context - len(prompt_ids)
        if room < 1:
            raise PromptTooLong.of(trajectory_id, len(prompt_ids), self.settings.context)
        if self._engine is None:
            # Elsewhere than on the caller's loop, which other episodes are waiting on.
            await asyncio.to_thread(self._start)
        work = self._answer(list(prompt_ids), sampling, min(sampling.max_tokens, room), f"{trajectory_id}#{next(self._numbers)}")
        output = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))
        ids = list(output.token_ids)
        logprobs = [float(table[token].logprob) for token, table in zip(ids, output.logprobs)]
        self.prompt_tokens += len(prompt_ids)
        self.sampled_tokens += len(ids)
        return Generation(ids, logprobs, [float("nan")] * len(ids), output.finish_reason or "abort", self.weights_version)

    # ---- on the engine's own loop

    async def _answer(self, prompt_ids, sampling: Sampling, max_tokens: int, request_id: str):
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=sampling.temperature, max_tokens=max_tokens, seed=sampling.key % 2**63, logprobs=0,
            stop_token_ids=list(sampling.stop_ids), ignore_eos=True, detokenize=False,
        )
        try:
            async with asyncio.timeout(self.settings.generate_timeout_s):
                last = None
                async for output in self._engine.generate({"prompt_token_ids": prompt_ids}, params, request_id):
                    last = output
        except TimeoutError as error:
            await self._engine.abort(request_id)
            raise InfrastructureError(f"{request_id}: vLLM gave no answer within {self.settings.generate_timeout_s:g} s") from error
        except Exception as error:
            raise VllmFailed(f"vLLM failed at {request_id}: {type(error).__name__}: {error}") from error
        return last.outputs[0]

    def _start(self) -> None:
        with self._start_lock:
            if self._engine is not None:
                return
            # A process that has touched CUDA cannot be forked.
            os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True)
            self._thread.start()
            future = asyncio.run_coroutine_threadsafe(_make_engine(self.settings.options), self._loop)
            try:
                self._engine = future.result(timeout=self.settings.start_timeout_s)
            except Exception as error:
                self._stop_loop()
                what = f"did not start within {self.settings.start_timeout_s:g} s" if isinstance(error, TimeoutError) else "did not start"
                raise VllmFailed(f"vLLM {what} for {self.settings.options['model']}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Stop the engine and free its memory; the next request would start it again."""
        if self._engine is not None:
            self._stop_loop()

    def _stop_loop(self) -> None:
        loop, engine, self._engine = self._loop, self._engine, None
        ending = asyncio.run_coroutine_threadsafe(_end(engine), loop)
        ending.add_done_callback(lambda _: loop.call_soon_threadsafe(loop.stop))
        self._thread.join(timeout=60)
        if not self._thread.is_alive():
            loop.close()
        self._loop = self._thread = None
        if ending.done():
            ending.result()


async def _end(engine) -> None:
    """Shut the engine down and wait for what it left on this loop."""
    if engine is not None:
        engine.shutdown()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def _make_engine(options: dict):
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**options))
