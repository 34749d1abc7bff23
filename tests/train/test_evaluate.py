"""Evaluation: every id once, decoding recorded, no skill in any prompt (cases C10, E10, E11)."""

import pandas as pd
import pytest

from seedlab.config.presets import load_config
from seedlab.envs import make_family
from seedlab.errors import UserError
from seedlab.train.evaluate import SkillLeak, evaluate, refuse_leaks, summarise

SHORT = ("env.max_steps=3", "env.panel_sizes.unseen=6", "env.panel_limits.unseen=5")


@pytest.fixture(scope="module")
def session(make_session, micro):
    return make_session(micro(*SHORT))


@pytest.fixture(scope="module")
def evaluation(session):
    return evaluate(session, update=3, panels=("seen", "unseen"))


def test_each_id_is_played_once_and_the_summary_says_how(session, evaluation):
    for name in ("seen", "unseen"):
        panel, row = session.panels[name], evaluation.summary[name]
        part = evaluation.episodes[evaluation.episodes["panel"] == name]
        assert list(part["task"]) == list(panel.task_ids)
        assert (row["panel_hash"], row["tasks"], row["episodes"], row["update"]) == (panel.hash, len(panel.task_ids), len(part), 3)
        assert row["decoding"] == {"temperature": 0.4, "top_p": 1.0, "n": 1, "seed": 1000, "max_tokens": 12}


@pytest.mark.parametrize("batch", [1, 2, 96])
def test_the_batch_size_changes_no_episode(make_session, micro, evaluation, batch):
    other = evaluate(make_session(micro(*SHORT, f"evaluation.batch={batch}")), update=3, panels=("seen", "unseen"))
    pd.testing.assert_frame_equal(other.episodes, evaluation.episodes)
    assert other.summary == evaluation.summary


def test_samples_of_one_task_have_their_own_streams(make_session, micro):
    session = make_session(micro(*SHORT, "evaluation.samples_per_task=3", "evaluation.temperature=1.0"))
    asked = keys_of(session, lambda: evaluate(session, update=0, panels=("seen",)))
    first = {k: s for k, s in asked.items() if k[1] == 0}
    assert len(first) == 4 * 3
    assert len({s.key for s in first.values()}) == 12
    assert {s.temperature for s in asked.values()} == {1.0}


def keys_of(session, act):
    """{(trajectory, step): sampling} of everything the engine is asked."""
    asked, generate = {}, session.generator.generate

    async def noted(prompt_ids, sampling, *, trajectory_id, images=()):
        asked[trajectory_id, sum(t == trajectory_id for t, _ in asked)] = sampling
        return await generate(prompt_ids, sampling, trajectory_id=trajectory_id)

    session.generator.generate = noted
    try:
        act()
    finally:
        del session.generator.generate
    return asked


def test_a_greedy_evaluation_asks_the_engine_for_temperature_zero(make_session, micro):
    session = make_session(micro(*SHORT, "evaluation.temperature=0.0"))
    asked = keys_of(session, lambda: evaluate(session, update=0, panels=("seen",)))
    assert {s.temperature for s in asked.values()} == {0.0}
    assert session.cfg.rollout.temperature == 1.0


def test_evaluation_leaves_nothing_in_the_engine(session, evaluation):
    assert session.generator._store._rows == {}


def test_an_unknown_panel_is_named(session):
    with pytest.raises(UserError, match="'unsen'; did you mean 'unseen'.*stage1, train, dev, seen, unseen"):
        evaluate(session, update=0, panels=("unsen",))


@pytest.mark.parametrize("preset", ["micro", "tiny"])
def test_panels_share_no_task(preset):
    panels = make_family(load_config(preset).env).panels()
    ids = [task for panel in panels.values() for task in panel.task_ids]
    assert len(ids) == len(set(ids))


# ---- scores


def frame(rows):
    columns = ["task_type", "success", "return", "steps", "inadmissible", "infra_failure"]
    return pd.DataFrame(rows, columns=columns)


def test_macro_and_micro_are_named_apart():
    counts = {"pick": (24, 24), "look": (9, 18), "clean": (31, 31), "heat": (10, 23), "cool": (21, 21), "two": (8, 17)}
    rows = [(k, i < won, float(i < won), 4, 1, "") for k, (won, n) in counts.items() for i in range(n)]
    got = summarise(frame(rows))
    assert got["success_micro"] == pytest.approx(0.7687, abs=5e-5)
    assert got["success_macro"] == pytest.approx(0.7342, abs=5e-5)
    assert got["by_type"]["heat"] == {"successes": 10, "episodes": 23}
    assert (got["mean_steps"], got["inadmissible_rate"]) == (4.0, 0.25)


def test_an_infrastructure_failure_is_counted_and_is_no_loss():
    got = summarise(frame([("pick", True, 1.0, 2, 0, ""), ("pick", False, 0.0, 1, 0, "worker died")]))
    assert (got["success_micro"], got["episodes"], got["infra_failures"]) == (1.0, 1, 1)


# ---- leaks


def test_an_episode_with_a_skill_is_a_leak(session):
    from seedlab.episodes.play import Episode

    played = session.play([Episode(session.panels["seen"].task_ids[0], 0, "look around first")], phase="x", update=0, seed=0, temperature=1.0)
    with pytest.raises(SkillLeak, match="with a skill in its prompt"):
        refuse_leaks(session, played, ())
    played[0].prompt_skill = ""  # as if the record had lost it
    with pytest.raises(SkillLeak, match="'look around first'"):
        refuse_leaks(session, played, ("look\n around first",))
    refuse_leaks(session, played, ("something else entirely",))


def test_words_of_the_episode_itself_are_no_leak(session):
    goal = session.family.make(session.panels["seen"].task_ids[0]).goal
    words = " ".join(goal.lower().rstrip(".").split())
    evaluate(session, update=0, panels=("seen",), skills=(words, "you see a", "in the middle of a room"))


def test_a_planted_skill_stops_the_evaluation(make_session, micro, monkeypatch):
    session = make_session(micro(*SHORT))
    messages = type(session.prompts).messages
    monkeypatch.setattr(
        type(session.prompts), "fit",
        lambda self, render, history, limit, *, skill="": (messages(self, history, skill="canary in the coal mine"), 0),
    )  # fmt: skip
    with pytest.raises(SkillLeak, match="canary in the coal mine"):
        evaluate(session, update=0, panels=("seen",), skills=("canary in the coal mine",))


def test_a_panel_of_infrastructure_failures_has_no_rate_and_names_the_first():
    failed = [("pick", False, 0.0, 0, 0, "worker died"), ("clean", False, 0.0, 0, 0, "time-out")]
    with pytest.raises(UserError, match="none of its 2 episodes could be played.*worker died"):
        summarise(frame(failed).assign(panel="seen", task="household/t"))
