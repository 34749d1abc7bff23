"""What the official engine answered, kept in a file, so that a second comparison does not need that engine.

One JSON line per walk.  Admissible commands are kept as what came and went since the turn before: the engine lists them
sorted and without repeats (which is checked when recording), so the list can be made again exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seedlab.conformance.walks import Walker
from seedlab.envs.protocol import InfrastructureError
from seedlab.envs.textworld.client import OfficialProcess
from seedlab.errors import UserError
from seedlab.store.files import append_line, repair_lines, tail_rows


class ReferenceFileError(UserError):
    """A reference file is of another kind or of other engine versions; the message names it."""


@dataclass(frozen=True)
class State:
    """What an engine shows after a command (or after reset)."""

    observation: str
    admissible: tuple[str, ...]
    won: bool
    score: float
    done: bool


@dataclass(frozen=True)
class Transcript:
    """A walk as one engine played it: `states` has one entry more than `commands`, the first after reset."""

    commands: tuple[str, ...]
    states: tuple[State, ...]


@dataclass(frozen=True)
class WalkId:
    """Which walk: `game_key` is a hash of the game's content, so that a changed game is played anew."""

    game: str
    game_key: str
    task_type: str
    walk: str
    seed: int
    length: int

    @property
    def key(self) -> str:
        return f"{self.game_key}/{self.walk}/{self.seed}/{self.length}"


def record(process: OfficialProcess, walk: WalkId, walkthrough: Sequence[str]) -> Transcript:
    """Play one walk on the official engine, whose game is loaded already.  The walk ends with the episode."""
    walker = Walker(walk.game_key, walk.walk, walk.seed, walk.length, walkthrough)
    states, commands = [_state(process, process.ask("reset"))], []
    while not states[-1].done and (command := walker.next(states[-1].admissible)) is not None:
        commands.append(command)
        states.append(_state(process, process.ask("step", command=command)))
    return Transcript(tuple(commands), tuple(states))


def _state(process: OfficialProcess, answer: dict) -> State:
    listed = answer["admissible"]
    if listed != sorted(set(listed)):
        raise InfrastructureError(f"{process.task}: the official engine's command list is not sorted; this version is unknown")
    return State(answer["feedback"], tuple(listed), answer["won"], answer["score"], answer["done"])


class Reference:
    """Recorded walks in a JSON lines file; with `path` None they are kept for the process only."""

    def __init__(self, path: Path | None):
        self.path, self.rows = path, {}
        self.versions: dict[str, str] | None = None
        if path is None or not path.exists():
            return
        repair_lines(path)
        for row in tail_rows(path)[0]:
            if "versions" in row:
                self.versions = row["versions"]
            else:
                self.rows[row["key"]] = row
        if self.rows and self.versions is None:
            raise ReferenceFileError(f"{path}: not a reference of the official engine: its first line names no versions")

    def __len__(self) -> int:
        return len(self.rows)

    def check_versions(self, versions: dict[str, str]) -> None:
        """Note which engine records; ReferenceFileError where the file was made by another version."""
        if self.versions is None:
            self.versions = versions
            self._append({"schema_version": 1, "versions": versions})
        elif self.versions != versions:
            raise ReferenceFileError(
                f"{self.path}: recorded with {self.versions}, this engine is {versions}; name another --reference file"
            )

    def get(self, walk: WalkId) -> Transcript | None:
        row = self.rows.get(walk.key)
        return None if row is None else _unpack(row)

    def add(self, walk: WalkId, transcript: Transcript) -> None:
        row = {"schema_version": 1, "key": walk.key, "game": walk.game, "task_type": walk.task_type, **_pack(transcript)}
        self.rows[walk.key] = row
        self._append(row)

    def _append(self, row: dict) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            append_line(self.path, row)


def _pack(transcript: Transcript) -> dict:
    first, turns, before = transcript.states[0], [], set(transcript.states[0].admissible)
    for command, state in zip(transcript.commands, transcript.states[1:]):
        now = set(state.admissible)
        turns.append([command, state.observation, int(state.won), state.score, int(state.done), sorted(now - before), sorted(before - now)])
        before = now
    return {"intro": first.observation, "admissible": list(first.admissible), "turns": turns}


def _unpack(row: dict) -> Transcript:
    admissible = set(row["admissible"])
    states = [State(row["intro"], tuple(sorted(admissible)), False, 0, False)]
    for _, observation, won, score, done, came, went in row["turns"]:
        admissible = (admissible - set(went)) | set(came)
        states.append(State(observation, tuple(sorted(admissible)), bool(won), score, bool(done)))
    return Transcript(tuple(turn[0] for turn in row["turns"]), tuple(states))


