"""One policy update, line by line as the paper's algorithm has it, against the trainer (paper section 3)."""

import copy

import numpy as np
import pytest
import torch

from seedlab.config.schema import Config, TinyConfig
from seedlab.envs.protocol import Panel
from seedlab.episodes.keys import stream_key
from seedlab.episodes.records import Step, Trajectory
from seedlab.objective.advantages import group_advantages
from seedlab.policy.load import Policy
from seedlab.policy.score import score
from seedlab.policy.tiny import build_model
from seedlab.rows.build import attach_teacher, build_rows, split_minibatches
from seedlab.train.session import Ledger
from seedlab.train.sft import Document, SftSettings, mean_loss, train_documents
from seedlab.train.tasks import group_episodes, tasks_of_update
from seedlab.train.tokens import PreparedBatch
from seedlab.train.update import Updater

VOCABULARY, SKILL = 12, [10, 11, 9]
RETURNS, GROUPS = [1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]  # the second group ties
LAMBDA, BETA, BETA_KL, EPSILON, RATE = 0.3, 5.0, 0.05, 0.2, 0.1


class Pad:
    pad_token_id = 0


def a_policy(seed):
    cfg = TinyConfig(hidden=16, layers=1, heads=2, kv_heads=1, intermediate=16, init_std=0.2, seed=seed)
    return Policy(build_model(cfg, VOCABULARY, 64, eos=1, pad=0), Pad(), chat=None)


def a_step(prompt, response):
    return Step("", "", "", prompt, response, [0.0] * len(response), [0.0] * len(response), "stop", True, True, 0.0)


def a_rollout_batch(policy):
    """Four trajectories of two steps in the conversation layout, with the log-probs that theta_old gives their tokens."""
    rng = np.random.default_rng(0)
    trajectories = []
    for n, (returned, group) in enumerate(zip(RETURNS, GROUPS)):
        first, second = (rng.integers(2, 9, 3).tolist() for _ in range(2))
        prompt = [1, 2, 3 + group]
        steps = [a_step(prompt, first), a_step(prompt + first + [4, 5], second)]
        trajectories.append(Trajectory(f"u0/{group}/n{n}", str(group), "t", "g", 0, n, 0, steps, returned=returned))
    rows = build_rows(trajectories, "conversation")
    for row, (logp, _) in zip(rows, score(policy.model, [r.student for r in rows])):
        row.logp_rollout = logp.tolist()
    return trajectories, rows


def config(**objective):
    base = Config(threads=1)
    stage2 = base.stage2.model_copy(update={"minibatches": 2, "grad_clip": 1e9, "log_gradient_terms_every": 0})
    changes = {"opd_coef": LAMBDA, "beta": BETA, "kl_coef": BETA_KL, **objective}
    return base.model_copy(update={"stage2": stage2, "objective": base.objective.model_copy(update=changes)})


def prepared(rows):
    result = group_advantages(torch.tensor(RETURNS), torch.tensor(GROUPS), cfg=config().objective)
    for row in rows:
        assert attach_teacher(row, lambda step, row=row: row.ids[: row.prompt_length] + SKILL, limit=64)
    return PreparedBatch(
        rows, [torch.full((len(r.positions),), float(result.advantage_T[r.trajectory])) for r in rows],
        torch.ones(len(rows)), torch.ones(len(rows)), result.tied_T,
    )


def log_probs(model, ids, positions):
    logits = model(input_ids=torch.tensor([ids])).logits[0]
    return torch.stack([torch.log_softmax(logits[p - 1], -1)[ids[p]] for p in positions])


