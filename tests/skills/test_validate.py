"""Verdicts on raw answers, with a reason for each (case C9)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedlab.config.schema import AnalyzerConfig
from seedlab.episodes.records import Skill
from seedlab.skills.validate import REASONS, copied_fraction, count_reasons, validate

CFG = AnalyzerConfig(max_words=20)
GOOD = "open the fridge first , then take the mug"
TRANSCRIPT = "you open the fridge 1 . the fridge 1 is open . in it you see a mug 1 . take mug 1 from fridge 1"


def verdict(raw, contract="marker", finish="stop", transcript=TRANSCRIPT, cfg=CFG):
    return validate(raw, contract, cfg, transcript, finish)


@pytest.mark.parametrize(
    "raw, finish, expected",
    [
        (GOOD, "stop", (GOOD, True, "ok")),
        (f"  {GOOD}\n", "stop", (GOOD, True, "ok")),
        (f"skill : {GOOD}", "stop", (GOOD, True, "ok")),
        ("", "stop", ("", False, "empty")),
        (" \n\t", "stop", ("", False, "empty")),
        ("", "length", ("", False, "empty")),
        ("skill :", "stop", ("", False, "empty")),
        (GOOD, "length", (GOOD, False, "cut")),
        (GOOD, "abort", (GOOD, False, "cut")),
        ("take the mug now", "stop", ("take the mug now", False, "too_short")),
        ("take the mug right now", "stop", ("take the mug right now", True, "ok")),
        ("go " * 20, "stop", (("go " * 20).strip(), True, "ok")),
        ("go " * 21, "stop", (("go " * 21).strip(), False, "too_long")),
        (TRANSCRIPT[:60], "stop", (TRANSCRIPT[:60], False, "copied")),
        ("always <|end|> the turn <|user|> here", "stop", ("always <|end|> the turn <|user|> here", True, "ok")),
    ],
)
def test_marker(raw, finish, expected):
    assert verdict(raw, finish=finish) == expected


ONE = '{"episode_summary": "s", "episode_skill": "%s"}' % GOOD


@pytest.mark.parametrize(
    "raw",
    [
        ONE,
        f"```json\n{ONE}\n```",
        f"```\n{ONE}\n```\nI hope this helps {{really}}.",
        f"Here is the object you asked for, in {{braces}}: {ONE}",
        f"<think>maybe {{\"episode_skill\": \"a bad draft of the skill text\"}}</think>\n{ONE}",
        '{"episode_summary": {"a": {"b": "{"}}, "episode_skill": "%s"}' % GOOD,
        '{"episode_skill": "draft one that is long enough"}\n' + ONE,
        ONE.replace(", then", ",\\nthen").replace("\\n", " "),
    ],
)
def test_json_is_found_whatever_stands_around_it(raw):
    assert verdict(raw, "json") == (GOOD, True, "ok")


def test_json_text_may_hold_braces_quotes_and_raw_line_breaks():
    raw = '{"episode_skill": "use {this} and \\"that\\"\nwhen the desk is closed"}'
    assert verdict(raw, "json") == ('use {this} and "that"\nwhen the desk is closed', True, "ok")


@pytest.mark.parametrize(
    "raw, finish, reason",
    [
        (GOOD, "stop", "unparseable"),
        ('{"episode_summary": "only a summary of what was done"}', "stop", "unparseable"),
        ('{"result": {"episode_skill": "it stands one level too deep"}}', "stop", "unparseable"),
        ('{"episode_skill": ["a", "list", "of", "five", "words"]}', "stop", "unparseable"),
        ('{"episode_skill": null}', "stop", "unparseable"),
        ('["episode_skill", "not an object at all"]', "stop", "unparseable"),
        (ONE[:-5], "stop", "unparseable"),
        (ONE[:-5], "length", "cut"),
        (ONE, "length", "cut"),
        ('{"episode_skill": "  "}', "stop", "empty"),
        ("   ", "stop", "empty"),
        ('{"episode_skill": "too few"}', "stop", "too_short"),
        ('{"episode_skill": ' * 1500, "stop", "unparseable"),
        ('{"episode_skill": ' + "9" * 5000 + "}", "stop", "unparseable"),
    ],
)
def test_json_rejections(raw, finish, reason):
    text, accepted, got = verdict(raw, "json", finish)
    assert (accepted, got) == (False, reason)
    assert text in raw


def test_copied_fraction_counts_windows_of_eight_words():
    transcript = "a b c d e f g h i j"
    assert copied_fraction("a b c d e f g h", transcript) == 1.0
    assert copied_fraction("A, b. C d: e f g h", transcript) == 1.0  # punctuation and case do not hide a copy
    assert copied_fraction("a b c d e f g h X", transcript) == 0.5
    assert copied_fraction("a b c d e f g", transcript) == 0.0  # no whole window
    assert copied_fraction("h g f e d c b a", transcript) == 0.0


def test_the_copy_limit_itself_is_still_accepted():
    words = [f"w{i}" for i in range(17)]
    transcript = " ".join(words[:-1])  # 9 of 10 windows
    assert verdict(" ".join(words), transcript=transcript)[2] == "ok"
    assert verdict(" ".join(words), transcript=transcript, cfg=AnalyzerConfig(max_copied_fraction=0.89))[2] == "copied"


@given(st.text(), st.sampled_from(["marker", "json"]), st.sampled_from(["stop", "length"]))
def test_any_answer_gets_a_verdict(raw, contract, finish):
    text, accepted, reason = verdict(raw, contract, finish)
    assert accepted == (reason == "ok") and reason in REASONS
    assert text or not accepted


def test_every_reason_is_counted():
    skills = [Skill(f"s{i}", f"t{i}", "", r == "ok", r, "own", 0, 0) for i, r in enumerate(["ok", "empty", "empty", "cut", "other"])]
    counts = count_reasons(skills)
    assert counts == dict.fromkeys(REASONS, 0) | {"ok": 1, "empty": 2, "cut": 1, "other": 1}


def test_unknown_contract():
    with pytest.raises(ValueError, match="marker or json"):
        verdict("x", "xml")
