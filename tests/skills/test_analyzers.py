"""Asking for skills: the order, the verdicts, the generator's bookkeeping, and the scripted analyzer."""

import pytest

from seedlab.config.schema import AnalyzerConfig, EnvConfig
from seedlab.episodes.prompts import make_prompt_format
from seedlab.policy.protocol import Generation
from seedlab.skills.analyzers import OwnAnalyzer, ScriptedAnalyzer, write_skills

CFG = AnalyzerConfig()
PROMPTS = make_prompt_format(EnvConfig())
GOOD = "open the desk 2 , then go to desk 1"


class ScriptedGenerator:
    """Answers by trajectory id, and records what it was asked."""

    weights_version = 0

    def __init__(self, chat, answers, finish="stop"):
        self.chat, self.answers, self.finish = chat, answers, finish
        self.live, self.most, self.asked = 0, 0, []

    def expect(self, episodes):
        self.live += episodes
        self.most = max(self.most, self.live)

    def leave(self):
        self.live -= 1

    def release(self, trajectory_id):
        pass

    async def generate(self, prompt_ids, sampling, *, trajectory_id, images=()):
        self.asked.append((trajectory_id, list(prompt_ids), sampling))
        answer = self.answers[trajectory_id]
        if isinstance(answer, Exception):
            raise answer
        ids = self.chat.encode(answer) + ([self.chat.end_of_turn] if self.finish == "stop" else [])
        return Generation(ids, [0.0] * len(ids), [0.0] * len(ids), self.finish, 0)


def batch(make_trajectory, count=4):
    return [make_trajectory(f"u000000/a/n{n}") for n in range(count)]


def test_own_skills_come_in_order_with_their_verdicts(make_trajectory, chat):
    trajectories = batch(make_trajectory)
    trajectories[2].infra_failure = "worker died"
    generator = ScriptedGenerator(chat, {trajectories[0].id: GOOD, trajectories[1].id: "", trajectories[3].id: "too short"})
    done = []
    got = write_skills(
        trajectories, OwnAnalyzer(generator, chat, CFG), PROMPTS, chat, CFG, key=lambda t: 100 + t.n, snapshot=7, on_done=done.append
    )
    assert [(s.trajectory_id[-2:], s.text, s.accepted, s.reason) for s in got.skills] == [
        ("n0", GOOD, True, "ok"), ("n1", "", False, "empty"), ("n3", "too short", False, "too_short")
    ]
    assert {s.analyzer for s in got.skills} == {"own"} and {s.snapshot for s in got.skills} == {7}
    assert got.skills[0].tokens == chat.count(GOOD) + 1
    assert got.prompt_tokens == sum(len(ids) for _, ids, _ in generator.asked)
    assert got.completion_tokens == sum(s.tokens for s in got.skills[:1]) + 1 + chat.count("too short") + 1
    assert generator.live == 0 and generator.most == 3
    assert sorted(s.id for s in done) == sorted(s.id for s in got.skills)


def test_own_analyzer_asks_for_greedy_text_behind_the_rollouts_ids(make_trajectory, chat):
    (trajectory,) = batch(make_trajectory, 1)
    generator = ScriptedGenerator(chat, {trajectory.id: GOOD})
    write_skills([trajectory], OwnAnalyzer(generator, chat, CFG), PROMPTS, chat, CFG, key=lambda t: 11, snapshot=0)
    ((asked, ids, sampling),) = generator.asked
    last = trajectory.steps[-1]
    assert asked == trajectory.id and ids[: len(last.prompt_ids)] == last.prompt_ids
    assert (sampling.temperature, sampling.max_tokens, sampling.key) == (0.0, 48, 11)
    assert chat.end_of_turn in sampling.stop_ids


