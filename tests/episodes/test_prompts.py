"""Histories to messages in both layouts and both wordings, dropping of turns (B10, B11), and the action rule."""

import pytest

from seedlab.config.presets import load_config
from seedlab.config.schema import EnvConfig
from seedlab.episodes.prompts import COMPACT_WORDS, History, PromptTooLong, compact_text, make_prompt_format, parse_action

INTRO = (
    "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see a cabinet 4, "
    "and a desk 1.\n\nYour task is to: put a hot mug in cabinet."
)


def history(turns=3, answered=False):
    observations = [INTRO] + [f"You arrive at desk {k}. On the desk {k}, you see a mug {k}." for k in range(1, turns)]
    done = turns if answered else turns - 1
    return History(
        goal="put a hot mug in cabinet.", observations=observations,
        responses=[f"<think>T{k}</think><action>Go to desk {k + 1}</action>" for k in range(done)],
        actions=[f"go to desk {k + 1}" for k in range(done)], holding=["", "mug 1", *[""] * turns][:turns],
        admissible=["look", "go to desk 1"], name="u000000/a-task/n0",
    )


def contents(messages):
    return [m["content"] for m in messages]


def words(messages):
    return list("".join(contents(messages)))


def test_compact_conversation_has_one_fact_a_line():
    got = make_prompt_format(EnvConfig()).messages(history(2), skill="go to desk 1 , then\nuse the microwave")
    assert [m["role"] for m in got] == ["user", "assistant", "user"]
    assert contents(got) == [
        "task : put a hot mug in cabinet .\n"
        "skill : go to desk 1 , then use the microwave\n"
        "hold : nothing\n"
        "you are in the middle of a room . looking quickly around you , you see a cabinet 4 , and a desk 1 .",
        "<think>T0</think><action>Go to desk 1</action>",
        "task : put a hot mug in cabinet .\nhold : mug 1\nyou arrive at desk 1 . on the desk 1 , you see a mug 1 .",
    ]


def test_compact_conversation_without_restating():
    got = make_prompt_format(EnvConfig(restate=False)).messages(history(2))
    assert contents(got)[0].splitlines()[0] == "task : put a hot mug in cabinet ."
    assert "hold" not in contents(got)[0]
    assert contents(got)[2] == "you arrive at desk 1 . on the desk 1 , you see a mug 1 ."


def test_terse_conversation_leaves_the_filling_words_out():
    got = make_prompt_format(EnvConfig(prompt="terse")).messages(history(2), skill="take the mug , then look")
    assert contents(got) == [
        "task : put hot mug in cabinet .\n"
        "skill : take the mug , then look\n"
        "hold : nothing\n"
        "you are in middle of room . looking quickly around you you see cabinet 4 desk 1 .",
        "<think>T0</think><action>Go to desk 1</action>",
        "task : put hot mug in cabinet .\nhold : mug 1\nyou arrive at desk 1 . on desk 1 you see mug 1 .",
    ]
    assert make_prompt_format(EnvConfig(prompt="terse")).extends


def test_brief_conversation_has_no_marks_and_is_silent_about_empty_hands():
    got = make_prompt_format(EnvConfig(prompt="brief")).messages(history(2), skill="take the mug , then look")
    assert contents(got) == [
        "task put hot mug in cabinet\n"
        "skill take the mug , then look\n"
        "you are in middle of room looking quickly around you you see cabinet 4 desk 1",
        "<think>T0</think><action>Go to desk 1</action>",
        "task put hot mug in cabinet\nhold mug 1\nyou arrive at desk 1 on desk 1 you see mug 1",
    ]
    step = EnvConfig(prompt="brief", layout="step", history_window=1, show_admissible=True)
    (message,) = make_prompt_format(step).messages(history(3))
    assert message["content"].splitlines()[1:] == [
        "saw you arrive at desk 1 on desk 1 you see mug 1", "did go to desk 2", "you arrive at desk 2 on desk 2 you see mug 2",
        "can look ; go to desk 1",
    ]


def test_compact_step_is_one_message_with_the_window():
    env = EnvConfig(layout="step", history_window=1, show_admissible=True)
    got = make_prompt_format(env).messages(history(3), skill="s")
    assert contents(got) == [
        "task : put a hot mug in cabinet .\nskill : s\n"
        "saw : you arrive at desk 1 . on the desk 1 , you see a mug 1 .\ndid : go to desk 2\n"
        "hold : nothing\nyou arrive at desk 2 . on the desk 2 , you see a mug 2 .\ncan : look ; go to desk 1"
    ]


def test_instruct_step_shows_commands_and_never_past_thinking():
    env = EnvConfig(layout="step", history_window=5, show_admissible=True, prompt="instruct")
    (message,) = make_prompt_format(env).messages(history(3), skill="Heat it first.")
    lines = message["content"].splitlines()
    assert lines[1:4] == ["Task: put a hot mug in cabinet.", "Advice from an earlier attempt at this task:", "Heat it first."]
    assert "Command 1: go to desk 1" in lines and "Command 2: go to desk 2" in lines
    assert lines.index("look") < lines.index("go to desk 1")
    assert "T0" not in message["content"] and "<action>" in lines[-1] and "<think>" in lines[-1]


