import pandas as pd
from fake_run import WORDS

from seedlab.analysis.check_records import leaked_skills
from seedlab.policy.tiny_tokenizer import build_tokenizer

TOKENIZER = build_tokenizer(WORDS, 256)._tokenizer
SKILL = "look first in cabinet 2 then open shelf 1"


def steps(*prompts):
    return pd.DataFrame([{"trajectory": f"t{i}", "step": 0, "prompt_ids": TOKENIZER.encode(p, add_special_tokens=False).ids} for i, p in enumerate(prompts)])


def test_a_skill_is_found_whatever_stands_around_it():
    for around in ("{}", "go to shelf 1 {} take mug", "go\n{}\ntake", "({})"):
        found = leaked_skills([SKILL], steps("take mug", around.format(SKILL)), TOKENIZER)
        assert found.leaks == [(SKILL, "t1", 0)], around


def test_half_a_skill_or_one_cut_in_two_prompts_is_no_leak():
    first, second = SKILL.split(" then ")
    found = leaked_skills([SKILL], steps(first, " then " + second, "look first in cabinet 1 then open shelf 1"), TOKENIZER)
    assert found.leaks == [] and found.searched == 1


def test_short_texts_are_counted_not_searched():
    found = leaked_skills(["open shelf 1"], steps("go open shelf 1"), TOKENIZER)
    assert (found.leaks, found.searched, found.too_short) == ([], 0, 1)


def test_a_match_across_the_bytes_of_two_ids_is_none():
    class Fixed:
        def encode(self, text, add_special_tokens):
            return type("E", (), {"ids": [9, 256, 256, 256, 256, 9]})

    frame = pd.DataFrame([{"trajectory": "t", "step": 0, "prompt_ids": [1, 1, 1, 1, 1, 1]}])
    # 256 is 00 01 00 00 and 1 is 01 00 00 00 in bytes: a row of ones holds the bytes of 256s, one place off.
    assert leaked_skills(["x"], frame, Fixed()).leaks == []
