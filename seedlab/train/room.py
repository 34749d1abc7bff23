"""Memory that ran out, in words that say which keys make room, whichever engine and process it happened in."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, Literal

import torch

from seedlab.config.schema import Config
from seedlab.errors import UserError

Part = Literal["update", "rollout", "sft"]
HOST = "DefaultCPUAllocator"  # torch's words where the machine's own memory is full are those of a plain RuntimeError


class OutOfMemory(UserError):
    """The message says in which part of a run, in torch's words how much was missing, and which keys make room."""

    exit_code = 1


@contextmanager
def room(cfg: Config, part: Part, where: str) -> Iterator[None]:
    """Raises OutOfMemory, with `where` and what to change, where memory runs out in the block.

    An error that Ray brought here from another process is an instance of that process's own error too.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not ran_out(error):
            raise
        raise OutOfMemory(f"{where}: out of memory ({words(error)}); {advice(cfg, part)}, with `seedlab resume RUN KEY=VALUE`") from error


def ran_out(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or HOST in str(error)


def words(error: BaseException) -> str:
    """The last line: what comes before it is Ray's traceback of another process."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def advice(cfg: Config, part: Part) -> str:
    """The keys that make room in `part`, with their present values; those that are set already are left out."""
    cluster, verl = cfg.cluster, cfg.engine == "verl"
    tokens = f"lower stage2.micro_batch_tokens={cfg.stage2.micro_batch_tokens} (it never changes a gradient)"
    checkpointing = None if cfg.model.gradient_checkpointing else "set model.gradient_checkpointing=true"
    bound = cluster.max_cache_tokens
    ways: dict[str, list[str | None]] = {
        "update": [
            tokens, checkpointing,
            "set cluster.offload_optimizer=true" if verl and not cluster.offload_optimizer else None,
            "set cluster.sleep=true" if verl and not cluster.sleep else None,
        ],
        "rollout": [
            f"lower cluster.gpu_memory_utilization={cluster.gpu_memory_utilization:g}" if verl
            else f"lower cluster.max_cache_tokens={bound}" if bound else "set cluster.max_cache_tokens (0: no bound)",
        ],
        "sft": [
            tokens, checkpointing,
            f"lower cluster.sft_pack_tokens={cluster.sft_pack_tokens}" if cluster.sft_pack_tokens else None,
            "set cluster.sft_offload_optimizer=true" if cluster.sft_zero_stage and not cluster.sft_offload_optimizer else None,
        ],
    }  # fmt: skip
    return " or ".join(filter(None, ways[part]))
