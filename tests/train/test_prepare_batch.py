"""From trajectories and skills to rows with advantages, masks and teachers (cases A1, B8, C3, C9, C10)."""

from collections import Counter

import pytest
import torch

from seedlab.episodes.records import Skill
from seedlab.skills import assign_skills, validate
from seedlab.skills.prompts import transcript
from seedlab.train.batch import advantages_of, prepare_batch

SHORT = ("env.max_steps=3", "objective.invalid_penalty=0.5")
TEXT = "look into every cabinet before the desk"


def skill_of(trajectory, text=TEXT, accepted=True, reason="ok"):
    return Skill(f"{trajectory.id}/skill", trajectory.id, text, accepted, reason, "own", 0, 5, text)


def prepared(session, trajectories, skills):
    return prepare_batch(session, trajectories, advantages_of(trajectories, session.cfg), skills)


def with_all_skills(trajectories, text=TEXT):
    return {t.id: skill_of(t, text) for t in trajectories}


@pytest.fixture(scope="module")
def conversation(make_session, micro, rollout):
    session = make_session(micro(*SHORT))
    return session, rollout(session)


@pytest.fixture(scope="module")
def stepwise(make_session, micro, rollout):
    session = make_session(micro(*SHORT, "env.layout=step"))
    return session, rollout(session)


@pytest.mark.parametrize("layout", ["conversation", "stepwise"])
def test_every_row_has_its_trajectory_s_advantage_and_a_teacher(layout, request):
    session, trajectories = request.getfixturevalue(layout)
    advantages = advantages_of(trajectories, session.cfg)
    batch, left_out = prepared(session, trajectories, with_all_skills(trajectories))
    assert left_out == Counter()
    assert batch.policy_mask_B.tolist() == batch.opd_mask_B.tolist() == [1.0] * len(batch.rows)
    assert [r.trajectory for r in batch.rows] == sorted(r.trajectory for r in batch.rows)
    assert len({r.trajectory for r in batch.rows}) == 4
    assert layout == "conversation" or len(batch.rows) == 12
    for row, advantage in zip(batch.rows, batch.advantage):
        trajectory = trajectories[row.trajectory]
        for token, step in zip(advantage.tolist(), row.step):
            good, bad = advantages.advantage_T[row.trajectory], advantages.invalid_advantage_T[row.trajectory]
            assert token == pytest.approx(float(good if trajectory.steps[step].parsed else bad))


@pytest.mark.parametrize("layout", ["conversation", "stepwise"])
def test_the_canary_stands_once_in_each_teacher_input_and_in_no_other(layout, request):
    session, trajectories = request.getfixturevalue(layout)
    canary = "canary seven two nine"
    batch, _ = prepared(session, trajectories, with_all_skills(trajectories, canary))
    decode = session.policy.tokenizer.decode
    for row in batch.rows:
        assert decode(row.teacher.ids).count(canary) == 1
        assert canary not in decode(row.ids)
        # the skill's line is the only difference
        lines = decode(row.teacher.ids).split("\n")
        assert [line for line in lines if canary in line] == [f"skill : {canary}"]
        assert "\n".join(line for line in lines if canary not in line) == decode(row.ids)
    assert all(canary not in decode(s.prompt_ids) for t in trajectories for s in t.steps)


def test_teacher_and_student_score_the_same_tokens(conversation):
    session, trajectories = conversation
    batch, _ = prepared(session, trajectories, with_all_skills(trajectories))
    for row in batch.rows:
        assert [row.teacher.ids[p] for p in row.teacher.positions] == [row.ids[p] for p in row.positions]
        steps = [trajectories[row.trajectory].steps[k] for k in sorted(set(row.step))]
        sampled = [i for s in steps for i in s.response_ids]
        assert [row.ids[p] for p in row.positions] == sampled


