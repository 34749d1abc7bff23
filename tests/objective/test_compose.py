from dataclasses import replace

import pytest
import torch

from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import losses
from seedlab.objective.aggregate import RULES
from seedlab.objective.compose import TokenBatch, minibatch_denominators, objective
from seedlab.objective.metrics import WeightedMeans

CFG = ObjectiveConfig(opd_coef=0.3, kl_coef=0.2, entropy_coef=0.1)


def batch(rows=6, length=5, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)

    def noise(scale=1.0):
        return scale * torch.randn(rows, length, generator=g, dtype=dtype)

    logp = -1.5 + noise(0.3)
    mask = (torch.rand(rows, length, generator=g) < 0.7).to(dtype)
    mask_opd = mask * (torch.arange(rows) % 3 != 1).to(dtype)[:, None]
    return TokenBatch(
        logp=logp, logp_old=logp + noise(0.2), logp_ref=logp + noise(0.4), logp_teacher=logp + noise(0.4),
        entropy=noise().abs(), advantage=noise(1.0)[:, :1].expand(rows, length).clone(), mask_policy=mask, mask_opd=mask_opd,
    )


def select(b, rows, width=None):
    rows = list(rows)
    return TokenBatch(*(None if v is None else v[rows][:, :width] for v in vars(b).values()))


def live(b):
    return replace(b, logp=b.logp.clone().requires_grad_(True), entropy=b.entropy.clone().requires_grad_(True))


def run(b, cfg=CFG, denominators=None):
    b = live(b)
    denominators = denominators or minibatch_denominators(b.mask_policy, b.mask_opd, cfg)
    return b, objective(b, denominators, cfg)


def gradient(b, cfg=CFG):
    b, out = run(b, cfg)
    return torch.autograd.grad(out.loss, [b.logp, b.entropy], allow_unused=True, materialize_grads=True)


def split_gradient(b, parts, cfg=CFG):
    """Gradient in logp and entropy when `parts` are separate micro-batches."""
    b = live(b)
    denominators = minibatch_denominators(b.mask_policy, b.mask_opd, cfg)
    for rows in parts:
        objective(select(b, rows), denominators, cfg).loss.backward()
    return b.logp.grad, b.entropy.grad


@pytest.mark.parametrize("rule", RULES)
def test_any_split_gives_the_same_gradient(rule):  # A7, C5
    cfg = CFG.model_copy(update={"aggregation": rule})
    b = batch()
    at_once = gradient(b, cfg)
    for parts in ([[i] for i in range(6)], [[5, 0], [1], [2, 3, 4]], [[0, 1, 2, 3, 4], [5]]):
        for got, expected in zip(split_gradient(b, parts, cfg), at_once):
            torch.testing.assert_close(got, expected, atol=1e-15, rtol=0)


@pytest.mark.parametrize("rule", RULES)
def test_rows_keep_their_gradient_when_permuted_and_padded(rule):  # A19
    cfg = CFG.model_copy(update={"aggregation": rule})
    b = batch()
    order = [3, 0, 5, 1, 4, 2]
    torch.testing.assert_close(gradient(select(b, order), cfg)[0], gradient(b, cfg)[0][order], atol=1e-15, rtol=0)
    wide = TokenBatch(*(None if v is None else torch.nn.functional.pad(v, (0, 4), value=0.0) for v in vars(b).values()))
    torch.testing.assert_close(gradient(wide, cfg)[0][:, :5], gradient(b, cfg)[0], atol=1e-15, rtol=0)


def test_values_outside_the_mask_do_not_matter():  # B8, A11
    b = batch()
    outside = b.mask_policy == 0
    spoiled = {}
    for name in ("logp", "logp_old", "logp_ref", "entropy", "advantage"):
        spoiled[name] = torch.where(outside, torch.full_like(b.logp, float("nan")), getattr(b, name))
    spoiled["logp_teacher"] = torch.where(b.mask_opd == 0, torch.full_like(b.logp, float("-inf")), b.logp_teacher)
    for got, expected in zip(gradient(replace(b, **spoiled)), gradient(b)):
        assert torch.equal(got, expected)
    _, out = run(replace(b, **spoiled))
    for name in ("ratio", "clipped", "net_coefficient", "delta", "gate", "kl"):
        assert torch.isfinite(getattr(out, name)).all(), name


