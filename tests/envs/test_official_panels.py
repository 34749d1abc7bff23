"""The official evaluation splits by name, and the data manifest against the paper's Table 3 (cases D4, D13, E11)."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from seedlab.cli.main import main
from seedlab.config.presets import load_config
from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.household.games import GameFileError
from seedlab.envs.household.goals import TASK_TYPES
from seedlab.envs.household.official import OFFICIAL_COUNTS, official_games
from seedlab.train.data_manifest import data_manifest, manifest_text
from seedlab.train.tasks import group_episodes, tasks_of_update

SEEN = [35, 13, 27, 16, 25, 24]  # by task type, as ALFWorld released them
UNSEEN = [24, 18, 31, 23, 21, 17]
SIZES = {"stage1": 0, "train": 0, "dev": 0, "seen": 140, "unseen": 134}


def game(root, split, name):
    folder = root / "json_2.1.1" / split / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "game.tw-pddl").write_text('{"solvable": true}')
    return folder / "game.tw-pddl"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Both evaluation splits by name and 240 train games; the files say only that they are solvable."""
    root = tmp_path_factory.mktemp("release")
    for split, games in official_games().items():
        for name in games:
            game(root, split, name)
    for task_type in TASK_TYPES:
        for k in range(40):
            game(root, "train", f"{task_type}-Mug-None-Shelf-{k % 20}/trial_{k}")
    return root


def panels(root, **settings):
    return make_family(EnvConfig(data=str(root), **({"panel_sizes": SIZES} | settings))).panels()


def test_the_splits_have_their_official_games(release):
    made = panels(release)
    for name, split, counts in (("seen", "valid_seen", SEEN), ("unseen", "valid_unseen", UNSEEN)):
        kinds = [i.split("/")[2].split("-")[0] for i in made[name].task_ids]
        assert [kinds.count(t) for t in TASK_TYPES] == counts
        assert len(made[name].task_ids) == OFFICIAL_COUNTS[split] == sum(counts)
        # within a type in sorted order, and the hash is that of the list
        for task_type in TASK_TYPES:
            ids = [i for i in made[name].task_ids if f"/{task_type}-" in i]
            assert ids == sorted(ids)
        assert made[name].hash == hashlib.sha256("\n".join(made[name].task_ids).encode()).hexdigest()[:16]
    assert (made["seen"].hash, made["unseen"].hash) == ("5a914a32fa171b1d", "3c46e12b31bfcb62")


def test_one_missing_game_is_refused_by_name(release):  # case D4
    name = sorted(official_games()["valid_seen"])[17]
    path = release / "json_2.1.1" / "valid_seen" / name / "game.tw-pddl"
    path.unlink()
    try:
        with pytest.raises(GameFileError, match="valid_seen: 139 of 140 official games; it lacks") as error:
            panels(release)
        assert name in str(error.value) and "alfworld-download" in str(error.value) and "env.incomplete=true" in str(error.value)
        with pytest.warns(UserWarning, match=f"139 of 140 official games; it lacks {name}"):
            made = panels(release, incomplete=True)
        assert len(made["seen"].task_ids) == 139 and made["seen"].hash != "5a914a32fa171b1d"
    finally:
        game(release, "valid_seen", name)


def test_a_game_too_much_is_refused_by_name(release):
    path = game(release, "valid_unseen", "pick_and_place_simple-Mug-None-Shelf-999/trial_x")
    try:
        with pytest.raises(GameFileError, match="134 of 134 .* it has, beyond the official ones, pick_and_place_simple-Mug-None-Shelf-999/trial_x"):
            panels(release)
    finally:
        path.unlink()


def test_many_missing_games_are_counted(tmp_path):
    game(tmp_path, "valid_seen", "pick_and_place_simple-Mug-None-Shelf-1/trial_1")
    with pytest.raises(GameFileError, match=r"\.\.\. \(140 in all\)"):
        panels(tmp_path)


# ---- the data manifest


