"""verl's rollout servers behind our generator protocol."""

from __future__ import annotations

import asyncio
import math
from typing import Sequence

from ray.exceptions import RayError

from seedlab.config.schema import Config
from seedlab.engines.verl.names import SAMPLING_KEY, TRANSFORMERS, rollout_name
from seedlab.envs.protocol import InfrastructureError
from seedlab.policy.local import PromptTooLong
from seedlab.policy.protocol import Generation, Sampling

SEED_LIMIT = 2**63 - 1  # vLLM's seeds are 64-bit integers


class ServerGenerator:
    """Asks `client` (verl's LLMServerClient) for text; a server that is gone or silent is an InfrastructureError.

    Entropies are NaN here; they come from re-scoring.  With `temperature` 0 the log-probs are the server's.
    """

    def __init__(self, client, cfg: Config):
        self.client, self.cfg = client, cfg
        self.weights_version = 0
        self.prompt_tokens = 0
        self.sampled_tokens = 0
        self._whole_key = rollout_name(cfg) == TRANSFORMERS

    def expect(self, episodes: int) -> None:
        return None

    def leave(self) -> None:
        return None

    def release(self, trajectory_id: str) -> None:
        return None

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, trajectory_id: str, images: tuple = ()
    ) -> Generation:
        room = self.cfg.model.context - len(prompt_ids)
        if room < 1:
            raise PromptTooLong(
                f"{trajectory_id}: a prompt of {len(prompt_ids)} tokens leaves no room in a context of {self.cfg.model.context}; "
                "raise model.context or lower rollout.max_prompt_tokens"
            )
        parameters = {
            "temperature": sampling.temperature, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True,
            "max_tokens": min(sampling.max_tokens, room), "stop_token_ids": list(sampling.stop_ids),
        }  # fmt: skip
        if self._whole_key:
            parameters[SAMPLING_KEY] = sampling.key
        else:
            parameters["seed"] = sampling.key & SEED_LIMIT
        limit = self.cfg.cluster.generate_timeout_s
        try:
            found = await asyncio.wait_for(
                self.client.generate(
                    trajectory_id, prompt_ids=list(prompt_ids), sampling_params=parameters, image_data=list(images) or None
                ),
                limit,
            )
        except TimeoutError as error:
            raise InfrastructureError(f"{trajectory_id}: no answer from the rollout server within {limit:g} s (cluster.generate_timeout_s)") from error
        except RayError as error:
            raise InfrastructureError(f"{trajectory_id}: the rollout server failed: {type(error).__name__}: {error}") from error
        ids = [int(i) for i in found.token_ids]
        if not ids or found.log_probs is None or len(found.log_probs) != len(ids):
            raise InfrastructureError(f"{trajectory_id}: the rollout server gave {len(ids)} tokens ({found.stop_reason}) and no log-probs for them")
        self.prompt_tokens += len(prompt_ids)
        self.sampled_tokens += len(ids)
        finish = "stop" if ids[-1] in sampling.stop_ids else "abort" if found.stop_reason == "aborted" else "length"
        version = found.extra_fields.get("global_steps")
        return Generation(ids, [float(x) for x in found.log_probs], [math.nan] * len(ids), finish, self.weights_version if version is None else int(version))
