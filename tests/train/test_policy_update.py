"""One update against the same update taken another way (cases A7, A11, A17, A19, C4, C5, C8)."""

import copy

import pytest
import torch

from seedlab.episodes.records import Skill
from seedlab.objective.aggregate import RULES
from seedlab.policy.load import model_hash
from seedlab.policy.score import score
from seedlab.train.diverged import Diverged
from seedlab.train.batch import advantages_of, prepare_batch
from seedlab.train.session import Ledger
from seedlab.train.sft import make_optimizer
from seedlab.train.update import Updater

SETTINGS = (
    "env.max_steps=3", "objective.invalid_penalty=0.5", "objective.opd_coef=0.3", "objective.kl_coef=0.2",
    "objective.entropy_coef=0.1", "stage2.minibatches=1", "stage2.grad_clip=1e9", "stage2.learning_rate=0.01",
)  # fmt: skip
TEXT = "look into every cabinet before the desk"


class Case:
    """A session with a rollout batch; `run(**changes)` makes one update from the same weights, whatever ran before."""

    def __init__(self, make_session, micro, rollout, *overrides, text=TEXT, tasks=2, group=3):
        self.cfg = micro(*SETTINGS, *overrides)
        self.session = make_session(self.cfg)
        self.trajectories = rollout(self.session, tasks, group)
        # A reference of its own, so that the KL term has a gradient in the first minibatch too.
        self.reference = make_session(self.cfg, seed=1).policy
        self.advantages = advantages_of(self.trajectories, self.cfg)
        self.state = copy.deepcopy(self.session.policy.model.state_dict())
        self.skills = {
            t.id: Skill("s", t.id, text, True, "ok", "own", 0, 5) if t.n != 1 or not text else None for t in self.trajectories
        }  # fmt: skip

    @property
    def model(self):
        return self.session.policy.model

    def batch(self, order=None, skills="own"):
        batch, _ = prepare_batch(self.session, self.trajectories, self.advantages, self.skills if skills == "own" else skills)
        if order is not None:
            batch.rows = [batch.rows[i] for i in order]
            batch.advantage = [batch.advantage[i] for i in order]
            for name in ("policy_mask_B", "opd_mask_B", "tied_B"):
                setattr(batch, name, getattr(batch, name)[torch.tensor(order)])
        return batch

    def run(self, *, batch=None, changes=None, updater=None, **sections):
        """(result, gradients of the last step) of one update from the stored weights."""
        cfg = self.cfg
        for section, values in (changes or {}).items():
            cfg = cfg.model_copy(update={section: getattr(cfg, section).model_copy(update=values)})
        if updater is None:
            self.model.load_state_dict(self.state)
            stage2 = cfg.stage2
            optimizer = make_optimizer(self.model, learning_rate=stage2.learning_rate, weight_decay=stage2.weight_decay, betas=stage2.betas)
            updater = Updater(cfg, self.session.policy, self.reference, optimizer)
        self.ledger = Ledger(1)
        result = updater.run(batch or self.batch(), seed=0, update=0, ledger=self.ledger)
        self.updater = updater
        return result, [p.grad.clone() for p in self.model.parameters() if p.grad is not None]


@pytest.fixture(scope="module")
def case(make_session, micro, rollout):
    return Case(make_session, micro, rollout)


@pytest.fixture(scope="module")
def stepwise(make_session, micro, rollout):
    return Case(make_session, micro, rollout, "env.layout=step")


def assert_equal(a, b):
    """Equal to 1e-6 of the largest entry, or to 1e-6 where all are small."""
    assert len(a) == len(b) > 0
    scale = max(1.0, max(float(g.abs().max()) for g in b))
    for one, other in zip(a, b):
        torch.testing.assert_close(one, other, atol=1e-6 * scale, rtol=0)


def by_token(result):
    keys = ["trajectory_index", "step", "position"]
    return result.tokens.sort_values(keys, ignore_index=True)


