"""A tiny tokenizer, and trajectories as the episode code leaves them."""

import pytest

from seedlab.config.schema import EnvConfig
from seedlab.episodes.prompts import History, make_prompt_format
from seedlab.episodes.records import Step, Trajectory
from seedlab.policy.chat import ChatRenderer
from seedlab.policy.tiny_tokenizer import build_tokenizer


@pytest.fixture(scope="session")
def chat():
    words = "task skill hold nothing outcome success failure put a mug in desk go to open the you see on 1 2 3 4 : . ,".split()
    return ChatRenderer(build_tokenizer(words, 4096))


@pytest.fixture
def make_trajectory(chat):
    def make(name="u000000/a/n0", turns=3, success=True, env=None, prompt_skill="", ended=True, **changes):
        """Played by hand: each prompt extends the one before where the format allows."""
        prompts = make_prompt_format(env or EnvConfig())
        history = History(goal="put a mug in desk 1.", name=name)
        trajectory = Trajectory(
            id=name, task_id="a", task_type="pick", goal=history.goal, update=0, n=0, seed=0, prompt_skill=prompt_skill
        )
        before = None
        for turn in range(turns):
            history.observations.append(f"You see a mug {turn + 1} on the desk 1.")
            history.holding.append("mug 1" if turn else "")
            messages = prompts.messages(history, skill=prompt_skill)
            ids = None
            if before and prompts.extends:
                ids = chat.extend(*before, messages)
            ids = ids or chat.render(messages)
            # letter by letter, as no tokenizer would encode it: only carried ids can be equal to these
            response = [i for c in f"go to desk {turn + 1}" for i in chat.encode(c)] + ([chat.end_of_turn] if ended else [])
            text = chat.decode(response)
            trajectory.steps.append(
                Step(
                    observation=history.observations[-1], response=text, action=text, prompt_ids=ids, response_ids=response,
                    logprobs=[0.0] * len(response), entropies=[0.0] * len(response), finish="stop", parsed=True,
                    admissible=True, reward=float(success and turn == turns - 1), holding=history.holding[-1],
                )
            )
            history.responses.append(text)
            history.actions.append(text)
            before = (ids, response, messages)
        trajectory.final_observation = "You put the mug 1 in the desk 1."
        trajectory.success, trajectory.returned = success, float(success)
        for key, value in changes.items():
            setattr(trajectory, key, value)
        return trajectory

    return make
