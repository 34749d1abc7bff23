"""Which tasks an update sees."""

import pytest

from seedlab.envs.protocol import Panel
from seedlab.errors import UserError
from seedlab.train.tasks import group_episodes, tasks_of_update

PANEL = Panel("train", tuple(f"t{i}" for i in range(10)))


def tasks(update, seed=0, k=3, panel=PANEL):
    return tasks_of_update(panel, seed=seed, update=update, tasks_per_update=k)


def test_no_task_comes_twice_in_a_pass_and_a_pass_is_shuffled_anew():
    passes = [sum((tasks(3 * epoch + i) for i in range(3)), []) for epoch in range(3)]
    assert all(len(set(p)) == 9 for p in passes)
    assert passes[0] != passes[1] != passes[2]


def test_an_update_depends_on_seed_and_number_alone():
    assert tasks(7) == tasks(7)
    assert tasks(7) != tasks(7, seed=1)
    assert [tasks(u) for u in (5, 1)] == [tasks(u) for u in (1, 5)][::-1]


def test_a_panel_that_is_too_small_is_named():
    with pytest.raises(UserError, match="panel 'train' has 10 tasks, fewer than stage2.tasks_per_update=11"):
        tasks(0, k=11)


def test_a_group_is_one_task_with_numbered_places():
    episodes = group_episodes(["a", "b"], 3)
    assert [(e.task_id, e.n, e.skill) for e in episodes] == [(t, n, "") for t in "ab" for n in range(3)]