# ---- the gradient does not depend on how a minibatch is cut


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("layout", ["case", "stepwise"])
def test_micro_batches_never_change_the_gradient(request, layout, rule):
    case = request.getfixturevalue(layout)
    rows = case.batch().rows
    assert len(rows) < 18 if layout == "case" else len(rows) == 18
    found = {}
    for budget in (1, 2 * max(len(r.ids) for r in rows), 10**6):
        result, gradient = case.run(changes={"stage2": {"micro_batch_tokens": budget}, "objective": {"aggregation": rule}})
        found[budget] = (gradient, result.records[0])
    (one, first), *others = found.values()
    assert max(float(g.abs().max()) for g in one) > 1e-4
    for gradient, record in others:
        assert_equal(gradient, one)
        assert record["grad_norm"] == pytest.approx(first["grad_norm"], rel=1e-5)
        for term in ("policy", "opd", "kl", "entropy"):
            assert record[term] == pytest.approx(first[term], abs=1e-5)


@pytest.mark.parametrize("support", [{"support": "full"}, {"support": "topk", "support_k": 5}])
def test_micro_batches_never_change_the_term_over_the_vocabulary(case, support):
    found = []
    for budget in (1, 10**6):
        result, gradient = case.run(changes={"stage2": {"micro_batch_tokens": budget}, "objective": support})
        found.append((gradient, result.records[0]["opd"]))
    assert_equal(found[0][0], found[1][0])
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-5)
    sampled = case.run()[1]
    assert max(float((a - b).abs().max()) for a, b in zip(sampled, found[0][0])) > 1e-5


@pytest.mark.parametrize("layout", ["case", "stepwise"])
def test_rows_in_another_order_keep_their_own_values(request, layout):
    case = request.getfixturevalue(layout)
    result, gradient = case.run()
    order = list(range(len(case.batch().rows)))[::-1]
    permuted, other = case.run(batch=case.batch(order))
    assert_equal(other, gradient)
    a, b = by_token(result), by_token(permuted)
    for name in ("token_id", "advantage", "mask_policy", "mask_opd", "logp_old"):
        assert (a[name] == b[name]).all(), name
    for name in ("logp_student", "logp_teacher", "logp_ref", "entropy", "delta", "gate", "ratio", "kl", "net_coefficient"):
        assert (a[name].isna() == b[name].isna()).all(), name
        assert (a[name] - b[name]).abs().max() < 1e-4, name


def test_each_token_of_the_record_is_the_sampled_one(case):
    result, _ = case.run()
    for row in by_token(result).itertuples():
        step = case.trajectories[row.trajectory_index].steps[row.step]
        assert step.response_ids[row.position] == row.token_id
        assert row.logp_rollout == pytest.approx(step.logprobs[row.position], abs=1e-6)
        assert row.mask_opd == (case.trajectories[row.trajectory_index].n != 1)


# ---- the student is the sampler


@pytest.mark.parametrize("layout", ["conversation", "step"])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_student_log_probs_are_the_sampler_s(make_session, micro, rollout, layout, temperature):
    case = Case(make_session, micro, rollout, f"env.layout={layout}", f"rollout.temperature={temperature}", "env.max_steps=4")
    result, _ = case.run()
    assert (result.tokens["logp_student"] - result.tokens["logp_rollout"]).abs().max() <= 1e-4
    assert (result.tokens["ratio"] - 1).abs().max() <= 1e-4
    case.model.load_state_dict(case.state)
    rows = case.batch().rows
    for row, (logp, entropy) in zip(rows, score(case.model, [r.student for r in rows], temperature=temperature)):
        torch.testing.assert_close(logp, torch.tensor(row.logp_rollout), atol=1e-4, rtol=0)
        torch.testing.assert_close(entropy, torch.tensor(row.entropy_rollout), atol=1e-4, rtol=0)


# ---- teacher


@pytest.mark.parametrize("layout", ["conversation", "step"])
@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_an_empty_skill_leaves_every_gate_at_one_half(make_session, micro, rollout, layout, temperature):
    case = Case(
        make_session, micro, rollout, f"env.layout={layout}", f"rollout.temperature={temperature}", "objective.beta=5", text=""
    )  # fmt: skip
    tokens = case.run()[0].tokens
    assert tokens["mask_opd"].all()
    assert tokens["delta"].abs().max() < 2e-5
    assert (tokens["gate"] - 0.5).abs().max() < 1e-4