def test_a_skill_cut_by_its_length_is_unusable(make_trajectory, chat):
    (trajectory,) = batch(make_trajectory, 1)
    generator = ScriptedGenerator(chat, {trajectory.id: GOOD}, finish="length")
    (skill,) = write_skills(
        [trajectory], OwnAnalyzer(generator, chat, CFG), PROMPTS, chat, CFG, key=lambda t: 0, snapshot=0
    ).skills
    assert (skill.text, skill.accepted, skill.reason) == (GOOD, False, "cut")


def test_blocks_bound_how_many_are_analysed_together(make_trajectory, chat):
    trajectories = batch(make_trajectory, 5)
    generator = ScriptedGenerator(chat, {t.id: GOOD for t in trajectories})
    got = write_skills(
        trajectories, OwnAnalyzer(generator, chat, CFG), PROMPTS, chat, CFG, key=lambda t: 0, snapshot=0, at_once=2
    )
    assert (generator.most, generator.live, len(got.skills)) == (2, 0, 5)


def test_one_failing_analysis_is_raised_after_all_have_left(make_trajectory, chat):
    trajectories = batch(make_trajectory, 3)
    generator = ScriptedGenerator(chat, {t.id: GOOD for t in trajectories} | {trajectories[1].id: RuntimeError("no memory")})
    with pytest.raises(RuntimeError, match="no memory"):
        write_skills(trajectories, OwnAnalyzer(generator, chat, CFG), PROMPTS, chat, CFG, key=lambda t: 0, snapshot=0)
    assert generator.live == 0 and len(generator.asked) == 3


def test_a_trajectory_whose_prompt_does_not_fit_is_rejected_and_the_others_go_on(make_trajectory, chat):
    trajectories = batch(make_trajectory, 2)
    trajectories[0].final_observation = "a mug " * 2000
    generator = ScriptedGenerator(chat, {t.id: GOOD for t in trajectories})
    got = write_skills(trajectories, OwnAnalyzer(generator, chat, CFG), PROMPTS, chat, CFG, key=lambda t: 0, snapshot=0)
    assert [s.reason for s in got.skills] == ["prompt_too_long", "ok"]
    assert generator.live == 0 and len(generator.asked) == 1


def test_dropped_turns_are_reported(make_trajectory, chat):
    trajectory = make_trajectory(turns=8)
    generator = ScriptedGenerator(chat, {trajectory.id: GOOD})
    cfg = AnalyzerConfig(max_prompt_tokens=300)
    got = write_skills([trajectory], OwnAnalyzer(generator, chat, cfg), PROMPTS, chat, cfg, key=lambda t: 0, snapshot=0)
    assert 0 < got.dropped_turns[trajectory.id] < 8
    assert len(generator.asked[0][1]) <= 300


class Household:
    def hindsight_skill(self, goal, observations, actions, success):
        self.seen = (goal, list(observations), list(actions), success)
        return GOOD if success else ""


@pytest.mark.parametrize("contract", ["marker", "json"])
def test_scripted_analyzer_sees_the_whole_episode_in_either_contract(make_trajectory, chat, contract):
    family, trajectory = Household(), make_trajectory()
    got = write_skills(
        [trajectory], ScriptedAnalyzer(family, contract), PROMPTS, chat, AnalyzerConfig(contract=contract), key=lambda t: 0, snapshot=3
    )
    assert family.seen == (
        trajectory.goal, [s.observation for s in trajectory.steps] + [trajectory.final_observation],
        [s.action for s in trajectory.steps], True,
    )
    (skill,) = got.skills
    assert (skill.text, skill.analyzer, skill.snapshot, skill.accepted) == (GOOD, "scripted", -1, True)
    assert (got.prompt_tokens, got.completion_tokens) == (0, 0) and skill.tokens > 0
    (nothing,) = write_skills(
        [make_trajectory(success=False)], ScriptedAnalyzer(family, contract), PROMPTS, chat, AnalyzerConfig(contract=contract),
        key=lambda t: 0, snapshot=3,
    ).skills
    assert nothing.reason == "empty"
