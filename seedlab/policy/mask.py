"""An attention mask of our own in the form that the model's attention implementation reads."""

from __future__ import annotations

import torch


def attention_mask(model, allowed_BLL: torch.Tensor) -> torch.Tensor:
    """[B, 1, L, L] from booleans [B, L, L] (query, key): as they are for sdpa, which picks a kernel by them, and as
    numbers to add for eager, which would add True as 1."""
    allowed = allowed_BLL[:, None]
    if model.config._attn_implementation != "eager":
        return allowed
    return torch.zeros(allowed.shape, dtype=model.dtype, device=allowed.device).masked_fill(~allowed, torch.finfo(model.dtype).min)
