"""Trajectories to token rows: exact ids, masks, splits, teacher twins (cases A19, B3, B8, C3)."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seedlab.episodes.records import Step, Trajectory
from seedlab.rows.build import attach_teacher, build_rows, split_minibatches


def step(prompt, response, **changes):
    values = {
        "observation": "o", "response": "r", "action": "a", "prompt_ids": list(prompt), "response_ids": list(response),
        "logprobs": [-float(i) / 8 for i in response], "entropies": [float(i) / 8 for i in response], "finish": "stop",
        "parsed": True, "admissible": True, "reward": 0.0,
    }  # fmt: skip
    return Step(**values | changes)


def trajectory(*steps, name="t", **changes):
    return Trajectory(name, name, "kind", "goal", 0, 0, 0, list(steps), **changes)


# P P A A O O A A: two turns, the second prompt continues the first
EXTENDING = trajectory(step([4, 5], [10, 11]), step([4, 5, 10, 11, 20, 21], [12, 13]))


def mask(row):
    return [int(i in row.positions) for i in range(len(row.ids))]


def test_turns_that_extend_one_another_are_one_row():
    (row,) = build_rows([EXTENDING], "conversation")
    assert row.ids == [4, 5, 10, 11, 20, 21, 12, 13]
    assert mask(row) == [0, 0, 1, 1, 0, 0, 1, 1]
    assert (row.step, row.place) == ([0, 0, 1, 1], [0, 1, 0, 1])
    assert row.logp_rollout == [-10 / 8, -11 / 8, -12 / 8, -13 / 8]
    assert row.entropy_rollout == [10 / 8, 11 / 8, 12 / 8, 13 / 8]
    assert (row.first_step, row.prompt_length) == (0, 2)
    assert (list(row.student.ids), list(row.student.positions)) == (row.ids, [2, 3, 6, 7])


def test_in_the_step_layout_every_step_is_a_row_even_where_prompts_extend():
    rows = build_rows([EXTENDING], "step")
    assert [r.ids for r in rows] == [[4, 5, 10, 11], [4, 5, 10, 11, 20, 21, 12, 13]]
    assert [mask(r) for r in rows] == [[0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 1, 1]]
    assert [(r.first_step, r.step) for r in rows] == [(0, [0, 0]), (1, [1, 1])]


@pytest.mark.parametrize(
    "second",
    [
        [4, 5, 11, 20, 21],  # the template dropped id 10, say a past thought
        [4, 9, 10, 11, 20],  # the task line changed, say because turns were dropped
        [4, 5, 10],  # shorter than what was seen
        [],
    ],
)
def test_a_prompt_that_does_not_continue_what_was_seen_begins_a_row(second):
    rows = build_rows([trajectory(step([4, 5], [10, 11]), step(second, [12]), step([*second, 12, 30], [13]))], "conversation")
    assert [r.ids for r in rows] == [[4, 5, 10, 11], [*second, 12, 30, 13]]
    assert [r.first_step for r in rows] == [0, 1]
    assert [r.step for r in rows] == [[0, 0], [1, 2]]
    assert [r.prompt_length for r in rows] == [2, len(second)]


def test_no_row_for_infrastructure_failures_and_none_for_empty_trajectories():
    failed = trajectory(step([1], [2]), infra_failure="worker died")
    rows = build_rows([failed, trajectory(), EXTENDING], "conversation")
    assert [r.trajectory for r in rows] == [2]


trajectories = st.lists(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), max_size=3), st.lists(st.integers(0, 9), max_size=3)), max_size=5),
    max_size=5,
)


@given(trajectories, st.sampled_from(["conversation", "step"]))
@settings(deadline=None, max_examples=120)
def test_every_sampled_token_stands_once_behind_the_ids_it_was_sampled_behind(drawn, layout):
    batch, seen = [], []
    for number, turns in enumerate(drawn):
        steps, ids = [], []
        for k, (extends, new, response) in enumerate(turns):
            prompt = (ids if extends else []) + new
            steps.append(step(prompt, response))
            seen += [(number, k, j, tuple(prompt + response[: j + 1])) for j in range(len(response))]
            ids = prompt + response
        batch.append(trajectory(*steps, name=f"t{number}"))
    found = [
        (r.trajectory, k, j, tuple(r.ids[: p + 1]))
        for r in build_rows(batch, layout) for p, k, j in zip(r.positions, r.step, r.place)
    ]  # fmt: skip
    assert Counter(found) == Counter(seen)


# ---- teacher twins


def test_the_teacher_holds_the_same_tokens_behind_the_skill():
    (row,) = build_rows([EXTENDING], "conversation")
    before = list(row.ids), list(row.positions)
    asked = []
    assert attach_teacher(row, lambda k: asked.append(k) or [4, 7, 8, 9, 5], 100)
    assert asked == [0]
    assert list(row.teacher.ids) == [4, 7, 8, 9, 5, 10, 11, 20, 21, 12, 13]
    assert [row.teacher.ids[p] for p in row.teacher.positions] == [row.ids[p] for p in row.positions] == [10, 11, 12, 13]
    assert (row.ids, row.positions) == before


def test_a_row_that_begins_later_gets_the_prompt_of_its_own_first_step():
    rows = build_rows([trajectory(step([4], [10]), step([6], [11]), step([6, 11, 7], [12]))], "conversation")
    asked = []
    assert attach_teacher(rows[1], lambda k: asked.append(k) or [9, 9, 6], 100)
    assert asked == [1]
    assert list(rows[1].teacher.ids) == [9, 9, 6, 11, 7, 12]


@pytest.mark.parametrize("limit, fits", [(90, True), (89, False), (64, False)])
def test_a_teacher_that_is_too_long_is_no_teacher(limit, fits):
    plain, skill, response = list(range(60)), [70] * 20, [80] * 10
    (row,) = build_rows([trajectory(step(plain, response))], "conversation")
    assert attach_teacher(row, lambda k: plain + skill, limit) is fits
    assert row.ids == plain + response, "the policy row is untouched and the response never shortened"
    if fits:
        assert list(row.teacher.ids) == plain + skill + response
    else:
        assert (row.teacher, row.no_teacher) == (None, "teacher context too long")


# ---- minibatches


def test_minibatches_by_number_and_by_rows():
    order = [4, 2, 0, 1, 3, 5, 6]
    assert split_minibatches(7, order, minibatches=3, minibatch_rows=None) == [[4, 2], [0, 1], [3, 5, 6]]
    assert split_minibatches(7, order, minibatches=None, minibatch_rows=3) == [[4, 2, 0], [1, 3, 5], [6]]
    assert split_minibatches(2, [1, 0], minibatches=5, minibatch_rows=None) == [[1], [0]]
    assert split_minibatches(0, [], minibatches=5, minibatch_rows=None) == []


@given(st.integers(1, 40), st.integers(1, 50), st.booleans(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=80)
def test_minibatches_partition_the_rows_in_order(count, size, by_number, random):
    order = random.sample(range(count), count)
    parts = split_minibatches(count, order, minibatches=size if by_number else None, minibatch_rows=None if by_number else size)
    assert [i for part in parts for i in part] == order
    assert all(parts)
    if by_number:
        assert len(parts) == min(size, count)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
