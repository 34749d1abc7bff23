"""Skills of critical steps: how they are asked for, read back and judged (opid)."""

import json

import pytest

from seedlab.config.schema import AnalyzerConfig, EnvConfig
from seedlab.episodes.prompts import make_prompt_format
from seedlab.skills import ScriptedAnalyzer, analyzer_messages, completion_text, write_skills
from seedlab.skills.steps import step_skills, told_steps, usable_steps

GOOD = "open the desk before you look on the mug"
ADVICE = "open the desk now and put it in"


@pytest.mark.parametrize("contract", ["marker", "json"])
def test_an_answer_is_read_back_as_it_was_made(contract):
    raw = completion_text(GOOD, contract, steps={2: ADVICE, 0: GOOD})
    assert told_steps(raw, contract) == [(1, GOOD), (3, ADVICE)]
    assert told_steps(completion_text(GOOD, contract), contract) == []


def test_the_request_stands_in_the_json_prompt_alone_and_only_where_it_is_wanted(make_trajectory):
    trajectory, prompts = make_trajectory(), make_prompt_format(EnvConfig())
    text = [analyzer_messages(trajectory, prompts, "json", critical_steps=n)[0]["content"] for n in (0, 2)]
    assert "critical_steps" not in text[0] and text[1].startswith(text[0]) and "at most 2 objects" in text[1]
    marker = [analyzer_messages(trajectory, prompts, "marker", critical_steps=n) for n in (0, 2)]
    assert marker[0] == marker[1]


def judged(entries, trajectory, most=2):
    raw = json.dumps({"episode_skill": GOOD, "critical_steps": entries})
    return [(s.step, s.accepted, s.reason) for s in step_skills(raw, "json", trajectory, "", AnalyzerConfig(), most)]


def test_each_step_is_judged_by_itself(make_trajectory):
    trajectory = make_trajectory(turns=3)
    entry = lambda step, skill=ADVICE: {"step": step, "skill": skill}  # noqa: E731
    assert judged([entry(1), entry(3)], trajectory) == [(0, True, "ok"), (2, True, "ok")]
    assert judged([entry(0), entry(4), entry("2"), entry(True), entry(2, None)], trajectory) == [(-1, False, "no_such_step")] * 5
    assert judged([entry(2, "too short"), entry(2)], trajectory) == [(1, False, "too_short"), (1, False, "told_twice")]
    assert judged([entry(1), entry(2), entry(3)], trajectory)[2] == (2, False, "too_many")
    assert judged("none", trajectory) == judged(["x", 3], trajectory) == []


class Household:
    """Marks every step."""

    def hindsight_skill(self, goal, observations, actions, success):
        return GOOD

    def step_skills(self, goal, observations, actions, success, limit):
        return {step: f"{ADVICE} {step}" for step in range(min(limit, len(actions)))}


@pytest.mark.parametrize("contract", ["marker", "json"])
def test_the_episodes_skill_is_judged_without_its_steps(make_trajectory, chat, contract):
    def written(most):
        (skill,) = write_skills(
            [make_trajectory()], ScriptedAnalyzer(Household(), contract, most), make_prompt_format(EnvConfig()), chat, AnalyzerConfig(contract=contract),
            key=lambda t: 0, snapshot=0, critical_steps=most,
        ).skills
        return skill

    assert (written(2).text, written(2).accepted) == (GOOD, True)
    assert {step: s.text for step, s in usable_steps(written(2)).items()} == {0: f"{ADVICE} 0", 1: f"{ADVICE} 1"}
    assert written(0).steps == [] and usable_steps(None) == {}
