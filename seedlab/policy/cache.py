"""Keys and values by slot: one slot per trajectory, rows of different lengths side by side.

Layout: right-padded chunks, positions per row, keys and values written at the row's own positions, a query
at position p attends to key positions <= p.  What lies beyond a row's length is never attended to, so it needs
no clearing.  There is no left padding.
"""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):
    """One layer's working buffers [rows, kv heads, width, head dim]; `positions_RT` says where a chunk goes."""

    is_sliding = False

    def __init__(self):
        super().__init__()
        self.positions_RT: torch.Tensor | None = None
        self.width = 0

    def lazy_initialization(self, key_states, value_states):
        rows, heads, _, dim = key_states.shape
        self.keys = key_states.new_zeros(rows, heads, self.width, dim)
        self.values = value_states.new_zeros(rows, heads, self.width, dim)
        self.is_initialized = True

    def update(self, key_states, value_states, *args, **kwargs):
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        index = self.positions_RT[:, None, :, None].expand_as(key_states)
        self.keys.scatter_(2, index, key_states)
        self.values.scatter_(2, index, value_states)
        return self.keys, self.values

    def get_mask_sizes(self, query_length):
        return self.width, 0

    def get_seq_length(self):
        return 0

    def get_max_cache_shape(self):
        return self.width


class WorkingCache(Cache):
    """The cache that one batch of rows is generated with."""

    def __init__(self, layers: int, width: int):
        super().__init__(layers=[SlotLayer() for _ in range(layers)])
        for layer in self.layers:
            layer.width = width

    def place(self, positions_RT: torch.Tensor) -> None:
        for layer in self.layers:
            layer.positions_RT = positions_RT

    def keep_rows(self, rows: torch.Tensor) -> None:
        for layer in self.layers:
            layer.keys, layer.values = layer.keys[rows], layer.values[rows]


class SlotStore:
    """What stays between the turns of an episode: ids and keys and values per trajectory.

    Valid for one weights version only, and reused only for an exact prefix of the ids.
    """

    def __init__(self):
        self.version = -1
        self._rows: dict[str, tuple[list[int], list[tuple[torch.Tensor, torch.Tensor]]]] = {}

    def start(self, version: int) -> None:
        if version != self.version:
            self._rows.clear()
            self.version = version

    def prefix(self, trajectory_id: str, prompt_ids: list[int]) -> int:
        """How many ids of the prompt are cached; at least one is left to compute, for its logits."""
        if trajectory_id not in self._rows:
            return 0
        cached = self._rows[trajectory_id][0]
        limit = min(len(cached), len(prompt_ids) - 1)
        if cached[:limit] == prompt_ids[:limit]:
            return limit
        return next(i for i in range(limit) if cached[i] != prompt_ids[i])

    def load(self, cache: WorkingCache, requests: list[tuple[str, int]], like: torch.Tensor) -> None:
        """Fill the working buffers from (trajectory, cached length) per row."""
        held = [self._rows[t][1] for t, length in requests if length]
        if not held:
            return
        for index, layer in enumerate(cache.layers):
            sample = held[0][index][0]
            layer.lazy_initialization(
                sample.new_empty(len(requests), sample.shape[0], 1, sample.shape[2]),
                sample.new_empty(len(requests), sample.shape[0], 1, sample.shape[2]),
            )
            for row, (trajectory_id, length) in enumerate(requests):
                if length:
                    keys, values = self._rows[trajectory_id][1][index]
                    layer.keys[row, :, :length] = keys[:, :length]
                    layer.values[row, :, :length] = values[:, :length]

    def save(self, cache: WorkingCache, row: int, trajectory_id: str, ids: list[int]) -> None:
        length = len(ids)
        self._rows[trajectory_id] = (
            ids,
            [(layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone()) for layer in cache.layers],
        )

    def release(self, trajectory_id: str) -> None:
        self._rows.pop(trajectory_id, None)

    def clear(self) -> None:
        self._rows.clear()
