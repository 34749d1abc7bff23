"""Our objective as verl's loss function (`set_loss_fn`)."""

from __future__ import annotations

from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from seedlab.config.schedule import at_update
from seedlab.config.schema import ObjectiveConfig
from seedlab.objective.aggregate import Denominators
from seedlab.objective.compose import MinibatchDenominators, TokenBatch, objective
from seedlab.train.tokens import pad

VISITED = "seedlab/visited"
OPTIONAL = ("logp_ref", "logp_teacher", "mask_step", "baseline")
FIELDS = ("logp_old", "advantage", "mask_policy", "mask_opd")
UPDATE = "seedlab_update"  # coefficients with a schedule are a function of it
COUNTS = ("policy_tokens", "policy_sequences", "opd_tokens", "opd_sequences")


def loss_fields(denominators: MinibatchDenominators, update: int) -> dict[str, float]:
    """Counts of the whole minibatch, over all ranks, and the update's number: plain numbers that travel beside the data."""
    parts = (denominators.policy.tokens, denominators.policy.sequences, denominators.opd.tokens, denominators.opd.sequences)
    return dict(zip(COUNTS, parts)) | {UPDATE: float(update)}


def seed_loss(model_output, data: TensorDict, dp_group=None, *, cfg: ObjectiveConfig):
    """Loss of one rank's micro-batch, times the number of ranks, since FSDP averages gradients over them.

    The metrics carry each row's number, log-probs and entropies back, so that the driver can write the token rows.
    """
    logp = model_output["log_probs"]
    entropy = model_output.get("entropy")
    present = [*FIELDS, *(name for name in OPTIONAL if name in data.keys())]
    # A jagged tensor's own padding depends on what it happens to remember of its longest row.
    padded = {name: pad(data[name].unbind()) for name in present}
    inputs = TokenBatch(
        logp=pad(logp.unbind()), entropy=None if entropy is None else pad(entropy.unbind()),
        **{name: None for name in OPTIONAL} | padded,
    )  # fmt: skip
    tokens, sequences, opd_tokens, opd_sequences = (float(tu.get_non_tensor_data(data, key=name, default=0.0)) for name in COUNTS)
    denominators = MinibatchDenominators(Denominators(tokens, sequences), Denominators(opd_tokens, opd_sequences))
    update = int(tu.get_non_tensor_data(data, key=UPDATE, default=0.0))
    loss = objective(inputs, denominators, at_update(cfg, update)).loss
    if not loss.requires_grad:
        loss = loss + 0.0 * logp.values().sum()  # every rank goes through the backward pass, also one without any term
    visited = [
        (int(row), lp.detach().float().cpu().numpy(), None if entropy is None else en.detach().float().cpu().numpy())
        for row, lp, en in zip(data["row"].tolist(), logp.unbind(), logp.unbind() if entropy is None else entropy.unbind())
    ]
    return loss * data["dp_size"], {VISITED: visited}