def test_instruct_conversation_carries_responses_word_for_word():
    got = make_prompt_format(EnvConfig(prompt="instruct")).messages(history(3))
    assert got[1] == {"role": "assistant", "content": "<think>T0</think><action>Go to desk 1</action>"}
    assert got[2]["content"].startswith("Observation: You arrive at desk 1. On the desk 1, you see a mug 1.\n")
    assert "Task:" in got[0]["content"] and "Task:" not in got[2]["content"]


ALL_FORMATS = [
    EnvConfig(layout=layout, prompt=prompt, show_admissible=show, history_window=window)
    for layout in ("step", "conversation") for prompt in ("compact", "instruct") for show in (True, False) for window in (None, 2)
]


@pytest.mark.parametrize("env", ALL_FORMATS, ids=lambda e: f"{e.layout}-{e.prompt}-{e.show_admissible}-{e.history_window}")
def test_skill_is_one_block_behind_the_task_line_and_empty_changes_nothing(env):
    prompts, past = make_prompt_format(env), history(4)
    for kept in range(4):
        plain = prompts.messages(past, kept_from=kept)
        assert prompts.messages(past, skill="", kept_from=kept) == plain
        taught = prompts.messages(past, skill="CANARY-7 goes here", kept_from=kept)
        assert len(taught) == len(plain) and taught[1:] == plain[1:]
        assert "".join(contents(taught)).count("CANARY-7 goes here") == 1
        assert "CANARY" not in "".join(contents(plain))
        lines, before = taught[0]["content"].splitlines(), plain[0]["content"].splitlines()
        at = next(i for i, line in enumerate(lines) if "CANARY" in line)
        head = at if env.prompt == "compact" else at - 1
        assert "mug in cabinet" in lines[head - 1]
        assert lines[:head] + lines[at + 1 :] == before


@pytest.mark.parametrize("layout", ["step", "conversation"])
def test_next_prompt_continues_the_messages_of_the_one_before(layout):
    prompts = make_prompt_format(EnvConfig(layout=layout))
    long, short = prompts.messages(history(4)), prompts.messages(history(3))
    assert prompts.extends == (layout == "conversation")
    assert (long[: len(short)] == short) == prompts.extends


def test_listing_commands_gives_up_extension():
    assert not make_prompt_format(EnvConfig(show_admissible=True)).extends


@pytest.mark.parametrize("layout", ["step", "conversation"])
def test_an_answered_history_ends_with_the_response(layout):
    got = make_prompt_format(EnvConfig(layout=layout)).messages(history(3, answered=True))
    assert got[-1] == {"role": "assistant", "content": history(3, answered=True).responses[-1]}


@pytest.mark.parametrize("layout", ["step", "conversation"])
def test_whole_oldest_turns_are_dropped_and_the_task_is_kept(layout):
    prompts, past = make_prompt_format(EnvConfig(layout=layout)), history(41)
    everything = prompts.messages(past)
    newest_ten = prompts.messages(past, kept_from=31)
    limit = len(words(newest_ten))
    got, kept = prompts.fit(words, past, limit)
    assert (got, kept) == (newest_ten, 31)
    assert len(words(prompts.messages(past, kept_from=30))) > limit
    assert got[0]["content"].startswith("task : put a hot mug in cabinet .\n")
    assert "desk 40" in got[-1]["content"] and "desk 29 " not in "".join(contents(got))
    whole_lines = {line for content in contents(everything) for line in content.splitlines()}
    assert all(line in whole_lines for content in contents(got) for line in content.splitlines())
    assert prompts.fit(words, past, 10**6) == (everything, 0)
    newest = prompts.messages(past, kept_from=40)
    assert prompts.fit(words, past, len(words(newest))) == (newest, 40)
    with pytest.raises(PromptTooLong):
        prompts.fit(words, past, len(words(newest)) - 1)


def test_the_same_turns_are_kept_with_a_skill():
    prompts, past = make_prompt_format(EnvConfig()), history(9)
    student, teacher = prompts.messages(past, kept_from=5), prompts.messages(past, skill="s", kept_from=5)
    assert teacher[1:] == student[1:]
    assert teacher[0]["content"].replace("skill : s\n", "") == student[0]["content"]


def test_a_window_bounds_the_turns_before_any_limit_does():
    prompts = make_prompt_format(EnvConfig(history_window=2))
    assert prompts.first_turn(history(6)) == 3
    assert prompts.messages(history(6)) == prompts.messages(history(6), kept_from=3)
    assert prompts.fit(words, history(6), 10**6)[1] == 3


def test_a_prompt_that_cannot_fit_names_the_task():
    prompts = make_prompt_format(EnvConfig())
    with pytest.raises(PromptTooLong, match="u000000/a-task/n0: .* takes ([0-9]+) tokens, more than rollout.max_prompt_tokens=20; set it to \\1 at least"):
        prompts.fit(words, history(5), 20)


