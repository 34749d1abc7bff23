import numpy as np
import pytest
import torch

from seedlab.errors import UserError
from seedlab.objective.losses import gate
from seedlab.store.checkpoint import complete_checkpoints
from seedlab.train.typed_skill import REFERENCE, load_snapshot, nearest_snapshot, score_skill, snapshots


@pytest.fixture(scope="module")
def scored(finished):
    """An update that began with weights which are still there, and its trajectories with stored tokens."""
    update = next(u for u in finished.updates if u in complete_checkpoints(finished.path))
    return finished, update, load_snapshot(finished, update)


def first_minibatch(run, update):
    """Trajectories whose tokens were seen before the update's first step, so that their values are the checkpoint's."""
    tokens = run.tokens(update=update)
    names = tokens.loc[(tokens["minibatch"] == 0) & tokens["mask_opd"], "trajectory"].unique()
    return [t for t in run.records(update) if t.id in names and t.skill is not None]


def test_its_own_skill_gives_the_recorded_gates(scored):
    run, update, snapshot = scored
    trajectories = first_minibatch(run, update)
    assert trajectories
    for trajectory in trajectories:
        stored = run.tokens(trajectory.id).sort_values(["step", "position"], ignore_index=True)
        again = score_skill(snapshot, trajectory, trajectory.skill.text).tokens
        np.testing.assert_array_equal(again[["step", "position", "token_id"]].to_numpy(), stored[["step", "position", "token_id"]].to_numpy())
        for column in ("logp_student", "logp_teacher", "entropy", "delta", "gate"):
            np.testing.assert_allclose(again[column], stored[column], atol=2e-4, err_msg=f"{trajectory.id} {column}")


def test_another_skill_gives_other_gates_of_the_same_student(scored):
    run, update, snapshot = scored
    trajectory = first_minibatch(run, update)[0]
    own, other = (score_skill(snapshot, trajectory, text).tokens for text in (trajectory.skill.text, "open the fridge first then go to desk 1"))
    np.testing.assert_allclose(own["logp_student"], other["logp_student"], atol=1e-6)
    assert np.abs(own["delta"] - other["delta"]).max() > 1e-2
    np.testing.assert_allclose(other["gate"], gate(torch.tensor(other["delta"].to_numpy()), run.config.objective.beta).numpy(), atol=1e-6)


def test_an_empty_skill_changes_nothing(scored):
    run, update, snapshot = scored
    tokens = score_skill(snapshot, run.records(update)[0], "").tokens
    assert np.abs(tokens["delta"]).max() < 1e-5 and np.allclose(tokens["gate"], 0.5, atol=1e-5)


def test_a_skill_that_does_not_fit_leaves_the_row_without_a_teacher(scored):
    run, update, snapshot = scored
    result = score_skill(snapshot, run.records(update)[0], "go to desk 1 then " * 2000)
    assert result.without_teacher == ("teacher context too long",)
    assert result.tokens["gate"].isna().all() and result.tokens["logp_student"].notna().all()


def test_weights_are_found_by_name_and_a_missing_one_is_named(finished):
    numbers = complete_checkpoints(finished.path)
    assert snapshots(finished) == [REFERENCE, *map(str, numbers)]
    assert nearest_snapshot(finished, numbers[-1] + 5) == str(numbers[-1]) and nearest_snapshot(finished, numbers[0] - 1) == REFERENCE
    with pytest.raises(UserError, match=rf"no weights '77'; there are: reference, {numbers[0]}"):
        load_snapshot(finished, 77)
