"""Teachers of critical steps: their tokens behind their own skill, the others behind the episode's (opid)."""

import pytest
import torch

from seedlab.episodes.records import Skill, StepSkill
from seedlab.policy.score import score
from seedlab.train.batch import advantages_of, prepare_batch
from seedlab.train.prompt_skills import prompt_skill_frame
from seedlab.train.tokens import step_skill_mask, teacher_log_probs, token_batch

EPISODE, FIRST, LAST = "look into every cabinet before the desk", "open the fridge at once and take it", "go to the shelf and put it down"


def skill_of(trajectory, text, steps=()):
    return Skill("s", trajectory.id, text, True, "ok", "scripted", -1, 5, steps=[StepSkill(k, t, True, "ok") for k, t in steps])


@pytest.fixture(scope="module", params=["conversation", "step"])
def played(request, make_session, micro, rollout):
    session = make_session(micro("env.max_steps=3", f"env.layout={request.param}"))
    return session, rollout(session, 2, 2)


def taught(session, trajectories, text, steps=()):
    """(batch, teacher's log-probs per row, tokens read)."""
    skills = {t.id: skill_of(t, text, steps) for t in trajectories}
    batch, left_out = prepare_batch(session, trajectories, advantages_of(trajectories, session.cfg), skills)
    assert not left_out
    policy = session.policy
    found, read = teacher_log_probs(batch, range(len(batch.rows)), lambda rows: score(policy.model, rows, pad_id=policy.pad_id))
    return batch, found, read


def test_each_token_is_scored_behind_the_skill_of_its_step(played):
    session, trajectories = played
    batch, mixed, _ = taught(session, trajectories, EPISODE, [(0, FIRST), (2, LAST)])
    alone = {text: taught(session, trajectories, text)[1] for text in (EPISODE, FIRST, LAST)}
    for i, row in enumerate(batch.rows):
        text_of = {0: FIRST, 1: EPISODE, 2: LAST}
        expected = torch.stack([alone[text_of[step]][i][p] for p, step in enumerate(row.step)])
        torch.testing.assert_close(mixed[i], expected, atol=2e-5, rtol=0)
        assert step_skill_mask(row).tolist() == [float(step != 1) for step in row.step]
    gap = max(float((alone[EPISODE][i] - alone[FIRST][i]).abs().max()) for i in range(len(batch.rows)))
    assert gap > 1e-3  # the skills do differ


def test_no_token_is_scored_twice_and_nothing_behind_a_step_is_read(played):
    session, trajectories = played
    batch, _, read = taught(session, trajectories, EPISODE, [(0, FIRST), (1, FIRST), (2, LAST)])
    for row in batch.rows:
        parts = row.teacher_parts()
        assert sorted(p for _, places in parts for p in places) == list(range(len(row.positions)))
        assert all(max(part.positions) == len(part.ids) - 1 for part, _ in parts)
    assert read == sum(len(part.ids) for row in batch.rows for part, _ in row.teacher_parts())


def test_masked_rows_are_not_scored(played):
    session, trajectories = played
    batch, _, _ = taught(session, trajectories, EPISODE, [(0, FIRST)])
    batch.opd_mask_B[:] = 0
    found, read = teacher_log_probs(batch, [0, 1], lambda rows: pytest.fail("scored"))
    assert read == 0 and all(not f.any() for f in found)


def test_the_mask_reaches_the_objective(played):
    session, trajectories = played
    batch, teacher, _ = taught(session, trajectories, EPISODE, [(1, FIRST)])
    indices = [1, 0]
    logp = [torch.zeros(len(batch.rows[i].positions)) for i in indices]
    inputs = token_batch(batch, indices, logp, None, [teacher[i] for i in indices])
    for place, i in enumerate(indices):
        n = len(batch.rows[i].positions)
        assert inputs.mask_step[place, :n].tolist() == step_skill_mask(batch.rows[i]).tolist()
    plain, logps, _ = taught(session, trajectories, EPISODE)
    assert token_batch(plain, indices, logp, None, [logps[i] for i in indices]).mask_step is None


def test_a_step_whose_skill_is_too_long_reads_the_episodes(played):
    session, trajectories = played
    whole = taught(session, trajectories, EPISODE)[1]
    long = " ".join(["cabinet"] * 1200)
    skills = {t.id: skill_of(t, EPISODE, [(0, long)]) for t in trajectories}
    batch, left_out = prepare_batch(session, trajectories, advantages_of(trajectories, session.cfg), skills)
    assert not left_out and not any(row.step_teachers for row in batch.rows)
    assert {(s.steps[0].accepted, s.steps[0].reason) for s in skills.values()} == {(False, "teacher context too long")}
    assert len(whole) == len(batch.rows)


def test_the_record_says_what_each_teacher_read(played):
    session, trajectories = played
    batch, _, _ = taught(session, trajectories, EPISODE, [(0, FIRST), (2, LAST)])
    frame = prompt_skill_frame(session.tokenizer, trajectories, batch.rows)
    of_first = frame[frame["trajectory"] == trajectories[0].id]
    assert dict(zip(of_first["place"], of_first["text"])) == {"teacher": EPISODE, "teacher of step 0": FIRST, "teacher of step 2": LAST}
    assert (frame["found"] == frame["prompts"]).all() and len(frame) == 3 * len(trajectories)
    for row in batch.rows:  # as if the second step's skill had never arrived
        for part in row.step_teachers:
            part.row.ids[: len(row.teacher.ids)] = row.ids[: len(row.teacher.ids)]
    spoilt = prompt_skill_frame(session.tokenizer, trajectories, batch.rows)
    assert spoilt.loc[spoilt["place"] != "teacher", "found"].sum() == 0
