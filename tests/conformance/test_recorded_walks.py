"""Our engine against recorded walks of the official one on generated rooms, and that a broken engine is found out.

The recording is made (and made again, when rooms or walks change) with the official engine:
    seedlab envs verify --generated 6 --length 15 --walks walkthrough,random,junk,mixed \\
        --reference tests/conformance/official_reference.jsonl
"""

import json
import shutil

import pytest
from recording import RECORDED, REFERENCE

from seedlab.conformance.compare import compare
from seedlab.conformance.sources import generated_sources
from seedlab.conformance.transcripts import Reference
from seedlab.conformance.verify import plan_walks, verify
from seedlab.conformance.walks import WALKS, Walker, WalkError, check_walks
from seedlab.envs.household import engine, texts
from seedlab.envs.household.engine import Household
from seedlab.envs.household.goals import TASK_TYPES

pytestmark = pytest.mark.usefixtures("no_official")


def recorded():
    """(walk, our world, recorded transcript) of every recorded walk."""
    reference = Reference(REFERENCE)
    for source, ids in plan_walks(generated_sources(6), WALKS, None, 0, 15):
        world = source.open()[0]
        for walk in ids:
            yield walk, world, reference.get(walk)


def first_difference():
    return next((d for walk, world, transcript in recorded() if (d := compare(walk, world, transcript))), None)


def test_every_recorded_walk_is_played_identically(seedlab):
    code, out, _ = seedlab("envs", "verify", *RECORDED, "--reference", REFERENCE)
    assert code == 0 and out.splitlines()[-1] == "no difference"
    assert "24 walks" in out and "6 games, 0 walks played officially now" in out
    assert all(task_type in out for task_type in TASK_TYPES)


def test_the_recording_has_every_kind_of_command():
    commands = [c for _, _, transcript in recorded() for c in transcript.commands]
    states = [s for _, _, transcript in recorded() for s in transcript.states]
    assert any(c.strip() == "" for c in commands)
    assert any(len(c) >= 2000 for c in commands)
    assert any(c.startswith("put ") for c in commands)
    assert any(c != c.strip() and c.strip() for c in commands)
    assert any(c.lower() != c for c in commands)
    assert any("unicorn" in c or "submarine" in c or " 99" in c for c in commands)
    assert sum(s.won for s in states) >= 6
    assert {s.observation for s in states} >= {"Nothing happens.", texts.HELP}
    assert Reference(REFERENCE).versions == {"alfworld": "0.4.2", "textworld": "1.7.0", "fast-downward-textworld": "20.6.4"}


@pytest.mark.parametrize(
    ("name", "broken", "what"),
    [
        ("step", lambda step: lambda self, action: step(self, action.lower()), "observation"),
        ("step", lambda step: lambda self, action: step(self, " ".join(action.split())), "observation"),
        ("admissible", lambda listed: lambda self: listed(self)[::-1], "admissible commands"),
        ("admissible", lambda listed: lambda self: [c for c in listed(self) if c != "help"], "admissible commands"),
        ("goal_reached", lambda reached: lambda self: False, "won"),
        ("_look", lambda look: lambda self: look(self) + " ", "observation"),
        ("_go", lambda go: lambda self, name: go(self, name) or (f"You are at {name}." if self._here(name) is not None else None), "observation"),
    ],
)  # fmt: skip
def test_a_broken_engine_is_found_out(monkeypatch, name, broken, what):
    monkeypatch.setattr(Household, name, broken(getattr(Household, name)))
    difference = first_difference()
    assert difference is not None and difference.what == what


def test_the_first_difference_is_printed_with_what_led_to_it(seedlab, monkeypatch):
    monkeypatch.setattr(engine, "NOTHING_HAPPENS", "Nothing happened.")
    code, out, _ = seedlab("envs", "verify", *RECORDED, "--reference", REFERENCE)
    assert code == 1
    assert "observation differs" in out and "official: 'Nothing happens.'" in out and "ours:     'Nothing happened.'" in out
    assert "Your task is to" in out and "  1 > " in out
    assert out.count("differs") == 1  # stops at the first
    code, out, _ = seedlab("envs", "verify", *RECORDED, "--reference", REFERENCE, "--keep-going")
    assert code == 1 and out.count("observation differs") == 5 and "more differences" in out