def test_a_skill_moves_the_gates(case):
    taught = case.run()[0].tokens.query("mask_opd")
    assert taught["delta"].abs().mean() > 0.05
    assert taught["gate"].std() > 0.05


def test_live_and_once_teachers_differ_after_the_first_minibatch_only(case):
    found = {}
    for teacher in ("live", "once"):
        result, _ = case.run(changes={"objective": {"teacher": teacher}, "stage2": {"minibatches": 2}})
        assert [r["stepped"] for r in result.records] == [True, True]
        found[teacher] = by_token(result).query("mask_opd")
    difference = (found["live"]["logp_teacher"] - found["once"]["logp_teacher"]).abs()
    first = found["live"]["minibatch"] == 0
    assert difference[first].max() < 1e-5
    assert difference[~first].mean() > 1e-3


def test_without_the_opd_term_no_teacher_is_scored(case):
    result, _ = case.run(changes={"objective": {"opd_coef": 0.0}}, batch=case.batch(skills=None))
    assert "teacher" not in case.ledger.tokens
    assert result.tokens["logp_teacher"].isna().all()
    assert result.records[0]["opd"] == 0.0


@pytest.mark.parametrize("reference", ["initial", "old", "none"])
def test_the_reference_is_the_one_asked_for(case, reference):
    result, _ = case.run(changes={"objective": {"reference": reference}})
    tokens = by_token(result)
    if reference == "none":
        assert tokens["logp_ref"].isna().all()
        assert result.records[0]["kl"] == 0.0
    elif reference == "old":
        assert (tokens["logp_ref"] == tokens["logp_old"]).all()
    else:
        rows = case.batch().rows
        expected = torch.cat([lp for lp, _ in score(case.reference.model, [r.student for r in rows])])
        torch.testing.assert_close(torch.tensor(tokens["logp_ref"].to_numpy()), expected, atol=1e-4, rtol=0)


# ---- nothing to learn


def test_a_tied_batch_without_opd_changes_no_parameter(case):
    nothing = {"objective": {"opd_coef": 0.0, "kl_coef": 0.0, "entropy_coef": 0.0}}
    batch = case.batch(skills=None)
    batch.advantage = [torch.zeros_like(a) for a in batch.advantage]
    result, _ = case.run(batch=batch, changes=nothing)
    assert result.steps == 0
    assert all(torch.equal(v, case.state[k]) for k, v in case.model.state_dict().items())


@pytest.mark.parametrize("minibatches", [1, 4])
@pytest.mark.parametrize("budget", [300, 16384])
def test_nor_does_the_kl_term_where_policy_and_reference_are_one(make_session, micro, rollout, minibatches, budget):
    case = Case(make_session, micro, rollout, f"stage2.minibatches={minibatches}", f"stage2.micro_batch_tokens={budget}")
    case.reference = make_session(case.cfg).policy
    batch = case.batch(skills=None)
    batch.advantage = [torch.zeros_like(a) for a in batch.advantage]
    result, _ = case.run(batch=batch, changes={"objective": {"opd_coef": 0.0, "kl_coef": 0.5, "entropy_coef": 0.0}})
    assert [r["grad_norm"] for r in result.records] == [0.0] * minibatches
    assert all(torch.equal(v, case.state[k]) for k, v in case.model.state_dict().items())


def test_momentum_and_weight_decay_move_nothing_in_a_tied_batch(case):
    case.run(changes={"objective": {"opd_coef": 0.0, "kl_coef": 0.0, "entropy_coef": 0.0}})
    moved = model_hash(case.model)
    assert any(not torch.equal(v, case.state[k]) for k, v in case.model.state_dict().items())
    batch = case.batch(skills=None)
    batch.advantage = [torch.zeros_like(a) for a in batch.advantage]
    case.run(batch=batch, updater=case.updater)
    assert model_hash(case.model) == moved