def paper_config(root, *overrides):
    return load_config("paper/alfworld-qwen2.5-3b", [f"env.data={root}", *overrides])


def full_release(root, per_type=500):
    for task_type in TASK_TYPES:
        for k in range(per_type):
            game(root, "train", f"{task_type}-Cup-None-Desk-{k % 100}/trial_{k:04d}")


def test_the_papers_numbers_agree_and_the_overlap_is_counted(release, tmp_path):
    full_release(tmp_path)
    for split in ("valid_seen", "valid_unseen"):
        (tmp_path / "json_2.1.1" / split).symlink_to(release / "json_2.1.1" / split)
    cfg = paper_config(tmp_path)
    with pytest.warns(UserWarning, match="train: 3000 of the 3553 official games"):
        manifest = data_manifest(cfg, make_family(cfg.env))
    assert manifest["agrees"] and all(c["agrees"] for c in manifest["counts"])
    assert {c["what"]: c["here"] for c in manifest["counts"]} == {
        "Stage-1 tasks": 180, "Stage-1 trajectories": 1440, "RL tasks drawn": 2400, "evaluation tasks, seen": 140,
        "evaluation tasks, unseen": 134,
    }  # fmt: skip
    assert manifest["rl"]["distinct"] == 2400 and manifest["rl"]["drawn_in_stage1"] == 0
    shared = {tuple(row["panels"]): row for row in manifest["overlap"]}
    assert len(shared) == 10 and not any(row["tasks"] for row in shared.values())
    assert shared["stage1", "train"]["task_folders"] > 0  # other trials of the same task
    assert shared["seen", "unseen"]["scenes"] == 0
    text = manifest_text(manifest)
    assert "0 of them are Stage-1 tasks" in text and text.count("as in Table 3") == 5 and "missing: train: 3000 of" in text


def test_other_numbers_than_the_papers_are_said(release):
    cfg = paper_config(release, "env.panel_sizes.stage1=60", "env.panel_sizes.train=120", "env.panel_sizes.dev=6", "stage2.updates=3")
    with pytest.warns(UserWarning):
        manifest = data_manifest(cfg, make_family(cfg.env))
    assert not manifest["agrees"]
    assert "RL tasks drawn                   48   Table 3 has 2400" in manifest_text(manifest)
    assert {c["what"]: c["agrees"] for c in manifest["counts"]}["Stage-1 tasks"] is False


# ---- case D13

_DRAW = """
from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.train.tasks import group_episodes, tasks_of_update
panel = make_family(EnvConfig()).panels()["train"]
for update in range(5):
    for e in group_episodes(tasks_of_update(panel, seed=4, update=update, tasks_per_update=8), 8):
        print(update, e.task_id, e.n)
"""


def test_eight_groups_one_seed_distinct_tasks_the_same_again():
    panel = make_family(EnvConfig()).panels()["train"]
    rows = []
    for update in range(5):
        episodes = group_episodes(tasks_of_update(panel, seed=4, update=update, tasks_per_update=8), 8)
        groups = [episodes[k : k + 8] for k in range(0, 64, 8)]
        assert all(len({e.task_id for e in group}) == 1 and [e.n for e in group] == list(range(8)) for group in groups)
        assert len({group[0].task_id for group in groups}) == 8
        rows += [f"{update} {e.task_id} {e.n}" for e in episodes]
    again = subprocess.run(
        [sys.executable, "-c", _DRAW], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    ).stdout.splitlines()
    assert again == rows


def test_the_manifest_from_the_command_line(tmp_path, capsys):
    file = tmp_path / "manifest.json"
    assert main(["envs", "manifest", "tiny", "--out", str(file)]) == 1  # generated rooms and 24 updates are not Table 3
    assert "shared by stage1 and train: 0 tasks" in capsys.readouterr().out
    kept = json.loads(file.read_text())
    assert {name: len(ids) for name, ids in kept["task_ids"].items()} == {n: p["tasks"] for n, p in kept["panels"].items()}