def test_a_summary_row_says_what_was_compared(seedlab, tmp_path):
    file = tmp_path / "rows.jsonl"
    assert seedlab("envs", "verify", *RECORDED, "--reference", REFERENCE, "--results", file)[0] == 0
    (row,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert (row["games"], row["walks"], row["differences"], row["refused"], row["failed"]) == (6, 24, 0, 0, 0)
    assert row["versions"]["alfworld"] == "0.4.2" and row["settings"]["games"] == "6 generated rooms"
    assert sum(sum(part["turns"].values()) for part in row["by_type"].values()) == row["turns"] > 200


def test_episodes_bound_the_walks_and_rotate_their_kinds(seedlab):
    code, out, _ = seedlab("envs", "verify", *RECORDED, "--reference", REFERENCE, "--episodes", 7)
    assert code == 0 and "7 walks" in out
    plan = plan_walks(generated_sources(4), ("random", "junk"), 19, 5, 15)
    walks = [(w.game, w.walk, w.seed) for _, ids in plan for w in ids]
    assert len(walks) == len(set(walks)) == 19
    first = [ids[0].walk for _, ids in plan]
    assert first == ["random", "junk", "random", "junk"]
    assert {s for _, _, s in walks} == {5, 6, 7}
    whole = plan_walks(generated_sources(3), WALKS, None, 0, 15)
    assert all(sorted(w.walk for w in ids) == sorted(WALKS) for _, ids in whole)


def test_a_torn_last_line_is_recorded_again_and_nothing_else(tmp_path):
    file = tmp_path / "reference.jsonl"
    shutil.copy(REFERENCE, file)
    file.write_bytes(file.read_bytes()[:-20])
    assert len(Reference(file)) == 23
    plan = plan_walks(generated_sources(6), WALKS, None, 0, 15)
    assert sum(Reference(file).get(w) is None for _, ids in plan for w in ids) == 1


def test_what_is_not_recorded_needs_the_official_engine(seedlab):
    code, _, err = seedlab("envs", "verify", "--generated", 1, "--seed", 99, "--length", 15, "--reference", REFERENCE)
    assert code == 2 and "SEEDLAB_ALFWORLD_PYTHON" in err and "nowhere" in err


def test_only_what_is_recorded_can_be_asked_for(seedlab):
    code, out, _ = seedlab("envs", "verify", "--generated", 9, *RECORDED[2:], "--reference", REFERENCE, "--recorded")
    assert code == 0 and "24 walks" in out and "6 games" in out
    code, out, _ = seedlab("envs", "verify", "--generated", 2, "--length", 15, "--seed", 99, "--reference", REFERENCE, "--recorded")
    assert code == 1 and out.splitlines()[-1] == "nothing was compared"


def test_a_reference_of_another_engine_is_refused(tmp_path, seedlab):
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({"schema_version": 1, "key": "a/junk/0/15"}) + "\n")
    code, _, err = seedlab("envs", "verify", "--generated", 1, "--reference", file)
    assert code == 2 and str(file) in err and "not a reference" in err


def test_an_unknown_kind_of_walk_is_named(seedlab):
    with pytest.raises(WalkError, match="strole"):
        check_walks(["random", "strole"])
    code, _, err = seedlab("envs", "verify", "--generated", 1, "--walks", "strole")
    assert code == 2 and "walkthrough, random, junk, mixed" in err


def test_a_walk_is_a_function_of_game_kind_and_seed():
    def commands(key="g", kind="junk", seed=0):
        walker = Walker(key, kind, seed, 12, ["look"])
        return [walker.next(["look", "go to shelf 1", "take mug 1 from shelf 1"]) for _ in range(13)]

    assert commands() == commands() and commands()[-1] is None
    assert len({tuple(commands(key="h")), tuple(commands(kind="random")), tuple(commands(seed=1)), tuple(commands())}) == 4


def test_a_game_of_an_unknown_kind_is_refused_by_name(tmp_path, seedlab):
    game = tmp_path / "train" / "pick_and_place_simple-Mug-None-Shelf-1" / "trial_1" / "game.tw-pddl"
    game.parent.mkdir(parents=True)
    game.write_text(json.dumps({"pddl_domain": "", "grammar": '"Your task is to: x."', "pddl_problem": ""}))
    code, out, _ = seedlab("envs", "verify", "--games", tmp_path)
    assert code == 1 and f"refused: {game}: unknown text grammar" in out and "no difference" not in out


def test_a_folder_without_games_is_named(tmp_path, seedlab):
    code, _, err = seedlab("envs", "verify", "--games", tmp_path)
    assert code == 2 and "no game.tw-pddl" in err
    code, _, err = seedlab("envs", "verify", "--games", tmp_path / "none")
    assert code == 2 and "is not a folder" in err


def test_walks_do_not_change_with_the_number_of_processes():
    plan = plan_walks(generated_sources(6), WALKS, None, 0, 15)
    for processes in (1, 3):
        outcome = verify(plan, Reference(REFERENCE), processes=processes, timeout_s=1.0)
        assert outcome.identical and sum(outcome.walks.values()) == 24
