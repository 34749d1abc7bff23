"""Every claim can fail: a broken objective, or a broken formula, turns its line red."""

import pytest
import torch

from seedlab.objective import advantages, aggregate, losses, ties
from seedlab.objective.advantages import group_advantages
from seedlab.theory import bulk, closed_form, groups, transformer

ROOMS = {
    "bulk": lambda: bulk.claims(0, 60, 8),
    "groups": lambda: groups.claims(0, 300),
    "transformer": lambda: transformer.claims(0, 1),
}


def gate_not_detached(patch):
    def broken(student, teacher, beta):
        delta = teacher.detach() - student
        gate = losses.gate(delta, beta)
        return losses.OpdLoss(gate * delta, delta.detach(), gate.detach())

    patch.setattr(losses, "opd_loss", broken)


def opd_sign_flipped(patch):
    def broken(student, teacher, beta, right=losses.opd_loss):
        loss, delta, gate = right(student, teacher, beta)
        return losses.OpdLoss(-loss, delta, gate)

    patch.setattr(losses, "opd_loss", broken)


def whole_difference_stopped(patch):
    def broken(student, teacher, beta, right=losses.opd_loss):
        loss, delta, gate = right(student, teacher, beta)
        return losses.OpdLoss(loss.detach() + 0 * student, delta, gate)

    patch.setattr(losses, "opd_loss", broken)


def gate_sign_flipped(patch):
    patch.setattr(losses, "gate", lambda delta, beta: torch.sigmoid(-beta * delta))


def gate_grows_without_bound(patch):
    patch.setattr(losses, "gate", lambda delta, beta: torch.exp(3 * beta * delta.clamp(-3, 3)))


def gate_ignores_equal_contexts(patch):
    patch.setattr(losses, "gate", lambda delta, beta: torch.rand(delta.shape, dtype=delta.dtype))


def policy_sign_flipped(patch):
    def broken(*args, right=losses.policy_loss):
        return right(*args)._replace(loss=-right(*args).loss)

    patch.setattr(losses, "policy_loss", broken)


def clip_forgotten(patch):
    def broken(logp, old, advantage, *_):
        ratio = torch.exp(logp - old)
        return losses.PolicyLoss(-ratio * advantage, ratio.detach(), ratio < 0, (ratio * advantage).detach())

    patch.setattr(losses, "policy_loss", broken)


def sample_std_for_population_std(patch):
    def broken(*args, cfg, right=group_advantages, **kwargs):
        return right(*args, cfg=cfg.model_copy(update={"advantage_ddof": 1 - cfg.advantage_ddof}), **kwargs)

    patch.setattr(advantages, "group_advantages", broken)


def ties_left_to_the_std(patch):
    patch.setattr(advantages, "_all_equal", lambda values: False)


def advantage_not_centred(patch):
    def broken(returns_T, *args, right=group_advantages, **kwargs):
        result = right(returns_T, *args, **kwargs)
        return type(result)(**(vars(result) | {"advantage_T": returns_T.float()}))

    patch.setattr(advantages, "group_advantages", broken)


def mean_over_all_tokens(patch):
    patch.setattr(aggregate, "count_denominators", lambda mask: aggregate.Denominators(mask.numel(), len(mask)))


def mean_over_the_micro_batch(patch):
    def broken(values, mask, _, rule, fixed=None, right=aggregate.aggregate):
        return right(values, mask, aggregate.count_denominators(mask), rule, fixed)

    patch.setattr(aggregate, "aggregate", broken)


def kl_reversed(patch):
    def broken(logp, ref, kind, right=losses.kl_estimate):
        return right(logp, ref, {"k2": "k3", "k3": "k2", "k1": "k2"}[kind])

    patch.setattr(losses, "kl_estimate", broken)


def target_not_normalised(patch):
    patch.setattr(closed_form, "target", lambda pi, w: (pi * w, (pi * w).sum(-1)))


def target_by_inverse_gate(patch):
    patch.setattr(closed_form, "target", lambda pi, w: (pi / w / (pi / w).sum(-1, keepdim=True), (pi * w).sum(-1)))


def covariance_without_z(patch):
    right = closed_form.value_covariance
    patch.setattr(closed_form, "value_covariance", lambda pi, w, q: right(pi, w, q) * (pi * w).sum(-1))


def occupancy_distance_halved(patch):
    patch.setattr(closed_form, "total_variation", lambda p, q: 0.1 * (p - q).abs().sum(-1))


def occupancy_kl_shrunk(patch):
    right = closed_form.kl
    patch.setattr(closed_form, "kl", lambda p, q: 0.1 * right(p, q))


