"""Generated rooms as official game files: what is written is what was generated, and it is solvable."""

import json
import warnings

import pytest

from seedlab.cli.main import main
from seedlab.conformance.rooms import export_rooms
from seedlab.config.schema import EnvConfig
from seedlab.envs import make_family
from seedlab.envs.base import EnvironmentSettingsError
from seedlab.envs.household import games
from seedlab.envs.household.engine import Household
from seedlab.envs.household.export import Rules, problem_text, solve, write_game
from seedlab.envs.household.games import GameFileError, load_game, read_facts
from seedlab.envs.household.goals import TASK_TYPES
from seedlab.envs.household.world import build_world

RULES = Rules("(define (domain alfred))", 'intro "Your task is to: UNKNOWN GOAL"')


@pytest.fixture
def rules(monkeypatch):
    """Short rules in place of ALFWorld's own, which are not shipped; known to the loader by their fingerprints."""
    monkeypatch.setattr(games, "_DOMAINS", {games.fingerprint(RULES.domain)})
    monkeypatch.setattr(games, "_GRAMMARS", {games.fingerprint('intro ""')})
    return RULES


def sets(facts):
    return {name: (sorted(value) if isinstance(value, list) else value) for name, value in vars(facts).items() if name != "ids"}


def test_the_problem_says_exactly_what_was_generated(tmp_path):
    family = make_family(EnvConfig())
    for task_id in family.panels()["train"].task_ids[:60]:
        facts = family.facts(task_id)
        again = read_facts(tmp_path, problem_text(facts, "room"), facts.sentence)
        assert sets(again) == sets(facts)
        assert again.ids >= facts.ids  # types and the agent are named too
        assert problem_text(again, "room") == problem_text(facts, "room")


def test_every_exported_room_plays_as_the_generated_one(tmp_path, rules):
    paths = export_rooms(EnvConfig(), tmp_path, ("dev", "unseen"), 12, rules)
    family = make_family(EnvConfig(max_steps=50))
    ids = [*family.panels()["dev"].task_ids[:12], *family.panels()["unseen"].task_ids[:12]]
    assert len(paths) == 24
    for task_id, path in zip(ids, paths):
        game = load_game(path)
        env, twin = Household(game.world, task_id, 50, 1.0), family.make(task_id)
        assert env.reset() == twin.reset()
        for command in [*game.walkthrough]:
            assert (env.step(command), env.admissible()) == (twin.step(command), twin.admissible())
        assert env.won
        data = json.loads((path.parent / "traj_data.json").read_text())
        assert data["task_type"] == twin.task_type == path.parent.parent.name.split("-")[0]


def test_exported_folders_are_read_as_a_release(tmp_path, rules):
    export_rooms(EnvConfig(), tmp_path, ("dev", "seen", "unseen"), 6, rules)
    sizes = {"stage1": 0, "train": 6, "dev": 0, "seen": 0, "unseen": 0}
    family = make_family(EnvConfig(data=str(tmp_path), panel_sizes=sizes, incomplete=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = family.panels()
    assert {name: len(p.task_ids) for name, p in made.items()} == {"stage1": 0, "train": 6, "dev": 0, "seen": 6, "unseen": 6}
    assert [family.make(i).task_type for i in made["unseen"].task_ids] == list(TASK_TYPES)


def test_a_room_that_cannot_be_solved_is_not_written(tmp_path, rules, monkeypatch):
    family = make_family(EnvConfig())
    facts = family.facts(family.panels()["dev"].task_ids[0])
    assert solve(facts, "room")
    monkeypatch.setattr("seedlab.envs.household.export.oracle_plan", lambda env: ["look"])
    with pytest.raises(GameFileError, match="room: the search found no plan"):
        write_game(tmp_path / "g", facts, "room", rules)
    assert not (tmp_path / "g" / "game.tw-pddl").exists()


def test_a_room_read_back_differently_is_not_written(tmp_path, rules, monkeypatch):
    family = make_family(EnvConfig())
    facts = family.facts(family.panels()["dev"].task_ids[0])
    monkeypatch.setattr("seedlab.envs.household.export.build_world", lambda f: build_world(family.facts(family.panels()["dev"].task_ids[1])))
    monkeypatch.setattr("seedlab.envs.household.export.solve", lambda facts, name: ["look"])
    with pytest.raises(GameFileError, match="opens with another text"):
        write_game(tmp_path / "g", facts, "room", rules)
    assert not (tmp_path / "g" / "game.tw-pddl").exists()


def test_rules_can_come_from_a_game_file(tmp_path, rules, capsys):
    (path,) = export_rooms(EnvConfig(), tmp_path, ("dev",), 1, rules)
    taken = Rules.of_game(path)
    assert taken.domain == rules.domain and "Your task is to: put" in taken.grammar
    assert main(["envs", "export", "tiny", "--out", str(tmp_path / "more"), "--limit", "2", "--rules", str(path)]) == 0
    assert "2 games below" in capsys.readouterr().out
    again = sorted((tmp_path / "more").rglob("game.tw-pddl"))[-1]
    assert again.read_text() == path.read_text()


def test_unusable_rules_are_named(tmp_path, rules):
    with pytest.raises(GameFileError, match="no such game file"):
        Rules.of_game(tmp_path / "none.tw-pddl")
    family = make_family(EnvConfig())
    with pytest.raises(GameFileError, match="grammar has 0 lines"):
        write_game(tmp_path, family.facts(family.panels()["dev"].task_ids[0]), "room", Rules("", ""))
    with pytest.raises(EnvironmentSettingsError, match="unknown panel sean; the panels are stage1"):
        export_rooms(EnvConfig(), tmp_path, ("sean",), 1, rules)
