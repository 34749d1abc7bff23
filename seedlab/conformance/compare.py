"""Our engine against a recorded walk: the first difference, with what led to it."""

from __future__ import annotations

from dataclasses import dataclass

from seedlab.conformance.transcripts import State, Transcript, WalkId
from seedlab.envs.household.engine import Household
from seedlab.envs.household.world import World

_SHOWN = 400  # characters of a text in a printed transcript


@dataclass(frozen=True)
class Difference:
    """Turn 0 is the reset.  `official` and `ours` are the two values of `what`."""

    walk: WalkId
    turn: int
    what: str
    official: object
    ours: object
    transcript: Transcript

    def __str__(self) -> str:
        past = zip(self.transcript.commands[: self.turn], self.transcript.states[1:])
        lines = [f"{self.walk.game}, walk {self.walk.walk} (seed {self.walk.seed}), turn {self.turn}: {self.what} differs"]
        lines += [f"  {_short(self.transcript.states[0].observation)}"]
        for number, (command, state) in enumerate(past, 1):
            lines.append(f"  {number:>3} > {_short(command)}")
            if number < self.turn:
                lines.append(f"      {_short(state.observation)}")
        if self.what == "admissible commands":
            official, ours = set(self.official), set(self.ours)
            lines += [f"  official only: {sorted(official - ours)}", f"  ours only:     {sorted(ours - official)}"]
            if official == ours:
                lines.append("  (the same commands in another order)")
        else:
            lines += [f"  official: {self.official!r}", f"  ours:     {self.ours!r}"]
        return "\n".join(lines)


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}... ({len(text)} characters)"


def compare(walk: WalkId, world: World, transcript: Transcript) -> Difference | None:
    """Play the recorded commands on our engine; None where every text, command list, score, won and done agrees."""
    env = Household(world, walk.game, 10**9, 1.0)
    ours = State(env.reset(), tuple(env.admissible()), env.won, 0, env.done)
    for turn, official in enumerate(transcript.states):
        if turn:
            result = env.step(transcript.commands[turn - 1])
            ours = State(result.observation, tuple(env.admissible()), result.info.won, result.info.score, result.done)
        for name, what in _FIELDS:
            if getattr(official, name) != getattr(ours, name):
                return Difference(walk, turn, what, getattr(official, name), getattr(ours, name), transcript)
    return None


_FIELDS = (
    ("observation", "observation"), ("won", "won"), ("score", "score"), ("done", "done"),
    ("admissible", "admissible commands"),
)  # fmt: skip