def papers_update(model, reference, rows, order, teacher_model=None):
    """The algorithm as printed, in the plainest code: one token after another, plain gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    advantage = [1 / (1 + 2e-6), -1 / (1 + 2e-6), 0.0, 0.0]
    for minibatch in order:
        total, count = 0.0, 0
        for i in minibatch:
            row, with_skill = rows[i], rows[i].ids[: rows[i].prompt_length] + SKILL + rows[i].ids[rows[i].prompt_length :]
            student = log_probs(model, row.ids, row.positions)
            with torch.no_grad():
                teacher = log_probs(teacher_model or model, with_skill, [p + len(SKILL) for p in row.positions])
                ref = log_probs(reference, row.ids, row.positions)
            for t in range(len(row.positions)):
                a, l = advantage[row.trajectory], student[t]
                ratio = torch.exp(l - row.logp_rollout[t])
                surrogate = torch.minimum(ratio * a, ratio.clamp(1 - EPSILON, 1 + EPSILON) * a)
                gate = torch.sigmoid(BETA * (teacher[t] - l.detach()))
                kl = torch.exp(ref[t] - l) - 1 - (ref[t] - l)
                total = total - surrogate + BETA_KL * kl + LAMBDA * gate * (teacher[t] - l)
                count += 1
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def minibatch_order(count):
    order = np.random.default_rng(stream_key(0, "minibatches", 0)).permutation(count).tolist()
    return split_minibatches(count, order, minibatches=2, minibatch_rows=None)


@pytest.mark.parametrize("teacher", ["live", "once"])
def test_an_update_is_the_papers_algorithm(teacher):
    policy, reference = a_policy(0), a_policy(1)
    _, rows = a_rollout_batch(policy)
    batch, old, twin = prepared(rows), copy.deepcopy(policy.model), copy.deepcopy(policy.model)
    # Far from theta_old the dual clip would act, which the paper's algorithm does not have.
    cfg = config(teacher=teacher, dual_clip=None)
    updater = Updater(cfg, policy, reference, torch.optim.SGD(policy.model.parameters(), lr=RATE))
    updater.run(batch, seed=0, update=0, ledger=Ledger(1))
    got = torch.cat([p.detach().flatten() for p in policy.model.parameters()])
    expected = papers_update(twin, reference.model, rows, minibatch_order(len(rows)), old if teacher == "once" else None)
    moved = (expected - torch.cat([p.detach().flatten() for p in old.parameters()])).norm()
    assert moved > 1e-2
    assert (got - expected).norm() < 1e-4 * moved


def test_live_and_once_differ_from_the_second_minibatch_on():
    results = []
    for teacher in ("live", "once"):
        policy = a_policy(0)
        _, rows = a_rollout_batch(policy)
        updater = Updater(config(teacher=teacher), policy, a_policy(1), torch.optim.SGD(policy.model.parameters(), lr=RATE))
        results.append(updater.run(prepared(rows), seed=0, update=0, ledger=Ledger(1)).tokens)
    live, once = (frame.set_index(["row", "step", "position"]) for frame in results)
    first = live["minibatch"] == 0
    gap = (live["logp_teacher"] - once["logp_teacher"]).abs()
    assert gap[first].max() < 1e-5 and gap[~first].max() > 1e-3


def test_ratio_is_one_before_the_first_step():
    policy = a_policy(0)
    _, rows = a_rollout_batch(policy)
    updater = Updater(config(), policy, a_policy(1), torch.optim.SGD(policy.model.parameters(), lr=RATE))
    tokens = updater.run(prepared(rows), seed=0, update=0, ledger=Ledger(1)).tokens
    assert tokens.loc[tokens["minibatch"] == 0, "ratio"].sub(1).abs().max() < 1e-4
    assert tokens.loc[tokens["minibatch"] == 1, "ratio"].sub(1).abs().max() > 1e-3


def test_rows_carry_the_sampled_tokens():
    trajectories, rows = a_rollout_batch(a_policy(0))
    for row, trajectory in zip(rows, trajectories):
        sampled = [token for step in trajectory.steps for token in step.response_ids]
        assert [row.ids[p] for p in row.positions] == sampled
    prepared(rows)
    for row in rows:
        assert [row.teacher.ids[p] for p in row.teacher.positions] == [row.ids[p] for p in row.positions]


def test_tasks_and_groups_of_an_update():
    panel = Panel("train", tuple(f"task{i}" for i in range(10)))
    drawn = [tasks_of_update(panel, seed=0, update=u, tasks_per_update=4) for u in range(4)]
    assert drawn == [tasks_of_update(panel, seed=0, update=u, tasks_per_update=4) for u in range(4)]
    assert len(set(drawn[0] + drawn[1])) == 8 and drawn[0] != drawn[2]
    episodes = group_episodes(drawn[0], 8)
    assert len(episodes) == 32 and len({(e.task_id, e.n) for e in episodes}) == 32


def test_stage_1_minimises_the_skill_tokens_negative_log_likelihood():
    policy = a_policy(0)
    ids, skill_starts = [1, 4, 5, 6, 10, 11, 9], 4
    document = Document("u0/0/n0", ids, [0.0] * skill_starts + [1.0] * 3)
    expected = -log_probs(policy.model, ids, [4, 5, 6]).mean()
    assert mean_loss(policy.model, [document], micro_batch_tokens=64, pad_id=0) == pytest.approx(expected.item(), abs=1e-5)
    (grad,) = torch.autograd.grad(expected, policy.model.lm_head.weight)
    settings = SftSettings(1e-3, 1.0, 0.0, 0.0, (0.0, 0.0), 1e9, 64)
    before = policy.model.lm_head.weight.detach().clone()
    losses = train_documents(policy.model, [document], [[0]], settings, pad_id=0)
    assert losses == [pytest.approx(expected.item(), abs=1e-5)]
    # Without momentum AdamW's first step is -rate * sign(gradient), so the step shows the gradient's direction.
    step, large = policy.model.lm_head.weight.detach() - before, grad.abs() > 1e-4
    assert large.sum() > 50
    torch.testing.assert_close(step[large], -1e-3 * grad[large].sign(), atol=1e-5, rtol=0)
