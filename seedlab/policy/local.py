"""Batched generation in this process, by the generator protocol.

The generator waits until every live episode has asked, then steps the whole batch: which rows share a batch never
depends on timing, so a resumed run repeats exactly.  Each row draws from its own random stream, made from the key
of its request.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

import numpy as np
import torch

from seedlab.policy.cache import SlotStore, WorkingCache
from seedlab.policy.mask import attention_mask
from seedlab.policy.protocol import Generation, Sampling


class PromptTooLong(ValueError):
    """A prompt that cannot fit was stopped before it reached the model."""

    @classmethod
    def of(cls, trajectory_id: str, tokens: int, context: int) -> "PromptTooLong":
        return cls(
            f"{trajectory_id}: a prompt of {tokens} tokens leaves no room in a context of {context}; "
            "raise model.context or lower rollout.max_prompt_tokens"
        )


@dataclass
class _Request:
    prompt_ids: list[int]
    sampling: Sampling
    trajectory_id: str
    future: asyncio.Future


class LocalGenerator:
    """Samples from a Hugging Face causal LM; keeps keys and values between the turns of an episode.

    `reuse_cache` is worth its memory where turn k+1's prompt extends turn k's (conversation layout).
    `max_rows` bounds the rows of one batch, `max_cache_tokens` (0: no bound) its rows times the longest prompt and
    answer.  `weights_version` must be raised after every weight change.
    """

    def __init__(
        self, model, *, context: int, reuse_cache: bool = True, max_rows: int = 256, max_cache_tokens: int = 0, pad_id: int = 0,
    ):
        self.model, self.context, self.reuse_cache, self.max_rows, self.pad_id = model, context, reuse_cache, max_rows, pad_id
        self.max_cache_tokens = max_cache_tokens
        self.weights_version = 0
        self.prompt_tokens = 0  # computed, cached ones not counted
        self.sampled_tokens = 0
        self._store = SlotStore()
        self._live = 0
        self._pending: list[_Request] = []

    def expect(self, episodes: int) -> None:
        """Announce episodes before they start, so that the first batch waits for all of them."""
        self._live += episodes

    def leave(self) -> None:
        self._live -= 1
        self._step_if_ready()

    def release(self, trajectory_id: str) -> None:
        self._store.release(trajectory_id)

    def weights_changed(self, saved: Path | None) -> None:
        """The model's weights are others now; cached keys and values belong to the old ones."""
        self.weights_version += 1

    def close(self) -> None:
        """Free what is cached."""
        self._store.clear()

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, trajectory_id: str, images: tuple = ()
    ) -> Generation:
        if images:
            raise NotImplementedError("the local engine generates from text only")
        if len(prompt_ids) + 1 > self.context:
            raise PromptTooLong.of(trajectory_id, len(prompt_ids), self.context)
        request = _Request(list(prompt_ids), sampling, trajectory_id, asyncio.get_running_loop().create_future())
        self._pending.append(request)
        self._step_if_ready()
        return await request.future

    def _step_if_ready(self) -> None:
        if not self._pending or len(self._pending) < self._live:
            return
        requests, self._pending = [r for r in self._pending if not r.future.cancelled()], []
        # Order by id: the composition of a batch must not depend on who asked first.
        requests.sort(key=lambda r: r.trajectory_id)
        for part in self._batches(requests):
            try:
                with evaluating(self.model):
                    results = self._run(part)
            except Exception as error:  # handed to every waiting episode, which raises it in its own place
                for request in part:
                    if not request.future.done():
                        request.future.set_exception(error)
                continue
            for request, result in zip(part, results):
                if not request.future.cancelled():
                    request.future.set_result(result)

    def _batches(self, requests: list[_Request]) -> list[list[_Request]]:
        """In the order given: what shares a batch depends on the requests alone."""
        batches: list[list[_Request]] = []
        widest = 0
        for request in requests:
            width = min(self.context, len(request.prompt_ids) + request.sampling.max_tokens)
            full = not batches or len(batches[-1]) == self.max_rows
            if full or self.max_cache_tokens and (len(batches[-1]) + 1) * max(widest, width) > self.max_cache_tokens:
                batches.append([])
                widest = 0
            batches[-1].append(request)
            widest = max(widest, width)
        return batches

    @torch.no_grad()
    def _run(self, requests: list[_Request]) -> list[Generation]:
        device = self.model.device
        self._store.start(self.weights_version)
        rows = len(requests)
        prompts = [r.prompt_ids for r in requests]
        budgets = [min(r.sampling.max_tokens, self.context - len(r.prompt_ids)) for r in requests]
        cached = [self._store.prefix(r.trajectory_id, r.prompt_ids) if self.reuse_cache else 0 for r in requests]
        chunks = [p[c:] for p, c in zip(prompts, cached)]
        chunk_width = max(len(c) for c in chunks)
        width = max(max(len(p) + b for p, b in zip(prompts, budgets)), max(c + chunk_width for c in cached))
        cache = WorkingCache(self.model.config.num_hidden_layers, width)
        self._store.load(cache, [(r.trajectory_id, c) for r, c in zip(requests, cached)], next(self.model.parameters()))

        ids_RT = torch.full((rows, chunk_width), self.pad_id, dtype=torch.long)
        for row, chunk in enumerate(chunks):
            ids_RT[row, : len(chunk)] = torch.tensor(chunk)
        start_R = torch.tensor(cached)
        positions_RT = start_R[:, None] + torch.arange(chunk_width)[None]
        last_R = torch.tensor([len(c) - 1 for c in chunks])
        logits_RV = self._forward(ids_RT.to(device), positions_RT.to(device), cache, width, last_R.to(device))
        self.prompt_tokens += sum(len(c) for c in chunks)

        uniforms = [np.random.Generator(np.random.Philox(r.sampling.key)).random(max(b, 1)) for r, b in zip(requests, budgets)]
        out_ids: list[list[int]] = [[] for _ in requests]
        out_logp: list[list[float]] = [[] for _ in requests]
        out_entropy: list[list[float]] = [[] for _ in requests]
        finish = ["length"] * rows
        active = list(range(rows))
        stops = [set(r.sampling.stop_ids) for r in requests]
        temperature_R = torch.tensor([r.sampling.temperature for r in requests], dtype=torch.float32, device=device)
        step = 0
        while active:
            index = torch.tensor(active, device=device)
            temperature_A = temperature_R[index]
            uniform_A = torch.tensor([uniforms[row][step] for row in active], dtype=torch.float64, device=device)
            token_A, logp_A, entropy_A = sample(logits_RV, temperature_A, uniform_A)
            tokens, logps, entropies = token_A.tolist(), logp_A.tolist(), entropy_A.tolist()
            still = []
            for place, row in enumerate(active):
                out_ids[row].append(tokens[place])
                out_logp[row].append(logps[place])
                out_entropy[row].append(entropies[place])
                if tokens[place] in stops[row]:
                    finish[row] = "stop"
                elif len(out_ids[row]) < budgets[row]:
                    still.append(place)
            self.sampled_tokens += len(active)
            done = [row for place, row in enumerate(active) if place not in set(still)]
            if self.reuse_cache:
                places = {row: place for place, row in enumerate(active)}
                for row in done:  # the last sampled token's keys were never computed
                    self._store.save(cache, places[row], requests[row].trajectory_id, prompts[row] + out_ids[row][:-1])
            if not still:
                break
            if len(still) < len(active):  # a finished row leaves the batch at once
                cache.keep_rows(torch.tensor(still, device=device))
            active = [active[place] for place in still]
            step += 1
            next_A1 = torch.tensor([[out_ids[row][-1]] for row in active], device=device)
            position_A1 = torch.tensor([[len(prompts[row]) + len(out_ids[row]) - 1] for row in active], device=device)
            logits_RV = self._forward(next_A1, position_A1, cache, width, torch.zeros(len(active), dtype=torch.long, device=device))
        return [
            Generation(out_ids[i], out_logp[i], out_entropy[i], finish[i], self.weights_version) for i in range(rows)
        ]

    def _forward(self, ids_RT, positions_RT, cache, width, last_R):
        cache.place(positions_RT)
        mask = attention_mask(self.model, torch.arange(width, device=ids_RT.device)[None, None] <= positions_RT[:, :, None])
        hidden = self.model.get_decoder()(
            input_ids=ids_RT, attention_mask=mask, position_ids=positions_RT, past_key_values=cache, use_cache=True
        ).last_hidden_state
        picked = hidden[torch.arange(len(last_R), device=hidden.device), last_R]
        return self.model.get_output_embeddings()(picked)