def test_each_terms_gradient_against_finite_differences():
    b = batch(rows=3, length=4, seed=3)
    denominators = minibatch_denominators(b.mask_policy, b.mask_opd, CFG)
    h = 1e-6
    for name, field in (("policy", "logp"), ("kl", "logp"), ("entropy", "entropy"), ("opd", "logp")):
        fresh = live(b)
        leaf = getattr(fresh, field)
        (exact,) = torch.autograd.grad(objective(fresh, denominators, CFG).terms[name], leaf)
        gate = losses.gate(b.logp_teacher - b.logp, CFG.beta)
        for i in range(3):
            for j in range(4):
                moved = []
                for s in (h, -h):
                    x = getattr(b, field).clone()
                    x[i, j] += s
                    if name == "opd":  # the stopped gate is held at the unmoved point
                        moved.append((b.mask_opd * gate * (b.logp_teacher - x)).sum() / denominators.opd.tokens)
                    else:
                        moved.append(objective(replace(b, **{field: x}), denominators, CFG).terms[name])
                assert ((moved[0] - moved[1]) / (2 * h)).item() == pytest.approx(exact[i, j].item(), abs=1e-7)


def test_loss_is_the_weighted_sum_of_its_terms():
    _, out = run(batch())
    assert out.coefficients == {"policy": 1.0, "opd": 0.3, "kl": 0.2, "entropy": -0.1}
    total = sum(c * out.terms[name] for name, c in out.coefficients.items())
    assert out.loss.item() == pytest.approx(total.item(), abs=1e-15)


def test_micro_batches_of_8_and_2_tokens():  # A7 and C5 by hand, on both terms
    cfg = ObjectiveConfig(opd_coef=1.0, kl_coef=0.0, beta=0.0)
    mask = torch.tensor([[1.0] * 8, [1.0, 1.0] + [0.0] * 6], dtype=torch.float64)
    zeros = torch.zeros(2, 8, dtype=torch.float64)
    loss = torch.tensor([[1.0] * 8, [3.0] * 8], dtype=torch.float64)
    b = TokenBatch(zeros, zeros, None, 2 * loss, None, -loss, mask, mask)
    denominators = minibatch_denominators(mask, mask, cfg)
    shares = [objective(select(b, [i]), denominators, cfg).terms for i in (0, 1)]
    assert sum(s["policy"] for s in shares).item() == pytest.approx(1.4)
    assert sum(s["opd"] for s in shares).item() == pytest.approx(1.4)


def test_opd_divides_by_the_tokens_that_have_a_skill():  # C9
    b = batch()
    denominators = minibatch_denominators(b.mask_policy, b.mask_opd)
    assert denominators.opd.tokens == b.mask_opd.sum() < denominators.policy.tokens == b.mask_policy.sum()
    with_rows = run(b)[1].terms
    keep = [0, 2, 3, 5]
    without = run(select(b, keep))[1].terms
    assert with_rows["opd"].item() == pytest.approx(without["opd"].item(), abs=1e-15)
    no_skill = run(b.with_opd_mask(torch.zeros_like(b.mask_opd)))[1].terms
    assert no_skill["policy"].item() == with_rows["policy"].item() and no_skill["opd"].item() == 0


def test_without_opd_the_term_is_zero_and_not_computed(monkeypatch):  # C8
    def forbidden(*_):
        raise AssertionError("the OPD term was computed")

    monkeypatch.setattr(losses, "opd_loss", forbidden)
    b = batch()
    for changed, cfg in ((b, CFG.model_copy(update={"opd_coef": 0.0})), (replace(b, logp_teacher=None), CFG)):
        _, out = run(changed, cfg)
        assert out.terms["opd"].item() == 0 and not out.terms["opd"].requires_grad
        assert out.gate is None and out.delta is None and "gate" not in out.sums


def test_no_advantage_and_no_opd_change_nothing():  # C8
    b = batch()
    cfg = ObjectiveConfig(opd_coef=0.0, kl_coef=0.0)
    grads = gradient(replace(b, advantage=torch.zeros_like(b.advantage)), cfg)
    assert all(torch.equal(g, torch.zeros_like(g)) for g in grads)


