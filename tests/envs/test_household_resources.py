"""Many environments and many resets in one process (case D11)."""

import gc

import psutil

from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family


def test_three_hundred_resets_over_three_games_keep_memory_and_start_no_process():
    family = make_family(EnvConfig(max_steps=10**6))
    tasks = family.panels()["train"].task_ids[:3]
    me, sizes = psutil.Process(), []
    before = me.children()
    envs = [family.make(t) for t in tasks]
    for round_ in range(300):
        for env in envs:
            env.reset()
            for command in env.admissible()[:6]:
                env.step(command)
        if round_ >= 30:
            sizes.append(me.memory_info().rss)
    assert max(sizes[-20:]) - max(sizes[:20]) < 2**20
    assert me.children() == before


def test_thousands_of_environments_share_their_rooms():
    family = make_family(EnvConfig())
    tasks = family.panels()["train"].task_ids[:6]
    first = [family.make(t) for t in tasks]
    gc.collect()
    before = psutil.Process().memory_info().rss
    envs = [family.make(tasks[k % 6]) for k in range(4000)]
    assert (psutil.Process().memory_info().rss - before) / len(envs) < 4096
    assert {id(e.world) for e in envs} == {id(e.world) for e in first}
    envs[0].step(envs[0].admissible()[0])
    assert envs[6].steps == 0
