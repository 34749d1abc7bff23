"""A rollout replica that samples with transformers through our own generator: what vLLM is on GPUs, where there is none.

Importing this module registers it under `NAME` with verl, as replica and as the worker's side of the weight update.
"""

from __future__ import annotations

import asyncio
import os

import ray
import torch
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from seedlab.config.schema import ModelConfig
from seedlab.engines.verl.names import SAMPLING_KEY
from seedlab.engines.verl.names import TRANSFORMERS as NAME
from seedlab.policy.load import load_policy
from seedlab.policy.local import LocalGenerator
from seedlab.policy.protocol import Sampling


def actor_name(rank: int) -> str:
    return f"{NAME}_server_{rank}"


class Server:
    """One model; requests that come while it computes wait for their turn."""

    def __init__(self, path: str, context: int, threads: int):
        torch.set_num_threads(threads)
        policy = load_policy(path, ModelConfig(context=context))
        self.model = policy.model
        self.generator = LocalGenerator(policy.model, context=context, pad_id=policy.pad_id)
        self.version = 0

    async def generate(self, prompt_ids, sampling_params, request_id, image_data=None, video_data=None, **_) -> TokenOutput:
        if image_data or video_data:
            raise NotImplementedError("the transformers replica generates from text only")
        sampling = Sampling(
            sampling_params["temperature"], sampling_params["max_tokens"], sampling_params[SAMPLING_KEY], tuple(sampling_params["stop_token_ids"])
        )
        found = await self.generator.generate(prompt_ids, sampling, trajectory_id=request_id)
        self.generator.release(request_id)
        return TokenOutput(
            token_ids=found.ids, log_probs=found.logprobs, stop_reason="completed", extra_fields={"global_steps": self.version}
        )

    async def update_weights(self, weights: dict[str, torch.Tensor], version: int | None) -> None:
        own = self.model.state_dict()
        unknown = sorted(set(weights) - set(own))
        if unknown:
            raise RuntimeError(f"the policy has weights that the replica lacks: {', '.join(unknown[:5])}")
        with torch.no_grad():
            for name, value in weights.items():
                own[name].copy_(value)
        self.version = self.version if version is None else version
        self.generator.weights_version += 1

    async def idle(self, *args, **kwargs) -> None:
        return None

    sleep = wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = resume_generation = abort_all_requests = idle


class TransformersReplica(RolloutReplica):
    """One server per rank."""

    async def launch_servers(self):
        server = ray.remote(Server).options(
            name=actor_name(self.replica_rank), num_cpus=0, max_concurrency=self.max_concurrency,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1"}},
        ).remote(self.model_config.path, self.config.max_model_len, 1)  # fmt: skip
        self.servers = [server]
        self._server_handle, self._server_address = server, f"{NAME}-{self.replica_rank}"
        await server.idle.remote()


class TransformersRollout(BaseRollout):
    """In each training worker: hands the weights to its server."""

    async def resume(self, tags):
        return None

    async def release(self):
        return None

    async def update_weights(self, weights, global_steps=None, wire_format="named_tensors", **_):
        if wire_format != "named_tensors":
            raise NotImplementedError(f"the transformers replica takes whole tensors, not {wire_format}")
        found = {}
        for name, value in weights:  # every rank takes part in gathering each tensor
            found[name] = value.detach().to("cpu", torch.float32).clone()
            await asyncio.sleep(0)
        rank = int(os.environ["RANK"])
        await ray.get_actor(actor_name(rank)).update_weights.remote(found, global_steps)


def _load():
    return TransformersReplica


RolloutReplicaRegistry.register(NAME, _load)
_ROLLOUT_REGISTRY[(NAME, "async")] = f"{__name__}.TransformersRollout"