def test_a_batch_of_failures_alone_makes_no_step(make_session, micro, rollout):
    case = Case(make_session, micro, rollout)
    for trajectory in case.trajectories:
        trajectory.infra_failure = "worker died"
    case.advantages = advantages_of(case.trajectories, case.cfg)
    result, _ = case.run()
    assert (result.steps, len(result.tokens), result.records) == (0, 0, [])
    assert all(torch.equal(v, case.state[k]) for k, v in case.model.state_dict().items())


def test_masked_rows_take_part_in_nothing(case):
    """The gradient with a masked row is the gradient without it, whatever stands in the row (A10, A11)."""
    keep = [i for i in range(len(case.batch().rows)) if i != 2]
    _, expected = case.run(batch=case.batch(keep))
    batch = case.batch()
    batch.policy_mask_B[2] = batch.opd_mask_B[2] = 0.0
    batch.advantage[2] = torch.full_like(batch.advantage[2], float("nan"))
    result, got = case.run(batch=batch)
    assert_equal(got, expected)
    assert result.means.counts()["ratio"] == sum(len(case.batch().rows[i].positions) for i in keep)


def test_a_gradient_that_is_not_finite_makes_no_step(case):
    batch = case.batch()
    batch.advantage[0] = torch.full_like(batch.advantage[0], float("nan"))
    with pytest.raises(Diverged, match="update 0: the gradient norm of minibatch 0 is nan; no step.*not finite: policy .nan.*lower stage2.learning_rate="):
        case.run(batch=batch)
    assert all(torch.equal(v, case.state[k]) for k, v in case.model.state_dict().items())


# ---- gradient norms by term


def test_gradient_norms_of_the_terms_are_those_of_the_terms_alone(case):
    norms = case.run(changes={"stage2": {"log_gradient_terms_every": 1}})[0].metrics
    off = {"rl_coef": 0.0, "opd_coef": 0.0, "kl_coef": 0.0, "entropy_coef": 0.0}
    alone = {"policy": {"rl_coef": 1.0}, "opd": {"opd_coef": 1.0}, "kl": {"kl_coef": 1.0}}
    for term, only in alone.items():
        _, gradient = case.run(changes={"objective": off | only, "stage2": {"log_gradient_terms_every": 0}})
        norm = float(torch.sqrt(sum((g.double() ** 2).sum() for g in gradient)))
        assert norms[f"optim/grad_norm_{term}"] == pytest.approx(norm, rel=1e-4), term


def test_measuring_the_terms_changes_no_step(case):
    hashes = []
    for every in (0, 1):
        case.run(changes={"stage2": {"log_gradient_terms_every": every}})
        hashes.append(model_hash(case.model))
    assert hashes[0] == hashes[1]


def test_the_baseline_of_a_context_is_the_expected_gate_under_the_mates_skill(case):
    """Against every token's gate one by one, from whole forward passes over each context."""
    cfg = case.cfg.objective.model_copy(update={"baseline": "context"})
    skills = {
        t.id: Skill("s", t.id, TEXT, True, "ok", "own", 0, 5, contrast=Skill("m", t.id, "go to the fridge and open it now", True, "ok", "mate:x", 0, 5))
        for t in case.trajectories
    }  # fmt: skip
    batch = case.batch(skills=skills)
    case.model.load_state_dict(case.state)
    updater = Updater(case.cfg, case.session.policy, None, None)
    indices = list(range(len(batch.rows)))
    updater._set_baseline(batch, indices, [torch.zeros(len(r.positions)) for r in batch.rows], cfg, Ledger(1))
    row, found = batch.rows[2], batch.baseline[2]
    temperature = case.cfg.rollout.temperature
    with torch.no_grad():
        student, other = (torch.log_softmax(case.model(torch.tensor([list(ids)])).logits[0] / temperature, -1) for ids in (row.ids, row.contrast.ids))
    for place, (p, q) in enumerate(zip(row.positions, row.contrast.positions)):
        pi = student[p - 1].exp()
        assert found[place].item() == pytest.approx((pi * torch.sigmoid(cfg.beta * (other[q - 1] - student[p - 1]))).sum().item(), abs=1e-5)
    assert found.std() > 0
