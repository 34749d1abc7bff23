"""Episodes against a scripted environment and a scripted generator (cases B3, B10, B11, E7)."""

import asyncio
from dataclasses import replace

import pytest

from seedlab.config.schema import EnvConfig
from seedlab.envs.protocol import InfrastructureError, StepInfo, StepResult
from seedlab.episodes.play import Episode, PlaySettings, history_of, play
from seedlab.episodes.prompts import PromptTooLong, make_prompt_format
from seedlab.policy.chat import ChatRenderer
from seedlab.policy.protocol import Generation
from seedlab.policy.tiny_tokenizer import build_tokenizer
from seedlab.rows.build import build_rows

SETTINGS = PlaySettings("u", seed=3, update=7, temperature=1.0, max_response_tokens=6, max_prompt_tokens=200)
THINKING = (
    "{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m['role'] == 'user' %}{%- set ns.last = loop.index0 %}"
    "{%- endif %}{%- endfor %}{%- for m in messages %}{%- set c = m['content'] %}"
    "{%- if m['role'] == 'assistant' and loop.index0 < ns.last %}{%- set c = c.split('</think>')[-1] %}{%- endif %}"
    "<|{{ m['role'] }}|>{{ c }}<|end|>{% endfor %}{%- if add_generation_prompt %}<|assistant|>{% endif %}"
)


class Room:
    """Walks from 0 to `length`; `go` is the only admissible command."""

    task_type = "walk"

    def __init__(self, task_id, length=4, fault=None, observation="you are at desk"):
        self.task_id, self.goal, self.length, self.fault, self.observation = task_id, f"walk {task_id}", length, fault, observation
        self.place, self.closed = 0, 0

    def reset(self):
        return f"{self.observation} {self.place}"

    def step(self, action):
        if self.fault == self.place:
            raise InfrastructureError("worker died")
        self.place += 1
        won = self.place >= self.length
        truncated = action == "stop" and not won
        return StepResult(f"{self.observation} {self.place}", float(won), won or truncated, StepInfo(won, float(won), action == "go", truncated))

    def admissible(self):
        return ["go"]

    def holding(self):
        return f"mug {self.place}"

    def close(self):
        self.closed += 1


class Rooms:
    def __init__(self, **options):
        self.options, self.made = options, []

    def make(self, task_id):
        self.made.append(Room(task_id, **self.options))
        return self.made[-1]

    def oracle_distance(self, env):
        return env.length - env.place


class Talker:
    """Answers by a rule of the request alone, and notes what it was asked."""

    weights_version = 0

    def __init__(self, chat, say=lambda sampling: "go", finish="stop", hurry=lambda name: 0):
        self.chat, self.say, self.finish, self.hurry = chat, say, finish, hurry
        self.prompts, self.samplings, self.live, self.expected = [], [], 0, []

    def expect(self, episodes):
        self.live += episodes
        self.expected.append(episodes)

    def leave(self):
        self.live -= 1

    def release(self, trajectory_id):
        return None

    async def generate(self, prompt_ids, sampling, *, trajectory_id, images=()):
        for _ in range(self.hurry(trajectory_id)):
            await asyncio.sleep(0)
        self.prompts.append(list(prompt_ids))
        self.samplings.append((trajectory_id, sampling))
        ids = self.chat.encode(self.say(sampling)) + ([self.chat.end_of_turn] if self.finish == "stop" else [])
        return Generation(ids, [-0.5] * len(ids), [0.25] * len(ids), self.finish, 0)


def chat_of(template=None):
    tokenizer = build_tokenizer("task : walk hold mug you are at desk go stop think 0 1 2 3 4 5 6 a b c .".split(), 256)
    tokenizer.chat_template = template or tokenizer.chat_template
    return ChatRenderer(tokenizer)


def run(episodes, *, rooms=None, talker=None, env=None, settings=SETTINGS, chat=None, **options):
    chat = chat or chat_of()
    talker, rooms, env = talker or Talker(chat), rooms or Rooms(), env or EnvConfig()
    return play(episodes, rooms, talker, chat, make_prompt_format(env), env, settings, **options), talker, rooms


# ---- one episode


def test_an_episode_is_recorded_as_it_happened():
    (t,), talker, rooms = run([Episode("a", 2)])
    assert (t.id, t.task_id, t.n, t.update, t.seed) == ("u000007/a/n2", "a", 2, 7, 3)
    assert (t.success, t.returned, t.truncated, t.infra_failure) == (True, 1.0, False, None)
    assert [s.observation for s in t.steps] == [f"you are at desk {k}" for k in range(4)]
    assert [s.holding for s in t.steps] == [f"mug {k}" for k in range(4)]
    assert [s.reward for s in t.steps] == [0.0, 0.0, 0.0, 1.0]
    assert t.final_observation == "you are at desk 4"
    assert all(s.admissible and s.parsed and s.action == "go" for s in t.steps)
    assert rooms.made[0].closed == 1
    assert talker.live == 0


