"""Random streams named by what they are for, never by arrival order."""

from __future__ import annotations

import hashlib


def stream_key(*parts: object) -> int:
    """A 128-bit key from (seed, phase, update, task, n, step, …); equal parts give equal streams on any machine."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")
