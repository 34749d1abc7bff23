"""Which skill a teacher sees: own, static, scripted, and the controls (cases C3, C9, C10)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedlab.config.schema import EnvConfig
from seedlab.episodes.play import history_of
from seedlab.episodes.prompts import make_prompt_format
from seedlab.episodes.records import Skill, Trajectory
from seedlab.errors import UserError
from seedlab.rows.build import attach_teacher, build_rows
from seedlab.skills.library import SkillLibrary
from seedlab.skills.sources import assign_skills


def trajectories(count, **changes):
    return [Trajectory(f"t{i}", "a", "pick", "g", 0, i, 0, **changes) for i in range(count)]


def skills(count, rejected=()):
    return [
        Skill(f"t{i}/skill", f"t{i}", f"text {i}", i not in rejected, "empty" if i in rejected else "ok", "own", 3, 2)
        for i in range(count)
    ]


def test_own_skills_reach_their_own_trajectory_and_unusable_ones_nobody():
    got = assign_skills(trajectories(3), skills(3, rejected=[1]), "own", 0)
    assert {k: v and v.text for k, v in got.items()} == {"t0": "text 0", "t1": None, "t2": "text 2"}
    assert assign_skills(trajectories(3), skills(3, rejected=[1]), "scripted", 0) == got


def test_unusable_skills_stay_where_the_papers_reading_is_asked_for():
    got = assign_skills(trajectories(3), skills(2, rejected=[1]), "own", 0, drop_unusable=False)
    assert (got["t1"].text, got["t1"].accepted, got["t2"]) == ("text 1", False, None)


@given(st.integers(2, 12), st.integers(0, 2**128 - 1), st.sets(st.integers(0, 11)))
def test_shuffled_is_a_derangement_of_the_usable(count, key, rejected):
    got = assign_skills(trajectories(count), skills(count, rejected), "shuffled", key)
    usable = [i for i in range(count) if i not in rejected]
    given_to = {k: v for k, v in got.items() if v is not None}
    if len(usable) < 2:
        assert given_to == {}
        return
    assert set(given_to) == {f"t{i}" for i in usable}
    assert sorted(s.text for s in given_to.values()) == sorted(f"text {i}" for i in usable)
    for name, skill in given_to.items():
        assert skill.text != f"text {name[1:]}"
        assert skill.trajectory_id == name and skill.analyzer == "shuffled:t" + skill.text.split()[1]


def test_shuffled_depends_on_the_key_alone():
    first, again, other = (assign_skills(trajectories(8), skills(8), "shuffled", key) for key in (5, 5, 6))
    assert first == again != other


def test_empty_bypasses_validation():
    got = assign_skills(trajectories(2), skills(2, rejected=[0, 1]), "empty", 0)
    assert [(s.text, s.accepted, s.analyzer) for s in got.values()] == [("", True, "empty")] * 2


def test_static_skills_come_from_the_library_by_task_type():
    library = SkillLibrary.of({"pick": "carry it straight there", "heat": "use the microwave"})
    got = assign_skills(trajectories(2), [], "static", 0, library=library)
    assert [(s.text, s.analyzer, s.snapshot) for s in got.values()] == [("carry it straight there", "static", -1)] * 2


@pytest.mark.parametrize("source", ["own", "static", "scripted", "shuffled", "empty"])
def test_infrastructure_failures_have_no_skill(source):
    lost = trajectories(3)
    lost[0].infra_failure = "worker died"
    got = assign_skills(lost, skills(3), source, 0, library=SkillLibrary.of({"pick": "x"}))
    assert got["t0"] is None and got["t1"] is not None


def test_mistakes_are_refused():
    with pytest.raises(UserError, match="needs a skill library"):
        assign_skills(trajectories(1), [], "static", 0)
    with pytest.raises(ValueError, match="unknown skill source"):
        assign_skills(trajectories(1), [], "oracle", 0)
    with pytest.raises(ValueError, match="same id"):
        assign_skills(trajectories(1) * 2, [], "own", 0)


CANARY = "canary seven sings in every skill"


@pytest.mark.parametrize("layout", ["conversation", "step"])
def test_a_canary_stands_once_in_each_teacher_input_and_in_no_student_input(make_trajectory, chat, layout):
    env = EnvConfig(layout=layout, history_window=2 if layout == "step" else None)
    prompts = make_prompt_format(env)
    played = [make_trajectory(f"u0/a/n{n}", env=env) for n in range(2)]
    written = [Skill(f"{t.id}/skill", t.id, CANARY, True, "ok", "own", 0, 6) for t in played]
    assigned = assign_skills(played, written, "own", 0)
    rows = build_rows(played, layout)
    assert len(rows) == (2 if layout == "conversation" else 6)
    for row in rows:
        trajectory = played[row.trajectory]

        def with_skill(step, text):
            return chat.render(prompts.messages(history_of(trajectory, step), skill=text, kept_from=trajectory.steps[step].kept_from))

        assert with_skill(row.first_step, "") == row.ids[: row.prompt_length]
        text = assigned[trajectory.id].text
        assert attach_teacher(row, lambda step: with_skill(step, text), limit=10**6)
        assert chat.tokenizer.decode(row.teacher.ids).count(CANARY) == 1
        assert CANARY not in chat.tokenizer.decode(row.ids)
        sampled = [row.ids[p] for p in row.positions]
        assert [row.teacher.ids[p] for p in row.teacher.positions] == sampled
        before = list(row.ids)
        assert not attach_teacher(row, lambda step: with_skill(step, text), limit=len(row.teacher.ids) - 1)  # C3
        assert row.ids == before and row.no_teacher == "teacher context too long"