def test_recorded_ids_are_the_ids_that_were_seen_and_sampled():
    (t,), talker, _ = run([Episode("a", 0)])
    assert [s.prompt_ids for s in t.steps] == talker.prompts
    for before, after in zip(t.steps, t.steps[1:]):
        seen = before.prompt_ids + before.response_ids
        assert after.prompt_ids[: len(seen)] == seen


@pytest.mark.parametrize("layout", ["conversation", "step"])
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("limit", [200, 40])
def test_every_prompt_can_be_rendered_again_from_the_record(layout, window, limit):
    """What the teacher's context is built from: H(h, "") is h, whatever was dropped."""
    chat, env = chat_of(), EnvConfig(layout=layout, history_window=window)
    settings = replace(SETTINGS, max_prompt_tokens=limit)
    (t,), _, _ = run([Episode("a", 0)], chat=chat, env=env, settings=settings)
    assert t.success
    for k, step in enumerate(t.steps):
        messages = make_prompt_format(env).messages(history_of(t, k), skill="", kept_from=step.kept_from)
        assert chat.render(messages) == step.prompt_ids
        assert len(step.prompt_ids) <= limit
    if limit == 40 and layout == "conversation":
        assert t.steps[-1].kept_from > 0


def test_progress_adds_up_to_the_distance():
    (t,), _, _ = run([Episode("a", 0)], settings=replace(SETTINGS, track_progress=True))
    assert [s.progress for s in t.steps] == [1.0] * 4
    (t,), _, _ = run([Episode("a", 0)])
    assert [s.progress for s in t.steps] == [None] * 4


def test_the_step_limit_of_the_environment_marks_truncation():
    (t,), _, _ = run([Episode("a", 0)], talker=Talker(chat_of(), say=lambda s: "stop"))
    assert (len(t.steps), t.truncated, t.success, t.steps[0].admissible) == (1, True, False, False)


# ---- limits


def test_an_answer_cut_by_the_context_ends_the_episode_as_truncated():
    (t,), _, rooms = run([Episode("a", 0)], talker=Talker(chat_of(), finish="length"))
    assert (len(t.steps), t.truncated, t.success) == (1, True, False)
    assert t.final_observation == "you are at desk 1"
    assert rooms.made[0].closed == 1


def test_an_answer_as_long_as_allowed_is_not_cut_by_the_context():
    (t,), _, _ = run([Episode("a", 0)], talker=Talker(chat_of(), say=lambda s: "a b c a b c", finish="length"))
    assert (len(t.steps), t.truncated) == (4, False)
    assert {s.finish for s in t.steps} == {"length"}


def test_a_task_that_fits_no_prompt_is_an_error_and_never_reaches_the_engine():
    talker = Talker(chat_of())
    with pytest.raises(PromptTooLong, match="u000007/a/n0"):
        run([Episode("a", 0)], talker=talker, settings=replace(SETTINGS, max_prompt_tokens=8))
    assert (talker.prompts, talker.live) == ([], 0)


def test_an_observation_that_fits_no_prompt_ends_the_episode_as_truncated():
    class Grows(Room):
        def step(self, action):
            found = super().step(action)
            return replace(found, observation="desk " * 60) if self.place == 2 else found

    class Growing(Rooms):
        def make(self, task_id):
            self.made.append(Grows(task_id))
            return self.made[-1]

    rooms, settings = Growing(), replace(SETTINGS, max_prompt_tokens=50)
    (t,), talker, _ = run([Episode("a", 0)], rooms=rooms, settings=settings)
    assert (len(t.steps), t.truncated, t.success) == (2, True, False)
    assert t.final_observation == "desk " * 60
    assert max(map(len, talker.prompts)) <= 50


# ---- faults of the environment


def test_an_infrastructure_failure_is_named_and_does_not_stop_the_others():
    class OneBad(Rooms):
        def make(self, task_id):
            self.made.append(Room(task_id, fault=2 if task_id == "b" else None))
            return self.made[-1]

    found, talker, rooms = run([Episode(t, 0) for t in "abc"], rooms=OneBad())
    assert [t.infra_failure for t in found] == [None, "worker died", None]
    assert [t.success for t in found] == [True, False, True]
    assert len(found[1].steps) == 2, "the step that failed is not recorded"
    assert [r.closed for r in rooms.made] == [1, 1, 1]
    assert talker.live == 0
    assert build_rows(found, "conversation")[1].trajectory == 2


