"""Limits that hold no prompt of the environment are refused before anything is computed, with the least that would do."""

import re

import pytest

from seedlab.config.presets import load_config
from seedlab.episodes.prompts import History, PromptTooLong
from seedlab.errors import ConfigError, UserError
from seedlab.skills.prompts import analyzer_prompt
from seedlab.train import run as run_module
from seedlab.skills.library import SkillLibrary
from seedlab.train.prompt_limits import refuse_small_limits
from seedlab.train.run import train


@pytest.fixture
def nothing_computed(monkeypatch, tmp_path):
    """A cache in which nothing may be built."""
    monkeypatch.setenv("SEEDLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run_module, "_phases", lambda *a: pytest.fail("the work began"))


@pytest.mark.parametrize("key", ["rollout.max_prompt_tokens", "analyzer.max_prompt_tokens"])
def test_a_limit_without_room_names_key_value_and_what_would_do(key, tmp_path, nothing_computed):
    with pytest.raises(ConfigError, match=rf"{key}=3 is too small: .* takes \d+ tokens here; set it to (\d+) at least") as caught:
        train(load_config("micro", [f"{key}=3"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    least = int(re.search(r"set it to (\d+) at least", str(caught.value))[1])
    refuse_small_limits(load_config("micro", [f"{key}={least}"]))
    with pytest.raises(ConfigError, match=f"{key}={least - 1} is too small"):
        refuse_small_limits(load_config("micro", [f"{key}={least - 1}"]))


def test_both_are_named_at_once():
    with pytest.raises(ConfigError, match="rollout.max_prompt_tokens=3 .*; analyzer.max_prompt_tokens=3 "):
        refuse_small_limits(load_config("tiny", ["rollout.max_prompt_tokens=3", "analyzer.max_prompt_tokens=3"]))


def test_the_least_is_what_the_longest_first_prompt_takes(make_session, micro):
    """Against the prompts that are really played; micro's panels are so small that every task of theirs is looked at."""
    session = make_session(micro())
    lengths = []
    for name in ("stage1", "dev", "train", *session.cfg.evaluation.panels):
        for task in session.panels[name].task_ids:
            env = session.family.make(task)
            opening = History("", [env.reset()], holding=[env.holding() or ""], admissible=list(env.admissible()))
            opening.goal = env.goal
            lengths.append(len(session.chat.render(session.prompts.messages(opening))))
            env.close()
    assert len(set(lengths)) > 1
    refuse_small_limits(micro(f"rollout.max_prompt_tokens={max(lengths)}"))
    with pytest.raises(ConfigError, match=f"set it to {max(lengths)} at least"):
        refuse_small_limits(micro(f"rollout.max_prompt_tokens={max(lengths) - 1}"))


def test_a_static_skill_in_the_prompt_needs_its_room():
    least = []
    for skill in ("none", "library"):
        with pytest.raises(ConfigError) as caught:
            refuse_small_limits(load_config("micro", ["rollout.max_prompt_tokens=3", f"evaluation.skill={skill}"]))
        least.append(int(re.search(r"set it to (\d+) at least", str(caught.value))[1]))
    assert least[1] > least[0] + 5


def test_a_static_skill_that_no_teacher_has_room_for_is_refused(tmp_path):
    # Each teacher would be left out, one by one, and the run would be plain GRPO under another name.
    library = SkillLibrary.builtin("household", "both")
    huge = SkillLibrary.of(dict(library.texts) | {"general": "look first " * 2000})
    huge.save(tmp_path / "huge.jsonl")
    cfg = load_config("micro", ["method=sdar", f"skills.library={tmp_path / 'huge.jsonl'}"])
    with pytest.raises(ConfigError, match="model.context=1024 is too small: the first prompt of a task with the teacher's static skill"):
        refuse_small_limits(cfg)
    refuse_small_limits(load_config("micro", ["method=sdar"]))


def test_what_is_never_analysed_needs_no_room_for_it():
    refuse_small_limits(load_config("micro", ["method=grpo", "analyzer.max_prompt_tokens=3"]))


def test_a_folder_s_own_tokenizer_decides(finished, nothing_computed, tmp_path):
    path = finished.path / "checkpoints" / "reference"
    with pytest.raises(ConfigError, match="rollout.max_prompt_tokens=3 is too small"):
        train(load_config("micro", [f"model.path={path}", "rollout.max_prompt_tokens=3"]), tmp_path / "run")


def test_while_playing_the_message_names_the_same_key(make_session, micro, rollout):
    session = make_session(micro("rollout.max_prompt_tokens=3"))
    with pytest.raises(PromptTooLong, match=r"takes (\d+) tokens, more than rollout.max_prompt_tokens=3; set it to \1 at least"):
        rollout(session)
    session = make_session(micro("analyzer.max_prompt_tokens=3"))
    with pytest.raises(UserError, match=r"takes (\d+) tokens, more than analyzer.max_prompt_tokens=3; set it to \1 at least"):
        analyzer_prompt(rollout(session)[0], session.prompts, session.chat, session.cfg.analyzer)