def test_nothing_to_train_on():  # A11
    b = batch()
    nothing = torch.zeros_like(b.mask_policy)
    b, out = run(replace(b, mask_policy=nothing, mask_opd=nothing))
    out.loss.backward()
    assert out.loss.item() == 0 and torch.equal(b.logp.grad, torch.zeros_like(b.logp))
    means = WeightedMeans()
    means.add_all(out.sums)
    assert means.means() == {} and means.counts()["policy_loss"] == 0


def test_identical_contexts():  # C4
    b = batch()
    _, out = run(replace(b, logp_teacher=b.logp.clone()))
    assert torch.equal(out.delta, torch.zeros_like(out.delta))
    assert torch.equal(out.gate, 0.5 * b.mask_opd)
    assert out.terms["opd"].item() == 0  # the value is 0; its gradient is -1/2 per token


def test_beta_zero_removes_the_teacher_from_the_gradient():  # methods.md: grpo+opsd as compared in the paper
    b, cfg = batch(), CFG.model_copy(update={"beta": 0.0})
    assert torch.equal(gradient(b, cfg)[0], gradient(replace(b, logp_teacher=b.logp_teacher - 3), cfg)[0])


def test_net_coefficient_is_the_ascent_on_each_token():
    b = batch()
    b = replace(b, mask_opd=b.mask_policy)  # same denominators for both terms
    cfg = CFG.model_copy(update={"kl_coef": 0.0, "entropy_coef": 0.0})
    _, out = run(b, cfg)
    assert (out.clipped > 0).any()
    torch.testing.assert_close(-gradient(b, cfg)[0] * b.mask_policy.sum(), out.net_coefficient, atol=1e-14, rtol=0)


def test_ties_leave_only_opd():  # Proposition 2's two halves on the trainer's loss
    b = batch()
    tied = replace(b, advantage=torch.zeros_like(b.advantage))
    tied, out = run(tied, ObjectiveConfig(kl_coef=0.0))
    (policy,) = torch.autograd.grad(out.terms["policy"], tied.logp, retain_graph=True)
    (opd,) = torch.autograd.grad(out.terms["opd"], tied.logp)
    assert torch.equal(policy, torch.zeros_like(policy)) and opd.abs().sum() > 0.1
    assert (opd <= 0).all()  # a sampled token is never pushed down


def test_sums_give_the_same_metrics_for_any_split():  # E8
    b = batch()
    denominators = minibatch_denominators(b.mask_policy, b.mask_opd)

    def metrics(parts):
        means = WeightedMeans()
        for rows in parts:
            means.add_all(objective(select(b, rows), denominators, CFG).sums)
        return means.means()

    at_once = metrics([range(6)])
    assert metrics([[0], [1], [2, 3], [4, 5]]) == pytest.approx(at_once)
    inside = b.mask_opd > 0
    gate = losses.gate(b.logp_teacher - b.logp, CFG.beta)[inside]
    assert at_once["gate"] == pytest.approx(gate.mean().item())
    assert at_once["opd_coverage"] == pytest.approx((b.mask_opd.sum() / b.mask_policy.sum()).item())


def test_rl_coefficient_zero_is_opd_alone():  # opsd
    b = batch()
    cfg = ObjectiveConfig(rl_coef=0.0, kl_coef=0.0, opd_coef=1.0)
    g = gradient(replace(b, advantage=torch.full_like(b.advantage, 1e300)), cfg)[0]
    expected = -losses.gate(b.logp_teacher - b.logp, cfg.beta) * b.mask_opd / b.mask_opd.sum()
    torch.testing.assert_close(g, expected, atol=1e-15, rtol=0)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="TokenBatch.advantage is"):
        replace(batch(), advantage=torch.zeros(6, 1))
    with pytest.raises(ValueError, match="entropy"):
        b = replace(batch(), entropy=None)
        objective(b, minibatch_denominators(b.mask_policy, b.mask_opd), CFG)


def test_k1_in_the_loss_is_refused():
    with pytest.raises(ValueError, match="k1 has zero expected gradient"):
        ObjectiveConfig(kl_estimator="k1")