def test_a_bug_of_the_environment_is_raised_and_the_environment_closed():
    class Buggy(Room):
        def step(self, action):
            raise ZeroDivisionError("bug")

    class Bugs(Rooms):
        def make(self, task_id):
            self.made.append(Buggy(task_id))
            return self.made[-1]

    rooms, talker = Bugs(), Talker(chat_of())
    with pytest.raises(ZeroDivisionError):
        run([Episode("a", 0)], rooms=rooms, talker=talker)
    assert ([r.closed for r in rooms.made], talker.live) == ([1], 0)


# ---- many episodes


def told(trajectories):
    return [(t.id, [s.response_ids for s in t.steps], [s.prompt_ids for s in t.steps], t.returned) for t in trajectories]


def by_key(sampling):
    return "go" if sampling.key % 3 else "a b"


def test_blocks_and_arrival_order_change_nothing():
    episodes = [Episode(task, n) for task in "abc" for n in range(3)]
    chat = chat_of()
    expected, _, _ = run(episodes, talker=Talker(chat, by_key))
    for at_once in (1, 2, 4, 9, 50):
        got, talker, _ = run(episodes, talker=Talker(chat, by_key, hurry=lambda name: hash(name) % 5), at_once=at_once)
        assert told(got) == told(expected)
        assert sum(talker.expected) == 9
        assert max(talker.expected) <= at_once
    backwards, _, _ = run(episodes[::-1], talker=Talker(chat, by_key))
    assert told(backwards[::-1]) == told(expected)


def test_random_streams_are_named_by_seed_phase_update_task_place_and_step():
    def keys(episodes=(Episode("a", 0),), **changes):
        _, talker, _ = run(list(episodes), settings=replace(SETTINGS, **changes))
        return [s.key for _, s in talker.samplings]

    base = keys()
    assert len(set(base)) == 4
    assert keys() == base
    others = [keys(seed=4), keys(phase="eval-"), keys(update=8), keys([Episode("b", 0)]), keys([Episode("a", 1)])]
    assert len(set(sum(others, base))) == 6 * 4


def test_the_engine_is_asked_with_the_settings():
    chat = chat_of()
    _, talker, _ = run([Episode("a", 0)], chat=chat, settings=replace(SETTINGS, temperature=0.4))
    sampling = talker.samplings[0][1]
    assert (sampling.temperature, sampling.max_tokens, sampling.stop_ids) == (0.4, 6, tuple(chat.stop_ids))


def test_every_finished_episode_is_reported_once():
    seen = []
    found, _, _ = run([Episode("a", n) for n in range(3)], on_done=lambda t: seen.append(t.id))
    assert sorted(seen) == [t.id for t in found]
    assert run([])[0] == []


# ---- skills in prompts, thinking templates


def test_a_skill_stands_once_in_every_prompt_of_its_episode():
    chat = chat_of()
    (t,), talker, _ = run([Episode("a", 0, "canary 6 5")], chat=chat)
    assert t.prompt_skill == "canary 6 5"
    texts = [chat.tokenizer.decode(p) for p in talker.prompts]
    assert [text.count("skill : canary 6 5") for text in texts] == [1] * 4
    assert [text.count("canary") for text in texts] == [1] * 4


def test_a_template_that_drops_past_thoughts_splits_the_trajectory_into_rows():
    """Each row is scored under exactly the ids that were seen when its tokens were sampled."""
    chat = chat_of(THINKING)
    (t,), talker, _ = run([Episode("a", 0)], chat=chat, talker=Talker(chat, say=lambda s: "think</think>go"))
    rows = build_rows([t], "conversation")
    assert len(rows) == len(t.steps) == 4
    for row, step, prompt in zip(rows, t.steps, talker.prompts):
        assert row.ids == prompt + step.response_ids
        assert [row.ids[p] for p in row.positions] == step.response_ids
    assert "think" in chat.tokenizer.decode(rows[0].ids)
    assert "think" not in chat.tokenizer.decode(t.steps[-1].prompt_ids)


def test_without_thoughts_the_same_template_gives_one_row():
    chat = chat_of(THINKING)
    (t,), _, _ = run([Episode("a", 0)], chat=chat, talker=Talker(chat))
    assert len(build_rows([t], "conversation")) == 1
    assert len(build_rows([t], "step")) == 4