def test_unusable_skills_leave_opd_and_are_counted_and_grpo_is_unchanged(conversation):
    session, trajectories = conversation
    cfg = session.cfg.analyzer
    own = transcript(trajectories[3])
    answers = ["", "   \n ", "word " * (cfg.max_words + 1), own]
    skills = [skill_of(t, *validate(raw, "marker", cfg, transcript(t), "stop")) for t, raw in zip(trajectories, answers)]
    assert [s.reason for s in skills] == ["empty", "empty", "too_long", "copied"]
    batch, left_out = prepared(session, trajectories, assign_skills(trajectories, skills, "own", 0))
    assert left_out == {"no usable skill": len(batch.rows)}
    assert batch.opd_mask_B.sum() == 0
    everything, _ = prepared(session, trajectories, with_all_skills(trajectories))
    assert torch.equal(batch.policy_mask_B, everything.policy_mask_B)
    assert all(torch.equal(a, b) for a, b in zip(batch.advantage, everything.advantage))
    assert [r.ids for r in batch.rows] == [r.ids for r in everything.rows]
    some, left_out = prepared(session, trajectories, {t.id: skill_of(t) if t.n else None for t in trajectories})
    assert some.opd_mask_B.tolist() == [float(trajectories[r.trajectory].n) for r in some.rows]
    assert left_out == {"no usable skill": int((some.opd_mask_B == 0).sum())}


def test_a_teacher_that_is_too_long_costs_the_row_its_opd_term_only(make_session, micro, rollout):
    session = make_session(micro(*SHORT))
    trajectories = rollout(session)
    everything, _ = prepared(session, trajectories, with_all_skills(trajectories))
    lengths = sorted(len(r.teacher.ids) for r in everything.rows)
    # pydantic's frozen model: a copy with a context that the longest teacher does not fit
    session.cfg = session.cfg.model_copy(update={"model": session.cfg.model.model_copy(update={"context": lengths[-1] - 1})})
    batch, left_out = prepared(session, trajectories, with_all_skills(trajectories))
    over = sum(n == lengths[-1] for n in lengths)
    assert left_out == {"teacher context too long": over}
    assert batch.opd_mask_B.sum() == len(batch.rows) - over > 0
    assert [r.ids for r in batch.rows] == [r.ids for r in everything.rows]
    assert batch.policy_mask_B.tolist() == [1.0] * len(batch.rows)


def test_an_infrastructure_failure_has_no_row_and_changes_no_other(make_session, micro, rollout):
    session = make_session(micro(*SHORT))
    trajectories = rollout(session, group=4)
    trajectories[1].infra_failure = "worker died"
    batch, _ = prepared(session, trajectories, {t.id: None if t.infra_failure else skill_of(t) for t in trajectories})
    assert {r.trajectory for r in batch.rows} == {0, 2, 3, 4, 5, 6, 7}
    assert all(torch.isfinite(a).all() for a in batch.advantage)
    without = advantages_of([t for t in trajectories if not t.infra_failure], session.cfg)
    got = advantages_of(trajectories, session.cfg)
    torch.testing.assert_close(got.advantage_T[[0, 2, 3, 4, 5, 6, 7]], without.advantage_T)


@pytest.mark.parametrize("where, expected", [("successes", [0, 1, 0, 0]), ("failures", [1, 0, 1, 1]), ("tied", [0, 0, 1, 1]), ("all", [1] * 4)])
def test_where_picks_the_rows_of_the_opd_term(make_session, micro, rollout, where, expected):
    session = make_session(micro("env.max_steps=3", "objective.invalid_penalty=0", f"objective.where={where}"))
    trajectories = rollout(session)
    trajectories[1].success, trajectories[1].returned = True, 1.0
    batch, left_out = prepared(session, trajectories, with_all_skills(trajectories))
    assert batch.opd_mask_B.tolist() == [expected[r.trajectory] for r in batch.rows]
    assert batch.tied_B.tolist() == [r.trajectory >= 2 for r in batch.rows]
    assert sum(left_out.values()) == int((batch.opd_mask_B == 0).sum())
    assert set(left_out) <= {f"objective.where={where}"}


def test_a_method_without_a_teacher_counts_nothing_as_left_out(conversation):
    session, trajectories = conversation
    batch, left_out = prepared(session, trajectories, None)
    assert (float(batch.opd_mask_B.sum()), left_out) == (0.0, Counter())
    assert all(r.teacher is None for r in batch.rows)
