"""What a teacher does to advantages (rlsd), the ratio of a whole row (gspo), and coefficients over the updates."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_compose import batch, gradient, live, run, select, split_gradient

from seedlab.config.schedule import at_update
from seedlab.config.schema import ObjectiveConfig
from seedlab.objective import losses
from seedlab.objective.compose import minibatch_denominators, objective
from seedlab.objective.credit import scaled_advantage

RLSD = ObjectiveConfig(opd_coef=0.0, kl_coef=0.0, skill_advantage="scaled", scale_share=0.5)
GSPO = ObjectiveConfig(opd_coef=0.0, kl_coef=0.0, ratio="sequence", aggregation="seq-mean-token-mean", clip_low=3e-2, clip_high=4e-2)
number = st.floats(-30, 30, allow_nan=False)
sized = st.one_of(st.just(0.0), st.floats(1e-6, 30), st.floats(-30, -1e-6))  # a product with the factor does not underflow


# ---- rlsd


def test_scaled_advantage_by_hand():
    """w = exp(sign(A) (l_t - l_o)): e^.1 for a likelier token of a success, e^-.1 for one of a failure; then the clip."""
    a = torch.tensor([[1.0, 1.0, -1.0, -1.0, 0.0, 2.0, 2.0]], dtype=torch.float64)
    shift = torch.tensor([[0.1, -0.1, 0.1, -3.0, 5.0, 5.0, 5.0]], dtype=torch.float64)
    taught = torch.tensor([[True] * 6 + [False]])
    old = torch.full_like(a, -2.0)
    got = scaled_advantage(a, old + shift, old, taught, share=0.5, low=0.8, high=1.2)
    up, down = 1.1051709180756477, 0.9048374180359595
    expected = [0.5 + 0.5 * up, 0.5 + 0.5 * down, -(0.5 + 0.5 * down), -(0.5 + 0.5 * 1.2), 0.0, 2 * (0.5 + 0.5 * 1.2), 2.0]
    assert got.advantage[0].tolist() == pytest.approx(expected, abs=1e-12)
    assert got.effect[0].tolist()[3:6] == [1.2, 1.0, 1.2]


@settings(max_examples=200, deadline=None)
@given(sized, number, st.floats(-40, 40), st.floats(0, 1), st.floats(0.01, 1), st.floats(1, 5))
def test_the_sign_never_changes_and_the_size_stays_in_its_bounds(a, old, shift, share, low, high):
    one = torch.tensor([[a]], dtype=torch.float64)
    logp = torch.tensor([[old]], dtype=torch.float64)
    got = scaled_advantage(one, logp + shift, logp, torch.tensor([[True]]), share=share, low=low, high=high).advantage
    assert torch.sign(got) == torch.sign(one)
    assert (1 - share + share * low) * abs(a) - 1e-9 <= abs(got.item()) <= (1 - share + share * high) * abs(a) + 1e-9


def test_without_share_or_teacher_it_is_grpo():
    b = batch()
    plain = gradient(b, ObjectiveConfig(opd_coef=0.0, kl_coef=0.0))[0]
    assert torch.equal(gradient(b, RLSD.model_copy(update={"scale_share": 0.0}))[0], plain)
    assert torch.equal(gradient(replace(b, logp_teacher=None), RLSD)[0], plain)
    assert torch.equal(gradient(b.with_opd_mask(torch.zeros_like(b.mask_opd)), RLSD)[0], plain)
    assert not torch.equal(gradient(b, RLSD)[0], plain)


def test_ties_and_the_teacher_alone_move_nothing():
    b = batch()
    tied = replace(b, advantage=torch.zeros_like(b.advantage))
    assert torch.equal(gradient(tied, RLSD)[0], torch.zeros_like(b.logp))


def test_rlsd_is_the_policy_loss_with_the_advantage_computed_by_hand():
    b = batch()
    sign, shift = torch.sign(b.advantage), b.logp_teacher - b.logp_old
    factor = torch.where(b.mask_opd > 0, 0.5 + 0.5 * torch.exp(sign * shift).clamp(0.8, 1.2), 1.0)
    by_hand = gradient(replace(b, advantage=b.advantage * factor), ObjectiveConfig(opd_coef=0.0, kl_coef=0.0))[0]
    torch.testing.assert_close(gradient(b, RLSD)[0], by_hand, atol=1e-15, rtol=0)
    _, out = run(b, RLSD)
    torch.testing.assert_close(out.advantage, b.advantage * factor * b.mask_policy, atol=1e-15, rtol=0)
    torch.testing.assert_close(out.delta, shift * b.mask_opd, atol=1e-15, rtol=0)
    assert out.gate is None and out.terms["opd"].item() == 0


@pytest.mark.parametrize("cfg", [RLSD, GSPO], ids=["rlsd", "gspo"])
def test_split_permutation_and_padding_change_nothing(cfg):
    b = batch()
    at_once = gradient(b, cfg)[0]
    for parts in ([[i] for i in range(6)], [[5, 0], [1], [2, 3, 4]]):
        torch.testing.assert_close(split_gradient(b, parts, cfg)[0], at_once, atol=1e-15, rtol=0)
    order = [3, 0, 5, 1, 4, 2]
    torch.testing.assert_close(gradient(select(b, order), cfg)[0], at_once[order], atol=1e-15, rtol=0)
    wide = type(b)(*(None if v is None else torch.nn.functional.pad(v, (0, 4), value=0.0) for v in vars(b).values()))
    torch.testing.assert_close(gradient(wide, cfg)[0][:, :5], at_once, atol=1e-15, rtol=0)


@pytest.mark.parametrize("cfg", [RLSD, GSPO], ids=["rlsd", "gspo"])
def test_values_outside_the_masks_do_not_matter(cfg):
    b = batch()
    spoiled = {n: torch.where(b.mask_policy == 0, float("nan"), getattr(b, n)) for n in ("logp", "logp_old", "advantage", "entropy")}
    spoiled["logp_teacher"] = torch.where(b.mask_opd == 0, float("-inf"), b.logp_teacher)
    assert torch.equal(gradient(replace(b, **spoiled), cfg)[0], gradient(b, cfg)[0])


# ---- the ratio of a row


def rows_of(b):
    return [[(i, j) for j in range(b.logp.shape[1]) if b.mask_policy[i, j] > 0] for i in range(b.logp.shape[0])]


def test_the_ratio_is_the_geometric_mean_over_the_row():
    b = batch()
    _, out = run(b, GSPO)
    for row in rows_of(b):
        expected = torch.exp(torch.stack([b.logp[p] - b.logp_old[p] for p in row]).mean()).item()
        assert [out.ratio[p].item() for p in row] == pytest.approx([expected] * len(row), rel=1e-12)


def test_the_gradient_is_that_of_the_sequence_ratio_itself():
    """With one advantage per row: L = -mean over rows of min(s A, clip(s) A), differentiated through s as it is defined."""
    b = batch(seed=5)
    fresh = live(b)
    total = 0.0
    rows = [row for row in rows_of(b) if row]
    for row in rows:
        s = torch.exp(torch.stack([fresh.logp[p] - b.logp_old[p] for p in row]).mean())
        a = b.advantage[row[0]]
        total = total - torch.minimum(s * a, s.clamp(1 - GSPO.clip_low, 1 + GSPO.clip_high) * a) / len(rows)
    (expected,) = torch.autograd.grad(total, fresh.logp)
    got = gradient(b, GSPO.model_copy(update={"dual_clip": None}))[0]
    assert expected.abs().sum() > 0.1 and (expected.abs().sum(-1) == 0).any()  # one row at least is clipped
    torch.testing.assert_close(got, expected, atol=1e-14, rtol=0)


def test_rows_of_one_token_have_the_tokens_ratio():
    b = select(batch(), range(6), 1)
    for rule in ("token-mean", "seq-mean-token-mean"):
        cfg = GSPO.model_copy(update={"aggregation": rule})
        assert torch.equal(gradient(b, cfg)[0], gradient(b, cfg.model_copy(update={"ratio": "token"}))[0])


def test_at_theta_old_the_row_ratio_changes_nothing():
    b = batch()
    b = replace(b, logp_old=b.logp.clone())
    token = gradient(b, GSPO.model_copy(update={"ratio": "token"}))[0]
    torch.testing.assert_close(gradient(b, GSPO)[0], token, atol=1e-15, rtol=0)


def test_an_empty_row_has_a_ratio_of_one():
    ratio = losses.sequence_log_ratio(torch.full((1, 3), float("nan")), torch.zeros(1, 3, dtype=torch.bool))
    assert torch.equal(ratio, torch.zeros(1, 3))


# ---- over the updates


@pytest.mark.parametrize(
    "schedule, expected",
    [("constant", [0.4] * 5), ("ramp", [0.1, 0.2, 0.3, 0.4, 0.4]), ("decay", [0.4, 0.3, 0.2, 0.1, 0.0]), ("stop", [0.4] * 4 + [0.0])],
)
def test_schedules(schedule, expected):
    cfg = ObjectiveConfig(opd_coef=0.4, schedule=schedule, schedule_updates=4)
    assert [at_update(cfg, u).opd_coef for u in range(5)] == pytest.approx(expected)
    assert at_update(cfg, 4).uses_teacher is (schedule in ("constant", "ramp"))
    assert at_update(cfg, 4).model_copy(update={"opd_coef": 0.4}) == cfg


def test_the_share_of_rlsd_falls_to_zero_over_its_updates():
    shares = [at_update(RLSD, u).scale_share for u in (0, 1, 50, 99, 100, 150)]
    assert shares == pytest.approx([0.5, 0.495, 0.25, 0.005, 0.0, 0.0])


def test_a_schedule_multiplies_the_term_and_nothing_else():
    b = batch()
    cfg = ObjectiveConfig(opd_coef=0.4, kl_coef=0.2, schedule="ramp", schedule_updates=4)
    fresh = live(b)
    denominators = minibatch_denominators(b.mask_policy, b.mask_opd)
    first, last = (objective(fresh, denominators, at_update(cfg, u)) for u in (0, 3))
    assert (last.loss - first.loss).item() == pytest.approx(0.3 * first.terms["opd"].item(), abs=1e-15)


# ---- opid

OPID = ObjectiveConfig(opd_coef=0.0, kl_coef=0.0, skill_advantage="added", episode_coef=0.1, step_coef=0.7)


def test_opid_adds_the_signed_shift_with_the_weight_of_the_skill_that_is_read():
    b = batch()
    b = replace(b, mask_step=(torch.arange(5) % 2 == 0).expand(6, 5).double())
    coefficient = (0.1 + 0.6 * b.mask_step) * b.mask_opd
    expected = b.advantage + coefficient * (b.logp_teacher - b.logp_old)
    _, out = run(b, OPID)
    torch.testing.assert_close(out.advantage, expected * b.mask_policy, atol=1e-15, rtol=0)
    by_hand = gradient(replace(b, advantage=expected), ObjectiveConfig(opd_coef=0.0, kl_coef=0.0))[0]
    torch.testing.assert_close(gradient(b, OPID)[0], by_hand, atol=1e-15, rtol=0)
    assert (torch.sign(expected) != torch.sign(b.advantage)).any()  # unlike rlsd, it may turn a token's sign


def test_opid_moves_a_tied_group():
    b = batch()
    tied = replace(b, advantage=torch.zeros_like(b.advantage))
    assert gradient(tied, OPID)[0].abs().sum() > 0
    assert torch.equal(gradient(replace(tied, logp_teacher=b.logp_old.clone()), OPID)[0], torch.zeros_like(b.logp))


def test_opid_without_steps_reads_the_episodes_weight_alone():
    b = batch()
    _, out = run(b, OPID)
    assert out.sums["credit_added"][0].item() == pytest.approx((0.1 * (b.logp_teacher - b.logp_old).abs() * b.mask_opd).sum().item())
    assert torch.equal(gradient(replace(b, mask_step=torch.zeros_like(b.logp)), OPID)[0], gradient(b, OPID)[0])