def test_a_history_without_an_observation_is_refused():
    with pytest.raises(ValueError, match="without an observation"):
        make_prompt_format(EnvConfig()).messages(History(goal="g", name="x"))


def test_compact_text_keeps_every_word_whole():
    assert compact_text(INTRO).endswith("you see a cabinet 4 , and a desk 1 .")
    assert compact_text("The safe 1 is closed.") == "the safe 1 is closed ."
    assert compact_text("") == ""
    lines = "".join(contents(make_prompt_format(EnvConfig(layout="step", show_admissible=True)).messages(history(2), skill="s")))
    assert all(word in COMPACT_WORDS for word in ("task", "skill", "hold", "saw", "did", "can", ":", ";") if word in lines)


@pytest.mark.parametrize(
    "response, expected",
    [
        ("go to desk 1", ("go to desk 1", True)),
        ("  go to desk 1\n", ("go to desk 1", True)),
        ("Go To", ("Go To", True)),
        ("", ("", False)),
        (" \n", ("", False)),
        ("go\nlook", ("go\nlook", False)),
    ],
)
def test_compact_actions(response, expected):
    assert parse_action(response, "compact") == expected


@pytest.mark.parametrize(
    "response, expected",
    [
        ("<think>a</think><action> Go To Desk 1 </action>", ("go to desk 1", True)),
        ("<think>a</think><ACTION>look</ACTION>", ("look", True)),
        ("<Think>a</Think><action>look</action>", ("look", False)),
        ("<action>look</action>", ("look", False)),
        ("<think>a<action>look</action>", ("look", False)),
        ("<think>走</think><action>look</action>", ("look", False)),
        ("<think>é日</think><action>look</action>", ("look", False)),
        ("<think>é</think><action>look</action>", ("look", True)),
        ("<think>a</think><action>look</action><action>go</action>", ("look", True)),
        ("<think>a</think>GO TO", ("<think>a</think>go to", False)),
        ("<think>a</think><action>look", ("<think>a</think><action>look", False)),
        ("", ("", False)),
    ],
)
def test_instruct_actions_follow_the_familys_rule(response, expected):
    assert parse_action(response, "instruct") == expected


def test_fallback_is_the_last_thirty_characters():
    assert parse_action("x" * 40 + "GO TO DESK 1", "instruct") == ("x" * 18 + "go to desk 1", False)
    assert parse_action("x" * 40 + "GO TO DESK 1", "instruct", 20) == ("x" * 8 + "go to desk 1", False)


# ---- differences from the public code's protocol, each an option

FAMILY = dict(
    layout="step", history_window=5, show_admissible=True, prompt="instruct", history_lines="bracketed", task_line="unless_stated",
    list_help=False,
)  # fmt: skip


def test_the_public_codes_protocol_can_be_chosen():
    past = history(3)
    past.admissible = ["go to desk 1", "help", "look"]
    lines = make_prompt_format(EnvConfig(**FAMILY)).messages(past)[0]["content"].splitlines()
    assert "[Observation 2: 'You arrive at desk 1. On the desk 1, you see a mug 1.', Action 2: 'go to desk 2']" in lines
    assert "Task: put a hot mug in cabinet." in lines  # the newest observation does not name it
    assert "help" not in lines and "look" in lines
    ours = make_prompt_format(EnvConfig(**FAMILY | {"list_help": True})).messages(past)[0]["content"].splitlines()
    assert "help" in ours


@pytest.mark.parametrize("layout", ["step", "conversation"])
def test_the_first_prompt_names_the_task_once_or_twice(layout):
    for task_line, times in (("unless_stated", 1), ("always", 2)):
        env = EnvConfig(**FAMILY | {"task_line": task_line, "layout": layout})
        text = make_prompt_format(env).messages(history(1), skill="Heat it.")[0]["content"]
        assert text.count("put a hot mug in cabinet") == times
        assert text.index("Heat it.") < text.index("Observation:")
    dropped = make_prompt_format(EnvConfig(**FAMILY | {"layout": layout})).messages(history(4), kept_from=3)[0]["content"]
    assert "Task: put a hot mug in cabinet." in dropped  # the turn that named the task has gone


def test_the_authors_presets_take_the_public_codes_side():
    alfworld, webshop = (load_config(f"authors/{name}-qwen2.5-3b").env for name in ("alfworld", "webshop"))
    assert (alfworld.history_lines, alfworld.task_line, alfworld.list_help, alfworld.fallback_characters) == (
        "bracketed", "unless_stated", False, 30
    )  # fmt: skip
    assert webshop.fallback_characters == 20
    paper = load_config("paper/alfworld-qwen2.5-3b").env
    assert (paper.layout, paper.history_window, paper.max_steps, paper.prompt, paper.show_admissible) == ("step", 5, 30, "instruct", True)
    assert (paper.history_lines, paper.task_line, paper.list_help) == ("plain", "always", True)


def test_unknown_prompt_kind():
    with pytest.raises(ValueError, match="compact, terse, brief or instruct"):
        parse_action("x", "other")
