"""Compare many games: walks are taken from the reference file where it has them, else recorded now.

Resuming needs nothing of its own: a walk that was recorded is not played on the official engine again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

from seedlab.conformance.compare import Difference, compare
from seedlab.conformance.sources import Source
from seedlab.conformance.transcripts import Reference, Transcript, WalkId, record
from seedlab.envs.household.export import Rules
from seedlab.envs.household.games import GameFileError
from seedlab.envs.protocol import InfrastructureError
from seedlab.envs.textworld.client import ProcessPool

Progress = Callable[[str, int, int, str], None]


@dataclass
class Outcome:
    """`walks` and `turns` count what was compared, by (task type, walk); `failed` are walks the official engine lost."""

    walks: Counter = field(default_factory=Counter)
    turns: Counter = field(default_factory=Counter)
    recorded: int = 0
    games: set[str] = field(default_factory=set)
    differences: list[Difference] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def identical(self) -> bool:
        """Everything asked for was compared and agreed."""
        return bool(self.walks) and not (self.differences or self.refused or self.failed)


def plan_walks(
    sources: Sequence[Source], walks: Sequence[str], episodes: int | None, seed: int, length: int
) -> list[tuple[Source, list[WalkId]]]:
    """Which walks of which game: `episodes` in all, kinds rotating over games; None means every kind once per game."""
    total = len(sources) * len(walks) if episodes is None else episodes
    chosen: dict[int, list[WalkId]] = {}
    for number in range(total):
        turn, game = divmod(number, len(sources))
        source, again = sources[game], turn // len(walks)
        walk = walks[(game + turn) % len(walks)]
        chosen.setdefault(game, []).append(WalkId(source.name, source.key, source.task_type, walk, seed + again, length))
    return [(sources[game], ids) for game, ids in chosen.items()]


def only_recorded(plan: Sequence[tuple[Source, list[WalkId]]], reference: Reference) -> list[tuple[Source, list[WalkId]]]:
    """The part of a plan that the reference answers, for a comparison without the official engine."""
    known = [(source, [walk for walk in ids if reference.get(walk) is not None]) for source, ids in plan]
    return [(source, ids) for source, ids in known if ids]


def verify(
    plan: Sequence[tuple[Source, list[WalkId]]], reference: Reference, *, processes: int, timeout_s: float,
    memoise: bool = True, keep_going: bool = False, progress: Progress = lambda *a: None,
) -> Outcome:
    """Compare every walk of the plan.  Stops at the first difference unless `keep_going`.

    `processes` official engines run at once, each in a process of its own.  One that dies or hangs is replaced and its
    walk tried once more; then the walk counts as failed, with the reason.  OfficialEngineMissing where a walk has to be
    recorded and no official engine is known.
    """
    outcome, lock, stop = Outcome(), threading.Lock(), threading.Event()
    pool = ProcessPool(timeout_s, memoise, keep=processes)
    total, done = sum(len(ids) for _, ids in plan), 0

    def one_game(item: tuple[Source, list[WalkId]]) -> None:
        nonlocal done
        source, ids = item
        if stop.is_set():
            return
        try:
            world, walkthrough = source.open()
        except GameFileError as error:
            with lock:
                outcome.refused[source.name] = str(error)
            return
        for walk, transcript in _transcripts(source, ids, walkthrough, reference, pool, outcome, lock):
            difference = compare(walk, world, transcript)
            with lock:
                outcome.games.add(walk.game)
                outcome.walks[walk.task_type, walk.walk] += 1
                outcome.turns[walk.task_type, walk.walk] += len(transcript.commands)
                done += 1
                progress("verify", done, total, f"{outcome.recorded} played officially, {len(outcome.differences)} differences")
                if difference is not None:
                    outcome.differences.append(difference)
                    if not keep_going:
                        stop.set()
            if stop.is_set():
                return

    try:
        with ThreadPoolExecutor(processes) as threads:
            # Only as many games as threads are opened at a time, so that an error or an interrupt ends it soon.
            items = iter(plan)
            while batch := list(islice(items, processes * 4)):
                list(threads.map(one_game, batch))
    finally:
        pool.close()
    return outcome


def _transcripts(source, ids, walkthrough, reference: Reference, pool: ProcessPool, outcome: Outcome, lock):
    """(walk, what the official engine answers), from the reference or recorded now with one loading of the game."""
    process = None
    try:
        for walk in ids:
            with lock:
                known = reference.get(walk)
            if known is not None:
                yield walk, known
                continue
            transcript: Transcript | None = None
            for attempt in (1, 2):
                try:
                    process = process or _open(source, reference, pool, lock)
                    transcript = record(process, walk, walkthrough())
                    break
                except InfrastructureError as error:
                    if process is not None:
                        process.close()
                    process = None
                    if attempt == 2:
                        with lock:
                            outcome.failed[f"{walk.game} ({walk.walk})"] = str(error)
            if transcript is not None:
                with lock:
                    reference.add(walk, transcript)
                    outcome.recorded += 1
                yield walk, transcript
    finally:
        if process is not None:
            pool.give_back(process)


def _open(source: Source, reference: Reference, pool: ProcessPool, lock):
    process = pool.lease(source.name)

    def rules() -> Rules:
        found = process.ask("rules")
        return Rules(found["domain"], found["grammar"])

    try:
        versions = process.ask("versions")
        with lock:
            reference.check_versions(versions)
        process.ask("load", game=source.official(rules))
    except BaseException:
        process.close()
        raise
    return process
