"""The library of static skills: what a file may hold, and that no text is ever missing without a word."""

import json

import pytest

from seedlab.config.schema import EnvConfig
from seedlab.envs.household.goals import TASK_TYPES
from seedlab.errors import UserError
from seedlab.skills.library import GENERAL, SkillLibrary, text_hash

TEXTS = {"general": "look first", "pick": "carry it straight there", "heat": "use the microwave"}


def lines(rows):
    return "".join(json.dumps({"task_type": kind, "text": text}) + "\n" for kind, text in rows)


def written(tmp_path, content, name="skills.jsonl"):
    (tmp_path / name).write_text(content)
    return tmp_path / name


@pytest.mark.parametrize("name", ["skills.json", "skills.jsonl"])
def test_both_forms_give_one_library(tmp_path, name):
    content = json.dumps(TEXTS) if name.endswith("json") else "\n" + lines(TEXTS.items())
    library = SkillLibrary.load(written(tmp_path, content, name))
    assert dict(library.texts) == TEXTS
    assert library.hash == SkillLibrary.of(dict(reversed(TEXTS.items()))).hash != SkillLibrary.of(TEXTS | {"pick": "x"}).hash
    library.save(tmp_path / "again.jsonl")
    assert SkillLibrary.load(tmp_path / "again.jsonl").hash == library.hash


def test_what_a_prompt_gets():
    def text(retrieve):
        return SkillLibrary.of(TEXTS, retrieve=retrieve).text_for("pick")

    assert text("task_type") == "carry it straight there"
    assert text("general") == "look first"
    assert text("both") == "look first carry it straight there"


FAULTS = {
    "an empty text": (lines([("pick", "x"), ("heat", " ")]), "line 2: the skill of task type 'heat' has no text"),
    "a text that is none": ('{"task_type": "pick", "text": 3}\n', "line 1: the skill of task type 'pick' has no text"),
    "a type twice": (lines([("pick", "x"), ("heat", "y"), ("pick", "z")]), "line 3: task type 'pick' has a skill already"),
    "no type": ('{"task_type": "", "text": "x"}\n', "line 1: task_type is ''"),
    "another key": ('\n{"type": "pick", "text": "x"}\n', "line 2: a line is an object with the keys task_type and text; this one has: type, text"),
    "no JSON": (lines([("pick", "x")]) + "{'pick': 1}\n", "line 2: "),
    "nothing": ("\n", "is empty"),
    "a key twice": ('{"task_type": "pick", "task_type": "heat", "text": "x"}\n', "this one has: task_type, task_type, text"),
    "an invisible text": ('{"task_type": "pick", "text": "\\u200b"}\n', "line 1: the skill of task type 'pick' has no text"),
    "half a character": ('{"task_type": "pick", "text": "a \\ud800"}\n', "line 1: the skill of task type 'pick' holds half of a surrogate pair"),
    "brackets without end": ("[" * 200_000 + "\n", "line 1: "),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_with_file_line_and_type(tmp_path, fault):
    content, message = FAULTS[fault]
    with pytest.raises(UserError) as error:
        SkillLibrary.load(written(tmp_path, content))
    assert str(tmp_path / "skills.jsonl") in str(error.value) and message in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot read"), ("[]", "must be a JSON object"), ("{}", "is empty"), ('[{"pick": "x"}]', "must be a JSON object"), ("3", "must be a JSON object"),
        ('{"pick": ""}', "line 1: the skill of task type 'pick' has no text"),
        ('{"heat": "pick",\n "pick": "x",\n "pick": "y"}', "line 3: task type 'pick' has a skill already"),
    ],
)  # fmt: skip
def test_a_damaged_object_is_named(tmp_path, content, message):
    with pytest.raises(UserError) as error:
        SkillLibrary.load(written(tmp_path, content, "broken.json"))
    assert "broken.json" in str(error.value) and message in str(error.value)
    with pytest.raises(UserError, match="cannot read the skill library .*absent.json"):
        SkillLibrary.load(tmp_path / "absent.json")


def test_separators_of_lines_inside_a_text_come_back(tmp_path):
    library = SkillLibrary.of({"pick": "look\u2028first\x85then go"})
    library.save(tmp_path / "skills.jsonl")
    assert SkillLibrary.load(tmp_path / "skills.jsonl").texts == library.texts


def test_a_library_of_general_skills_alone_is_refused():
    with pytest.raises(UserError, match="no skill for task type 'heat'.*it has: general, pick"):
        SkillLibrary.of({"general": "x", "pick": "y"}, retrieve="both").covering(["pick", "heat"])
    with pytest.raises(UserError, match="no general skill .skills.retrieve=both.; it has: heat, pick"):
        SkillLibrary.of({"pick": "y", "heat": "z"}, retrieve="both").covering(["pick", "heat"])
    with pytest.raises(UserError, match="'haet', which is no task type here; did you mean 'heat'"):
        SkillLibrary.of({"pick": "y", "haet": "z"}).covering(["pick", "heat"])
    assert SkillLibrary.of({"general": "x"}, retrieve="general").covering(["pick", "heat"]).text_for("heat") == "x"


def test_the_built_in_library_covers_the_household_in_words_of_the_tiny_policy(vocabulary):
    library = SkillLibrary.builtin(EnvConfig().name, "both").covering(TASK_TYPES)
    assert set(library.texts) == {GENERAL, *TASK_TYPES}
    texts = [library.spaced().text_for(kind) for kind in TASK_TYPES]
    assert len(set(texts)) == len(TASK_TYPES) == len({text_hash(text) for text in texts})
    for text in texts:
        ids = vocabulary.encode(text, add_special_tokens=False)
        assert len(ids) == len(text.split()) and vocabulary.decode(ids) == text
    with pytest.raises(UserError, match="no skill library for env.name=webshop .it has: household"):
        SkillLibrary.builtin("webshop", "both")
