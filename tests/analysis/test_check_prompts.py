"""`seedlab check` on the record of skills in prompts: every way in which it can be wrong is found."""

import pandas as pd
import pytest
from fake_run import config, fake_run

from seedlab.analysis.checks import check_run
from seedlab.skills.library import SkillLibrary, text_hash
from seedlab.store.layout import LIBRARY

NAME = "skills in prompts as recorded"
TEXTS = {"general": "look first", "pick_and_place_simple": "take it there", "pick_heat_then_place_in_recep": "heat it with microwave"}
TEACHER = "u000000/household/pick_and_place_simple-train-0/n1"


def verdict(path):
    found = next(result for result in check_run(path) if result.name == NAME)
    return found.state, found.detail


def spoilt(tmp_path, cfg=None, library=TEXTS, row=0, **columns):
    """A run whose first update's record has other values in line `row`; a function gets the old value."""

    def change(table, update, frame):
        if table != "prompt_skills" or update:
            return frame
        frame = frame.copy()
        for name, value in columns.items():
            frame.loc[row, name] = value(frame.loc[row, name]) if callable(value) else value
        return frame

    path = fake_run(tmp_path / "run", cfg, change=change)
    if library:
        (path / LIBRARY).parent.mkdir()
        SkillLibrary.of(library).save(path / LIBRARY)
    return path


def test_a_sound_run(tmp_path):
    assert verdict(fake_run(tmp_path / "run")) == ("passed", "2 distinct skills in the prompts of 0 and for the teachers of 12 trajectories")


FAULTS = {
    "the ids lack the text": ({"found": 0}, "0 of 1 teacher prompts of .* contain its skill"),
    "another text": ({"text": "look elsewhere"}, "has the hash .*, but its text gives"),
    "another skill": ({"text": "look elsewhere", "hash": text_hash("look elsewhere")}, "had the skill 'look elsewhere', but own gives 'look first"),
    "another trajectory's": ({"source": lambda s: f"shuffled:{TEACHER}"}, f"but shuffled:{TEACHER} gives 'look first in cabinet 2"),
    "a library's": ({"source": "static"}, "has a skill of a library, but the configuration has none"),
    "a prompt's": ({"place": "prompt"}, "was played with a skill in its prompts, although rollout.skill=none"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_record_is_found(tmp_path, fault):
    columns, message = FAULTS[fault]
    state, detail = verdict(spoilt(tmp_path, library=None, **columns))
    assert state == "failed"
    assert pd.Series([detail]).str.contains(message).all(), detail


def static(**sections):
    return config("sdar", "base", skills={"retrieve": "task_type"}, **sections)


def as_static(kind="pick_and_place_simple"):
    return {"source": "static", "task_type": kind, "text": TEXTS.get(kind, "x"), "hash": text_hash(TEXTS.get(kind, "x"))}


def test_a_static_skill_must_be_the_librarys_for_its_type(tmp_path):
    # the fake run's other lines stay its own skills, which is what the check says after the line that is right
    wrong = as_static() | {"text": TEXTS["general"], "hash": text_hash(TEXTS["general"])}
    state, detail = verdict(spoilt(tmp_path, static(), **wrong))
    assert state == "failed" and "had the skill 'look first', but static gives 'take it there'" in detail
    assert verdict(spoilt(tmp_path / "right", static(), **as_static()))[0] == "passed"


def test_a_library_that_lost_a_type_or_is_gone_fails(tmp_path):
    cut = {kind: text for kind, text in TEXTS.items() if kind != "pick_and_place_simple"}
    state, detail = verdict(spoilt(tmp_path, static(), library=cut, **as_static()))
    assert state == "failed" and "has no skill for task type 'pick_and_place_simple'" in detail
    state, detail = verdict(spoilt(tmp_path / "gone", static(), library=None, **as_static()))
    assert state == "failed" and "library.jsonl is missing" in detail


def test_a_distilled_trajectory_without_a_recorded_skill_fails(tmp_path):
    def change(table, update, frame):
        return frame.iloc[1:].reset_index(drop=True) if table == "prompt_skills" else frame

    state, detail = verdict(fake_run(tmp_path / "run", change=change))
    assert state == "failed" and "is distilled, but no skill is recorded for its teacher" in detail


def test_training_prompts_without_their_skill_and_evaluations_without_theirs_fail(tmp_path):
    cfg = config("skill-grpo", "base", skills={"retrieve": "task_type"})
    state, detail = verdict(spoilt(tmp_path, cfg))
    assert state == "failed" and "should have been played with a library skill" in detail
    cfg = config("skill-prompt", "base", skills={"retrieve": "task_type"})
    state, detail = verdict(spoilt(tmp_path / "evaluation", cfg))
    assert state == "failed" and "the summary names library None" in detail
