"""The analyzer's prompt: one template, the rollout's ids as its prefix, whole oldest turns dropped."""

import json

import pytest

from seedlab.config.schema import AnalyzerConfig, EnvConfig
from seedlab.episodes.prompts import PromptTooLong, make_prompt_format
from seedlab.skills.prompts import analyzer_messages, analyzer_prompt, completion_text, transcript
from seedlab.skills.validate import validate

CFG = AnalyzerConfig()
CONVERSATION = make_prompt_format(EnvConfig())


@pytest.mark.parametrize("success", [True, False])
def test_marker_prompt_is_the_conversation_then_outcome_and_marker(make_trajectory, success):
    messages = analyzer_messages(make_trajectory(success=success), CONVERSATION, "marker")
    assert [m["role"] for m in messages] == ["user", "assistant"] * 3 + ["user"]
    assert messages[-1]["content"] == (
        "task : put a mug in desk 1 .\nyou put the mug 1 in the desk 1 .\n"
        f"outcome : {'success' if success else 'failure'}\nskill :"
    )
    assert "outcome" not in "".join(m["content"] for m in messages[:-1])


@pytest.mark.parametrize("ended", [True, False])
def test_marker_ids_begin_with_the_rollouts_exact_ids(make_trajectory, chat, ended):
    trajectory = make_trajectory(ended=ended)
    prompt = analyzer_prompt(trajectory, CONVERSATION, chat, CFG)
    last = trajectory.steps[-1]
    seen = last.prompt_ids + last.response_ids
    assert prompt.ids[: len(seen)] == seen
    assert chat.render(prompt.messages)[: len(seen)] != seen
    assert chat.tokenizer.decode(prompt.ids) == chat.tokenizer.decode(chat.render(prompt.messages))
    assert prompt.dropped == 0


def test_marker_keeps_the_skill_that_stood_in_the_rollout_prompt(make_trajectory, chat):
    trajectory = make_trajectory(prompt_skill="open desk 2")
    prompt = analyzer_prompt(trajectory, CONVERSATION, chat, CFG)
    assert prompt.ids[: len(trajectory.steps[-1].prompt_ids)] == trajectory.steps[-1].prompt_ids
    assert "skill : open desk 2" in prompt.messages[0]["content"]


def test_marker_in_the_step_layout_shows_every_turn_as_a_conversation(make_trajectory, chat):
    env = EnvConfig(layout="step", history_window=1, prompt="instruct")
    trajectory = make_trajectory(env=env, turns=4)
    for step in trajectory.steps:
        step.response = f"<think>long</think><action>{step.action}</action>"
    prompt = analyzer_prompt(trajectory, make_prompt_format(env), chat, AnalyzerConfig(max_prompt_tokens=4000))
    assert [m["content"] for m in prompt.messages if m["role"] == "assistant"] == [s.action for s in trajectory.steps]
    assert prompt.ids == chat.render(prompt.messages)


def test_json_prompt_is_one_message_with_everything_that_happened(make_trajectory):
    trajectory = make_trajectory(success=False)
    (message,) = analyzer_messages(trajectory, CONVERSATION, "json")
    lines = message["content"].splitlines()
    assert "Task: put a mug in desk 1." in lines and "Outcome: failure" in lines and "Total reward: 0" in lines
    assert "Observation 2: You see a mug 2 on the desk 1." in lines
    assert "Action 3: go to desk 3" in lines and "Reward 3: 0" in lines
    assert "Final observation: You put the mug 1 in the desk 1." in lines
    assert '"episode_summary"' in message["content"] and '"episode_skill"' in message["content"]


def test_json_instructions_follow_the_outcome(make_trajectory):
    texts = [analyzer_messages(make_trajectory(success=s), CONVERSATION, "json")[0]["content"] for s in (True, False)]
    assert "Outcome: success" in texts[0] and "Total reward: 1" in texts[0] and "Reward 3: 1" in texts[0]
    assert "avoided" in texts[1] and "avoided" not in texts[0]
    assert "can be solved again" in texts[0] and "can be solved again" not in texts[1]


@pytest.mark.parametrize("contract", ["marker", "json"])
def test_too_long_prompts_lose_whole_oldest_turns_and_say_how_many(make_trajectory, chat, contract):
    trajectory = make_trajectory(turns=8)
    full = analyzer_prompt(trajectory, CONVERSATION, chat, AnalyzerConfig(max_prompt_tokens=10**5), contract=contract)
    limit = len(chat.render(full.messages)) - 1
    short = analyzer_prompt(trajectory, CONVERSATION, chat, AnalyzerConfig(max_prompt_tokens=limit), contract=contract)
    assert (full.dropped, short.dropped >= 1) == (0, True)
    assert len(short.ids) <= limit
    text = "\n".join(m["content"] for m in short.messages).lower()
    assert "put a mug in desk 1" in text and "mug 8" in text and "you see a mug 1 on" not in text
    if contract == "json":
        assert f"(turns 1 to {short.dropped} are left out)" in text and f"action {short.dropped}:" not in text


def test_marker_limit_that_only_the_sampled_ids_exceed_falls_back_to_the_rendered_text(make_trajectory, chat):
    trajectory = make_trajectory()
    limit = len(chat.render(analyzer_messages(trajectory, CONVERSATION, "marker")))
    prompt = analyzer_prompt(trajectory, CONVERSATION, chat, AnalyzerConfig(max_prompt_tokens=limit))
    assert (len(prompt.ids), prompt.dropped) == (limit, 0)


def test_a_prompt_without_room_names_the_trajectory(make_trajectory, chat):
    with pytest.raises(PromptTooLong, match=r"u000000/a/n0 \(analyzer\)"):
        analyzer_prompt(make_trajectory(), CONVERSATION, chat, AnalyzerConfig(max_prompt_tokens=10))


def test_an_episode_that_never_acted_still_has_a_prompt(make_trajectory, chat):
    trajectory = make_trajectory(turns=0)
    for contract in ("marker", "json"):
        assert "put a mug in desk 1" in analyzer_prompt(trajectory, CONVERSATION, chat, CFG, contract=contract).messages[0]["content"]


@pytest.mark.parametrize("contract", ["marker", "json"])
def test_completion_text_is_read_back_as_the_skill(contract):
    text = 'open the "desk 1" first , é then {put} the mug'
    assert validate(completion_text(text, contract), contract, CFG, "", "stop") == (text, True, "ok")
    if contract == "json":
        assert json.loads(completion_text(text, "json", summary="s"))["episode_summary"] == "s"


def test_transcript_has_goal_observations_and_actions(make_trajectory):
    assert transcript(make_trajectory(turns=1)).splitlines() == [
        "put a mug in desk 1.", "You see a mug 1 on the desk 1.", "go to desk 1", "You put the mug 1 in the desk 1."
    ]


def test_unknown_contract(make_trajectory):
    with pytest.raises(ValueError, match="marker or json"):
        analyzer_messages(make_trajectory(), CONVERSATION, "xml")
