"""The official engine itself: identity, export, backend, faults and memory.  Full tier; skipped where it is missing."""

import json
import os
import signal
import tarfile
import warnings
from pathlib import Path

import numpy as np
import psutil
import pytest

from seedlab.config.schema import EnvConfig
from seedlab.conformance.rooms import export_rooms, installed_rules
from seedlab.conformance.sources import folder_sources, generated_sources
from seedlab.conformance.transcripts import Reference, WalkId, record
from seedlab.conformance.verify import plan_walks, verify
from seedlab.conformance.walks import WALKS
from seedlab.envs import make_family
from seedlab.envs.household.goals import TASK_TYPES
from seedlab.envs.protocol import InfrastructureError
from seedlab.envs.textworld.client import OfficialProcess

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("official"), pytest.mark.timeout(1500)]


@pytest.fixture
def official_family():
    family = make_family(EnvConfig(backend="textworld", max_steps=50))
    yield family
    family.close()


@pytest.fixture(scope="module")
def exported(official, tmp_path_factory):
    out = tmp_path_factory.mktemp("rooms")
    paths = export_rooms(EnvConfig(), out, ("dev", "seen", "unseen"), 6, installed_rules(300.0))
    return out, paths


def test_generated_rooms_are_played_identically(seedlab):
    code, out, _ = seedlab("envs", "verify", "--generated", 12, "--walks", ",".join(WALKS), "--length", 30, "--seed", 7, "--processes", 2)
    assert code == 0 and "48 walks" in out and "48 walks played officially now" in out


def test_memoisation_changes_no_answer():
    for source in generated_sources(3):
        seen = []
        for memoise in (True, False):
            process = OfficialProcess(300.0, memoise)
            process.task = source.name
            rules = process.ask("rules")
            process.ask("load", game=source.official(lambda: _rules(rules)))
            walks = [WalkId(source.name, source.key, source.task_type, kind, 3, 20) for kind in ("junk", "mixed")]
            seen.append([record(process, walk, source.open()[1]()) for walk in walks])
            process.close()
        assert seen[0] == seen[1]


def _rules(found):
    from seedlab.envs.household.export import Rules

    return Rules(found["domain"], found["grammar"])


def test_exported_rooms_load_officially_and_play_identically(exported, seedlab):
    out, paths = exported
    assert len(paths) == 18
    code, text, _ = seedlab("envs", "verify", "--games", out, "--walks", "walkthrough,junk", "--processes", 2)
    assert code == 0 and "36 walks" in text and "18 games" in text
    assert all(task_type in text for task_type in TASK_TYPES)


def test_the_official_planner_solves_exported_rooms_in_as_many_steps(exported):
    _, paths = exported
    process = OfficialProcess(300.0)
    for path in paths[:6]:
        process.task = str(path)
        process.ask("load", game=str(path))
        process.ask("reset")
        ours = json.loads(path.read_text())["walkthrough"]
        plan = process.ask("plan")["commands"]
        assert len(ours) <= len(plan)
        assert [process.ask("step", command=c)["won"] for c in plan][-1] is True
    process.close()


def test_our_own_loader_reads_exported_rooms_as_official_games(exported):
    out, _ = exported
    sizes = {"stage1": 0, "train": 6, "dev": 0, "seen": 0, "unseen": 0}
    family = make_family(EnvConfig(data=str(out), panel_sizes=sizes, max_steps=50, incomplete=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a dozen rooms are no whole splits, and that is said
        panels = family.panels()
    assert [len(panels[name].task_ids) for name in ("train", "seen", "unseen")] == [6, 6, 6]
    for task_id in panels["unseen"].task_ids:
        env = family.make(task_id)
        assert [env.step(c).info.won for c in family.oracle_plan(env)][-1] is True


def test_the_backend_plays_episodes_with_expert_oracle_and_copies(official_family):
    ours = make_family(EnvConfig(max_steps=50))
    for task_id in ours.panels()["dev"].task_ids[:6]:
        env, twin = official_family.make(task_id), ours.make(task_id)
        shown = official_family.demonstrate(env, np.random.default_rng(1), 0.2)
        expected = ours.demonstrate(twin, np.random.default_rng(1), 0.2)
        assert shown == expected
        assert env.reset() == twin.reset()
        plan = official_family.oracle_plan(env)
        for command in plan[:2]:
            assert env.step(command) == twin.step(command)
        assert official_family.oracle_distance(env) == ours.oracle_distance(twin)
        copy = env.clone()
        assert [copy.step(c).info.won for c in plan[2:]][-1] is True
        assert env.admissible() == twin.admissible() and env.holding() == twin.holding()
        copy.close()
        env.close()


def test_the_only_put_command_is_move(official_family):  # case D1
    env = official_family.make("household/pick_and_place_simple-Mug-Shelf-0003")
    env.reset()
    for command in official_family.oracle_plan(env)[:-1]:
        env.step(command)
    target, thing = official_family.oracle_plan(env)[-1].split(" to ")[1], env.holding()
    assert env.step(f"put {thing} in/on {target}").observation == "Nothing happens."
    assert f"move {thing} to {target}" in env.admissible()
    assert env.step(f"move {thing} to {target}").info.won
    env.close()


def test_four_episodes_side_by_side(official_family):  # case D3
    task = "household/pick_and_place_simple-Mug-Shelf-0003"
    envs = [official_family.make(task) for _ in range(4)]
    for env in envs:
        env.reset()
    for command in official_family.oracle_plan(envs[2]):
        envs[2].step(command)
    assert [int(env.step("look").info.won) if not env.done else int(env.won) for env in envs] == [0, 0, 1, 0]
    for env in envs:
        env.close()


def test_a_worker_killed_in_the_middle_of_a_computation(official_family):  # case D12
    env = official_family.make("household/pick_and_place_simple-Mug-Shelf-0003")
    env.reset()
    os.kill(env._process.pid, signal.SIGKILL)
    with pytest.raises(InfrastructureError, match="household/pick_and_place_simple-Mug-Shelf-0003"):
        env.step("look")
    env.close()
    again = official_family.make("household/pick_and_place_simple-Mug-Shelf-0003")
    assert again.reset().endswith(again.goal)
    again.close()


def test_three_hundred_resets_over_three_games_keep_memory_and_processes(official_family):  # case D11
    tasks = official_family.panels()["dev"].task_ids[:3]
    sizes, pids = [], set()
    for round_ in range(100):
        for task_id in tasks:
            env = official_family.make(task_id)
            env.reset()
            env.step("look")
            pids.add(env._process.pid)
            sizes.append(psutil.Process(env._process.pid).memory_info().rss)
            env.close()
    assert len(pids) == 1
    warm, last = max(sizes[60:120]), max(sizes[-60:])
    assert last < warm * 1.05, f"resident memory grew from {warm / 1e6:.1f} to {last / 1e6:.1f} MB"


def test_real_games_are_played_identically(tmp_path):
    """One walk of each kind on twelve real games of both panels; `seedlab envs verify` on whole folders does the rest."""
    if "SEEDLAB_DATA" not in os.environ:
        pytest.skip("SEEDLAB_DATA is not set: wanted its folder alfworld/ with real games")
    with tarfile.open(Path(os.environ["SEEDLAB_DATA"]) / "alfworld" / "games.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for split in ("valid_seen", "valid_unseen"):
        sources = folder_sources(tmp_path / "json_2.1.1" / split)[:6]
        outcome = verify(plan_walks(sources, WALKS, None, 11, 25), Reference(None), processes=2, timeout_s=300.0)
        assert outcome.identical, outcome.differences or outcome.failed
        assert sum(outcome.walks.values()) == 24
