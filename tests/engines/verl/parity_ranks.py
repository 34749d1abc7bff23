"""Run by torchrun on two ranks: one fixed batch through the in-process engine and through verl's FSDP2 engine.

Prints one JSON line with the largest differences; rank 1 gets only rows without any OPD token (case C7).
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import torch

from seedlab.config.presets import load_config, parse_overrides
from seedlab.config.schedule import at_update
from seedlab.engines.verl.config import compose
from seedlab.engines.verl.loop import environment
from seedlab.objective.compose import minibatch_denominators, objective
from seedlab.objective.metrics import WeightedMeans
from seedlab.policy.load import load_policy
from seedlab.skills import ScriptedAnalyzer, assign_skills, write_skills
from seedlab.train.base import build_tiny_base
from seedlab.train.batch import advantages_of, prepare_batch
from seedlab.train.session import Ledger, Session
from seedlab.train.sft import make_optimizer
from seedlab.train.tasks import group_episodes
from seedlab.train.tokens import minibatch_masks, set_baseline, token_batch
from seedlab.train.update import Updater


def batch_of(cfg, policy):
    """A played batch with scripted skills, the trajectories of every second task without one."""
    session = Session(cfg, policy)
    tasks = list(session.panels["train"].task_ids[:4])
    trajectories = session.play(group_episodes(tasks, 2), phase="u", update=0, seed=0, temperature=1.0)
    for number, trajectory in enumerate(trajectories):  # an untrained policy ties every group otherwise
        trajectory.returned = float(number % 2)
    skills = write_skills(
        trajectories, ScriptedAnalyzer(session.family, cfg.analyzer.contract, cfg.objective.critical_steps), session.prompts, session.chat,
        cfg.analyzer, snapshot=0, key=lambda t: 0, critical_steps=cfg.objective.critical_steps,
    ).skills
    assigned = assign_skills(trajectories, skills, "scripted", 0)
    assigned = {t.id: assigned[t.id] if t.task_id in tasks[:2] else None for t in trajectories}
    advantages = advantages_of(trajectories, cfg)
    batch, _ = prepare_batch(session, trajectories, advantages, assigned)
    # theta_old and the reference differ from theta: ratios and the KL term are put to the test
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(len(r.positions), generator=generator) * 0.1 for r in batch.rows]
    batch.logp_old = [torch.tensor(r.logp_rollout) + n for r, n in zip(batch.rows, noise)]
    batch.logp_ref = [torch.tensor(r.logp_rollout) - 2 * n for r, n in zip(batch.rows, noise)]
    return batch


def in_process(cfg, policy, batch):
    """(advantages, gates, loss, gradients by name, parameters after one step) of the in-process engine."""
    optimizer = make_optimizer(policy.model, learning_rate=cfg.stage2.learning_rate, weight_decay=0.01, betas=cfg.stage2.betas)
    updater = Updater(cfg, policy, None, optimizer)
    indices = list(range(len(batch.rows)))
    teacher = updater._teacher(batch, indices, Ledger(1))
    set_baseline(batch, indices, teacher, cfg.objective)
    record, frame = updater._minibatch(batch, indices, teacher, 0, WeightedMeans(), 0)
    # gradients before the clip: scaled back by what the clip took
    scale = max(1.0, record["grad_norm"] / cfg.stage2.grad_clip)
    gradients = {n: p.grad * scale for n, p in policy.model.named_parameters()}
    coefficients = {
        "policy": cfg.objective.rl_coef, "opd": at_update(cfg.objective, 0).opd_coef, "kl": cfg.objective.kl_coef, "entropy": -cfg.objective.entropy_coef,
    }  # fmt: skip
    loss = sum(c * record[name] for name, c in coefficients.items())
    return teacher, frame, loss, gradients, {n: p.detach().clone() for n, p in policy.model.named_parameters()}


def under_verl(cfg, folder, batch, teacher):
    from verl.utils import tensordict_utils as tu
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.engine import EngineRegistry

    from seedlab.engines.verl import engine as _  # noqa: F401
    from seedlab.engines.verl.loss import VISITED, loss_fields, seed_loss
    from seedlab.engines.verl.queue import row_tensors
    from seedlab.engines.verl.updater import token_fields

    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    composed = compose(cfg, model=folder)
    actor = omega_conf_to_dataclass(composed.actor_rollout_ref.actor)
    engine = EngineRegistry.new(
        model_type="language_model", backend="fsdp2", model_config=omega_conf_to_dataclass(composed.actor_rollout_ref.model),
        engine_config=actor.engine, optimizer_config=actor.optim, checkpoint_config=actor.checkpoint,
    )
    engine.initialize()
    rows = list(range(len(batch.rows)))
    with_opd = [i for i in rows if batch.opd_mask_B[i] > 0]
    without = [i for i in rows if batch.opd_mask_B[i] == 0]
    assert with_opd and without
    size = max(len(with_opd), len(without))
    order = []
    filler = len(rows)
    for part in (with_opd, without):
        order += part
        while len(part) < size:
            part = [*part, filler]
            order.append(filler)
            filler += 1
    mine = order[rank * size : (rank + 1) * size]
    data = row_tensors([batch.rows[i].student for i in rows], token_fields(batch, rows, teacher), mine)
    assert rank == 0 or float(data["mask_opd"].values().sum()) == 0.0
    denominators = minibatch_denominators(*minibatch_masks(batch, rows), cfg.objective)
    tu.assign_non_tensor(
        data, use_dynamic_bsz=True, max_token_len_per_gpu=cfg.stage2.micro_batch_tokens, temperature=cfg.rollout.temperature,
        calculate_entropy=True, **loss_fields(denominators, update=0),
    )  # fmt: skip
    loss_fn = partial(seed_loss, cfg=cfg.objective)
    with engine.train_mode():
        engine.optimizer_zero_grad()
        output = engine.forward_backward_batch(data, loss_fn)
        gradients = {n: p.grad.full_tensor().clone() for n, p in engine.module.named_parameters()}
        engine.optimizer_step()
    parameters = {n: p.full_tensor().clone() for n, p in engine.module.state_dict().items()}
    loss = torch.tensor(sum(output["loss"])) / ranks  # the loss is scaled by the ranks, whose gradients are averaged
    torch.distributed.all_reduce(loss)
    visited: list = [None] * ranks
    torch.distributed.all_gather_object(visited, output["metrics"][VISITED])
    seen = {row: (torch.from_numpy(lp), torch.from_numpy(en)) for part in visited for row, lp, en in part if row < len(rows)}
    logp, entropy = ([seen[i][part] for i in rows] for part in (0, 1))
    inputs = token_batch(batch, rows, logp, entropy, teacher)
    return objective(inputs, denominators, at_update(cfg.objective, 0)), inputs, float(loss), gradients, parameters, len(output["loss"])


def main(layout: str, aggregation: str, folder: str, *overrides: str) -> None:
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    cfg = load_config(
        "micro",
        {
            "engine": "verl", "env.layout": layout, "env.history_window": 2 if layout == "step" else None, "objective.opd_coef": 0.5,
            "objective.skill_from": "scripted", "objective.aggregation": aggregation, "objective.entropy_coef": 0.01 if layout == "step" else 0.0,
            "stage2.minibatches": 1, "stage2.micro_batch_tokens": 1024, "stage2.grad_clip": 0.1, "cluster.gpus": 2,
            **parse_overrides(overrides),
        },
    )  # fmt: skip
    base = build_tiny_base(cfg)
    policy = load_policy(base, cfg.model, trainable=True)
    batch = batch_of(cfg, policy)
    teacher, frame, loss, gradients, parameters = in_process(cfg, policy, batch)
    output, inputs, verl_loss, verl_gradients, verl_parameters, micro_batches = under_verl(cfg, base, batch, teacher)
    frame = frame.sort_values(["row", "step", "position"], ignore_index=True)
    sizes = [len(r.positions) for r in batch.rows]
    flat = lambda t: torch.cat([t[i, :n] for i, n in enumerate(sizes)])  # noqa: E731
    seen = {
        "advantage": (flat(output.advantage), frame["advantage"]), "gate": (flat(output.gate), frame["gate"].fillna(0.0)),
        "logp": (flat(inputs.logp), frame["logp_student"]), "ratio": (flat(output.ratio), frame["ratio"]),
        "entropy": (flat(inputs.entropy), frame["entropy"]),
    }  # fmt: skip
    report = {name: float((a.double() - torch.tensor(b.to_numpy()).double()).abs().max()) for name, (a, b) in seen.items()}
    report["loss"] = abs(loss - verl_loss)
    report["gradient"] = max(float((gradients[n] - verl_gradients[n]).abs().max()) for n in gradients)
    report["gradient_size"] = max(float(g.abs().max()) for g in gradients.values())
    # Adam's first step is the gradient's sign: where the gradient is rounding alone, so is the step
    clear = {n: g.abs() > 1e-4 * report["gradient_size"] for n, g in gradients.items()}
    report["parameters"] = max(float(((parameters[n] - verl_parameters[n]).abs() * clear[n]).max()) for n in parameters)
    report["clear"] = float(sum(c.sum() for c in clear.values()) / sum(c.numel() for c in clear.values()))
    report["moved"] = max(float((parameters[n] - p).abs().max()) for n, p in load_policy(base, cfg.model).model.named_parameters())
    report["changed_advantages"] = float((flat(output.advantage) != flat(inputs.advantage * (inputs.mask_policy > 0))).sum())
    report["sequence_ratio"] = float(flat(output.ratio).unique().numel() <= len(sizes))
    report |= {"opd_tokens": float(inputs.mask_opd.sum()), "tokens": float(inputs.mask_policy.sum()), "micro_batches": micro_batches}
    report["equal_ranks"] = _equal_on_ranks(verl_parameters)
    if torch.distributed.get_rank() == 0:
        Path(folder, "report.json").write_text(json.dumps(report))
    torch.distributed.destroy_process_group()


def _equal_on_ranks(parameters) -> bool:
    total = torch.stack([p.double().sum() for p in parameters.values()])
    high, low = total.clone(), total.clone()
    torch.distributed.all_reduce(high, op=torch.distributed.ReduceOp.MAX)
    torch.distributed.all_reduce(low, op=torch.distributed.ReduceOp.MIN)
    return bool((high == low).all())


if __name__ == "__main__":
    os.environ.update(environment(load_config("micro", {"engine": "verl"})))
    main(*sys.argv[1:])