def skills_coupled_independently(patch):
    patch.setattr(closed_form, "maximal_coupling", lambda p, q: p[..., :, None, :] * q[..., None, :, :])


def analyzer_noise(patch):
    right = transformer.trainer_gradient
    patch.setattr(transformer, "trainer_gradient", lambda world, skill: right(world, skill) + 1e-3 * torch.rand(1).double())


def tie_probability_without_failures(patch):
    patch.setattr(ties, "tie_probability", lambda p, n: p**n)


def gaps_understated(patch):
    right = closed_form.coupled_distance
    patch.setattr(closed_form, "coupled_distance", lambda values, joint: 0.01 * right(values, joint))


def gate_gaps_doubled(patch):
    right = closed_form.coupled_distance

    def broken(values, joint):
        is_gate = bool((values >= 0).all()) and bool((values <= 1).all())
        return right(values, joint) * (100 if is_gate else 1)

    patch.setattr(closed_form, "coupled_distance", broken)


CASES = [
    (gate_not_detached, "bulk", {"opd-gradient-closed-form", "opd-gradient-is-a-kl-gradient", "opd-norm-is-gate-variance"}),
    (gate_not_detached, "transformer", {"transformer-opd-gradient"}),
    (opd_sign_flipped, "bulk", {"opd-gradient-closed-form", "opd-gradient-is-a-kl-gradient"}),
    (opd_sign_flipped, "transformer", {"transformer-opd-gradient"}),
    (whole_difference_stopped, "transformer", {"transformer-opd-gradient", "transformer-tied-group"}),
    # w becomes 1 - w, whose variance is the same: only the direction shows it.
    (gate_sign_flipped, "bulk", {"opd-gradient-closed-form", "opd-gradient-is-a-kl-gradient"}),
    (gate_grows_without_bound, "bulk", {"staleness-by-gate-gap"}),
    (gate_ignores_equal_contexts, "bulk", {"opd-vanishes-for-constant-gate", "staleness-zero-when-synchronised"}),
    (policy_sign_flipped, "bulk", {"softmax-identity"}),
    (policy_sign_flipped, "groups", {"policy-gradient-is-clipped-rho-a", "mean-is-over-the-whole-minibatch"}),
    (clip_forgotten, "groups", {"policy-gradient-is-clipped-rho-a"}),
    (sample_std_for_population_std, "groups", {"advantage-is-the-population-z-score"}),
    (ties_left_to_the_std, "groups", {"tied-group-has-no-advantage"}),
    (advantage_not_centred, "transformer", {"transformer-tied-group"}),
    (mean_over_all_tokens, "groups", {"mean-is-over-the-whole-minibatch"}),
    (mean_over_the_micro_batch, "groups", {"mean-is-over-the-whole-minibatch"}),
    (kl_reversed, "bulk", {
        "k1-in-the-loss-has-no-gradient", "k2-in-the-loss-descends-kl-to-reference",
        "k3-in-the-loss-descends-kl-from-reference"}),
    (target_not_normalised, "bulk", {"target-is-a-distribution"}),
    (target_by_inverse_gate, "bulk", {"target-follows-the-gate", "value-alignment"}),
    (covariance_without_z, "bulk", {"value-alignment"}),
    (occupancy_distance_halved, "bulk", {"off-occupancy-total-variation"}),
    (occupancy_kl_shrunk, "bulk", {"off-occupancy-pinsker"}),
    (skills_coupled_independently, "bulk", {"staleness-zero-when-synchronised"}),
    (gate_gaps_doubled, "bulk", {"staleness-by-delta-gap"}),
    (gaps_understated, "transformer", {"transformer-staleness"}),
    (analyzer_noise, "transformer", {"transformer-synchronised"}),
    (tie_probability_without_failures, "groups", {"tie-probability"}),
]


@pytest.mark.parametrize(("mutation", "room", "expected"), CASES, ids=[f"{m.__name__}-{room}" for m, room, _ in CASES])
def test_a_broken_objective_turns_the_table_red(mutation, room, expected, monkeypatch):
    monkeypatch.setattr(transformer, "LENGTH", 2)  # seven contexts are enough to see a mistake
    mutation(monkeypatch)
    failed = {claim.name for claim in ROOMS[room]() if claim.verdict == "fail"}
    assert expected <= failed


def test_unbroken_every_claim_holds_and_each_is_turned_red_above():
    names = set()
    for room in ROOMS.values():
        for claim in room():
            assert claim.verdict == "pass", claim
            names.add(claim.name)
    assert names == set().union(*(expected for _, _, expected in CASES))
