"""verl's FSDP2 engine with our scorer: log-probs and entropies of sampled tokens alone, in chunks of the vocabulary.

verl's own makes logits of every position of a packed micro-batch; a prompt's are never used.  Importing this module
registers the engine (`actor_rollout_ref.model.external_lib`).
"""

from __future__ import annotations

from types import MethodType

import torch
from tensordict import TensorDict
from torch.distributed.tensor import DTensor
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp import transformer_impl
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from seedlab.engines.verl import replica  # noqa: F401  registers the rollout backend of a CPU
from seedlab.policy.score import ScoreRow, forward_rows

if get_device_name() == "cpu":
    # verl keeps a reference in pinned memory, which only an accelerator has
    transformer_impl.CPUOffloadPolicy = lambda **_: None


def _score(module, rows, temperature, want_entropy, use_cache=False):
    """Stands for the model's forward: FSDP2 gathers the sharded weights around it as around any other."""
    return forward_rows(module, rows, temperature=temperature, want_entropy=want_entropy)


@EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device=["cuda", "cpu"], vendor=["nvidia", "seedlab"])
class SeedEngine(FSDPEngineWithLMHead):
    """`input_ids` [B, L] and `scored` [B, n] (positions of the sampled tokens) are jagged; so are the outputs [B, n]."""

    def _build_module(self):
        module = super()._build_module()
        module.forward = MethodType(_score, module)
        return module

    def prepare_model_inputs(self, micro_batch: TensorDict):
        ids, scored = micro_batch["input_ids"].unbind(), micro_batch["scored"].unbind()
        rows = [ScoreRow(i.tolist(), p.tolist()) for i, p in zip(ids, scored)]
        wanted = tu.get_non_tensor_data(micro_batch, key="calculate_entropy", default=False)
        return {"rows": rows, "temperature": float(micro_batch["temperature"]), "want_entropy": bool(wanted)}, {}

    def prepare_model_outputs(self, output, output_args, micro_batch: TensorDict, logits_processor_func):
        logp, entropy = output
        offsets = micro_batch["scored"].offsets()
        found = {"log_probs": torch.nested.nested_tensor_from_jagged(logp, offsets)}
        if tu.get_non_tensor_data(micro_batch, key="calculate_entropy", default=False):
            found["entropy"] = torch.nested.nested_tensor_from_jagged(entropy, offsets)
        return found

    def optimizer_step(self) -> float:
        """A zero gradient moves nothing: no step, so that momentum and weight decay do not act on an empty minibatch."""
        anything = torch.tensor(float(any(_nonzero(p.grad) for p in self.module.parameters())), device=get_device_name())
        torch.distributed.all_reduce(anything, op=torch.distributed.ReduceOp.MAX)
        if not anything.item():
            self.optimizer.zero_grad()
            return 0.0
        return super().optimizer_step()


def _nonzero(grad) -> bool:
    if grad is None:
        return False
    local = grad.to_local() if isinstance(grad, DTensor) else grad
    return bool((local != 0).any())  # NaN counts: the step reports it
