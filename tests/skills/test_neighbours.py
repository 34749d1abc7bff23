"""Skills of group mates and of sibling tasks: who may read whose."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedlab.episodes.records import Skill, Trajectory
from seedlab.skills import assign_skills
from seedlab.skills.neighbours import neighbour_skills, written_from


def attempt(number, task, kind, **changes):
    return Trajectory(id=f"u000000/{task}/n{number}", task_id=task, task_type=kind, goal="", update=0, n=number, seed=0, **changes)


def skill(trajectory, accepted=True):
    return Skill(f"{trajectory.id}/skill", trajectory.id, f"of {trajectory.id}", accepted, "ok" if accepted else "cut", "own", 3, 4)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.booleans(), st.booleans()), min_size=1, max_size=12),
    st.sampled_from(["mate", "sibling"]), st.integers(0, 10**9),
)
def test_nobody_reads_its_own_and_everybody_reads_a_neighbours(rows, kind, key):
    trajectories = [attempt(n, task, "heat" if task in "ab" else "cool", infra_failure="died" if lost else None) for n, (task, _, lost) in enumerate(rows)]
    skills = [skill(t, ok) for t, (_, ok, lost) in zip(trajectories, rows) if not lost]
    found = assign_skills(trajectories, skills, kind, key)
    assert found == assign_skills(trajectories, skills, kind, key)
    usable = {s.trajectory_id for s in skills if s.accepted}
    for t in trajectories:
        giving = [o for o in trajectories if o.id in usable and o.id != t.id]
        if kind == "mate":
            giving = [o for o in giving if o.task_id == t.task_id]
        else:
            giving = [o for o in giving if o.task_id != t.task_id and o.task_type == t.task_type]
        if t.infra_failure or not giving:
            assert found[t.id] is None
            continue
        read = found[t.id]
        assert read.trajectory_id == t.id and written_from(read) in {o.id for o in giving}
        assert read.text == f"of {written_from(read)}" and read.analyzer == f"{kind}:{written_from(read)}"


def test_every_neighbour_is_drawn():
    trajectories = [attempt(n, "a", "heat") for n in range(4)]
    usable = {t.id: skill(t) for t in trajectories}
    drawn = Counter(written_from(neighbour_skills(trajectories, usable, "mate", key)[trajectories[0].id]) for key in range(300))
    assert set(drawn) == {t.id for t in trajectories[1:]} and min(drawn.values()) > 60


@pytest.mark.parametrize("analyzer, source", [("own", "u/a/n0"), ("scripted", "u/a/n0"), ("openai:m", "u/a/n0"), ("static", None), ("empty", None), ("shuffled:u/b/n1", "u/b/n1")])
def test_whose_skill_it_is(analyzer, source):
    assert written_from(Skill("s", "u/a/n0", "", True, "ok", analyzer, 0, 0)) == source