@contextmanager
def evaluating(model):
    """The model in evaluation mode, and afterwards as it was: transformers takes the cache from a model that is training
    with gradient checkpointing."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def sample(logits_RV: torch.Tensor, temperature_R: torch.Tensor, uniform_R: torch.Tensor):
    """Draw one token per row by inverting the cumulative distribution of softmax(logits / T).

    T = 0 takes the arg max and reports log-probs at T = 1.  Returns ids [R], float32 log-probs [R] and entropies [R]
    in nats, all of the distribution that was sampled from.
    """
    logits = logits_RV.float()
    greedy_R = temperature_R == 0
    scale = torch.where(greedy_R, torch.ones_like(temperature_R), temperature_R)
    logp_RV = torch.log_softmax(logits / scale[:, None], dim=-1)
    p_RV = logp_RV.exp()
    # A token that is masked to -inf adds 0 to the entropy, not 0 * inf.
    entropy_R = -(p_RV * logp_RV.clamp(min=torch.finfo(logp_RV.dtype).min)).sum(-1)
    cumulative = p_RV.double().cumsum(-1)
    # Scale by the total, which rounding leaves a little off 1, so that the last token with mass is never passed over.
    target = uniform_R * cumulative[:, -1]
    drawn = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    token_R = torch.where(greedy_R, logits.argmax(-1), drawn)
    return token_R, logp_RV.gather(1, token_R[:, None])[:, 0], entropy_R
