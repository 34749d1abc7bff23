"""Stage 1's training on several processes: DeepSpeed ZeRO under torchrun, with the rows and the loss of `train.sft`.

``torchrun … -m seedlab.engines.deepspeed_sft JOB`` is one process of it; :mod:`seedlab.engines.deepspeed_launch` writes
the job's folder and starts them.  Every process holds all documents and takes its share of each batch; all make the
same number of forward passes, so that no collective call waits for ever.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Sequence

import torch
import torch.distributed as dist

from seedlab.config.schema import ClusterConfig, ModelConfig
from seedlab.engines.deepspeed_job import SftJob, parent_lives, read_job, tell
from seedlab.errors import UserError
from seedlab.policy.load import load_policy
from seedlab.store.checkpoint import latest_checkpoint, save_checkpoint
from seedlab.store.files import SCHEMA_VERSION, append_line
from seedlab.train.sft import STAGE1, DocumentLoss, Parts, SftSettings, Stepper, make_optimizer, plan_parts, train_documents

STATE = "state"  # folder of DeepSpeed's own files inside a checkpoint


def shares(lengths: Sequence[int], processes: int, settings: SftSettings) -> list[Parts]:
    """Each process's forward passes of a batch: documents by length to whoever has the fewest tokens so far.

    All processes get the same number of passes; one that has fewer of its own gets empty ones (no line).
    """
    own: list[list[int]] = [[] for _ in range(processes)]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        lightest = min(range(processes), key=lambda p: (sum(lengths[i] for i in own[p]), p))
        own[lightest].append(index)
    parts = []
    for documents in own:
        planned = plan_parts([lengths[i] for i in documents], settings)
        parts.append([[[documents[k] for k in line] for line in part] for part in planned])
    passes = max(len(p) for p in parts)
    return [p + [[]] * (passes - len(p)) for p in parts]


class SharedLoss(DocumentLoss):
    """The loss whose empty pass still runs the model, on a document of the batch with weight 0."""

    def forward(self, documents, lines):
        if lines:
            return super().forward(documents, lines)
        shortest = min(range(len(documents)), key=lambda i: len(documents[i].ids))
        return super().forward(documents, [[shortest]]) * 0.0


class DeepSpeedStepper(Stepper):
    """`train.sft.Stepper` on top of DeepSpeed's engine.

    DeepSpeed averages gradients over processes; a loss times their number becomes the sum that the denominator of the
    whole batch asks for.
    """

    def __init__(self, model, settings: SftSettings, cluster: ClusterConfig, *, pad_id: int, bfloat16: bool, job: Path):
        import deepspeed

        self.settings, self.cluster, self.job, self.world = settings, cluster, job, dist.get_world_size()
        optimizer = make_optimizer(
            model, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay, betas=settings.betas
        )
        self.loss, self.optimizer, _, _ = deepspeed.initialize(
            model=SharedLoss(model, pad_id), optimizer=optimizer, config=deepspeed_config(settings, cluster, bfloat16=bfloat16)
        )

    def share(self, lengths):
        return shares(lengths, self.world, self.settings)[dist.get_rank()]

    def begin(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def backward(self, loss, *, last: bool) -> None:
        self.loss.set_gradient_accumulation_boundary(last)
        self.loss.backward(loss * self.world)

    def step(self) -> None:
        self.loss.step()

    def total(self, value: float) -> float:
        tensor = torch.tensor([value], dtype=torch.float64 if self.loss.device.type == "cpu" else torch.float32, device=self.loss.device)
        dist.all_reduce(tensor)
        return float(tensor)

    def step_done(self, step: int, losses: list[float]) -> None:
        if not parent_lives(os.environ):
            raise UserError("the process that started this training is gone; start it again to go on from the last checkpoint")
        if step % self.cluster.sft_checkpoint_every == 0:
            self.save(step, losses)

    def save(self, step: int, losses: list[float]) -> None:
        """A checkpoint that is complete or absent; all processes write into the folder that the first one opens."""

        def write(folder: Path) -> None:
            place = [str(folder)]
            dist.broadcast_object_list(place, src=0)
            self.loss.save_checkpoint(place[0], tag=STATE, client_state={"losses": losses})
            dist.barrier()

        if dist.get_rank() == 0:
            save_checkpoint(self.job, step, write, keep=1, min_free_gb=0.0)
        else:
            place: list = [None]
            dist.broadcast_object_list(place, src=0)
            self.loss.save_checkpoint(place[0], tag=STATE, client_state={"losses": losses})
            dist.barrier()
        dist.barrier()

    def restore(self) -> list[float]:
        """Losses of the steps already done; weights and optimizer are those after them."""
        found = latest_checkpoint(self.job)
        if found is None:
            return []
        path, state = self.loss.load_checkpoint(str(found[1]), tag=STATE)
        if path is None:
            raise UserError(f"DeepSpeed cannot read its checkpoint in {found[1]}; remove {self.job / 'checkpoints'} to start this training anew")
        return list(state["losses"])


def deepspeed_config(settings: SftSettings, cluster: ClusterConfig, *, bfloat16: bool) -> dict:
    """DeepSpeed's own configuration; the number of forward passes of a step is ours, hence no accumulation of its own."""
    zero: dict = {"stage": cluster.sft_zero_stage}
    if cluster.sft_offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {
        "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": settings.grad_clip,
        "bf16": {"enabled": bfloat16}, "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,  # torch's AdamW, as without DeepSpeed
        "steps_per_print": 10**9,
    }  # fmt: skip


def start_processes(device: str, cluster: ClusterConfig) -> None:
    """Join the other processes of torchrun, each with a GPU of its own where `device` is cuda."""
    import deepspeed

    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    backend = "nccl" if device == "cuda" else "gloo"
    deepspeed.init_distributed(dist_backend=backend, timeout=timedelta(seconds=cluster.collective_timeout_s), verbose=False)


def train(job: SftJob) -> None:
    """Train the job's documents and leave ``result`` in its folder: a Hugging Face folder and losses.json."""
    torch.set_num_threads(job.threads)
    start_processes(job.model.device, job.cluster)
    # Weights are read on the CPU by every process; DeepSpeed moves what a process keeps.
    policy = load_policy(job.policy, job.model.model_copy(update={"device": "cpu"}), trainable=True)
    policy.model.train()
    stepper = DeepSpeedStepper(
        policy.model, job.settings, job.cluster, pad_id=policy.pad_id, bfloat16=job.model.dtype == "bfloat16", job=job.folder
    )
    first = dist.get_rank() == 0

    def on_step(step: int, total: int, loss: float) -> None:
        if first:
            append_line(job.folder / "progress.jsonl", {"schema_version": SCHEMA_VERSION, "step": step, "total": total, "loss": loss})

    before = stepper.restore()
    losses = train_documents(
        policy.model, job.documents, job.batches, job.settings, pad_id=policy.pad_id, stepper=stepper, before=before, on_step=on_step,
        **STAGE1,
    )
    found = latest_checkpoint(job.folder)
    if found is None or found[0] != len(losses):
        stepper.save(len(losses), losses)
    if first:
        export(job, latest_checkpoint(job.folder)[1])
        (job.folder / "losses.json").write_text(json.dumps(losses))
    dist.barrier()
    dist.destroy_process_group()


def export(job: SftJob, checkpoint: Path) -> None:
    """The float32 weights of a checkpoint, gathered from all processes' parts, as a plain Hugging Face folder."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    policy = load_policy(job.policy, job.model.model_copy(update={"device": "cpu"}), trainable=True)
    state = get_fp32_state_dict_from_zero_checkpoint(str(checkpoint), tag=STATE)
    weights = {name.removeprefix("model."): tensor for name, tensor in state.items()}
    missing, unexpected = policy.model.load_state_dict(weights, strict=False)
    tied = set(policy.model.all_tied_weights_keys)
    if unexpected or set(missing) - tied:
        raise UserError(f"the checkpoint {checkpoint} does not fit {job.policy}: missing {sorted(set(missing) - tied)}, unexpected {unexpected}")
    policy.save(job.folder / "result")


def main(folder: Path) -> None:
    """Train the job in `folder`; what ended it stands there too, where the user can mend it."""
    try:
        train(read_job(folder))
    except (UserError, MemoryError, RuntimeError) as error:
        tell(folder, error)
        if isinstance(error, UserError):
            sys.exit(f"error: {error}")
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
