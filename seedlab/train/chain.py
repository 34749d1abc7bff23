"""The links of a run, from base policy to evaluation: which are done, which one works, and stopping between or within.

    base -> rollouts -> labels -> sft -> stage2 -> evaluation

`status.json` lists them.  Base policy and Stage 1 are cached by content, so that a link that is done is never paid for
twice; Stage 2 goes on from its checkpoint; an evaluation that is there is not repeated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import contextmanager

from seedlab.config.schema import Config
from seedlab.errors import UserError
from seedlab.jobs.signals import StopFlag
from seedlab.store import RunWriter
from seedlab.store.layout import LINKS, UNTIL
from seedlab.train.cached import is_built
from seedlab.train.loop import Interrupted
from seedlab.train.session import Progress


def links_of(cfg: Config) -> list[str]:
    """The links that a configuration has: no Stage 1 where Stage 2 starts from the base policy."""
    names = list(LINKS)
    if cfg.initial == "base":
        names = [n for n in names if n not in ("rollouts", "labels", "sft")]
    if not cfg.evaluation.panels:
        names.remove("evaluation")
    return names


def last_link(cfg: Config, until: str | None) -> str:
    """The last link to work on; raises UserError where the configuration has no such link."""
    names = links_of(cfg)
    if until is None:
        return names[-1]
    if until not in UNTIL:
        raise UserError(f"until={until!r} is unknown; use one of {', '.join(UNTIL)}")
    if UNTIL[until] not in names:
        raise UserError(f"until={until}: a run with initial={cfg.initial} has no such link, only {', '.join(names)}")
    return UNTIL[until]


class Chain:
    """Keeps the run's links in its status, and turns a request to stop into Interrupted."""

    def __init__(
        self, cfg: Config, writer: RunWriter, stop: StopFlag, progress: Progress | None, until: str | None = None, before: Sequence[dict] = (),
    ):  # fmt: skip
        self._before = {link["name"]: {k: link[k] for k in ("state", "seconds")} for link in before if link["state"] in ("done", "cached")}
        self.writer, self.stop, self.progress = writer, stop, progress
        self.last = last_link(cfg, until)
        names = links_of(cfg)
        left = names[names.index(self.last) + 1 :]
        self.whole = not left
        self._links = {n: {"name": n, "state": "left out" if n in left else "waiting", "seconds": None} for n in names}
        self._now = ""
        self._say()

    def report(self, phase: str, done: int, total: int, note: str = "") -> None:
        """Progress of the present link.  Raises Interrupted where a stop was asked for: what is half-done in the cache is
        made again anyway.  Stage 2 is asked elsewhere, because it saves a checkpoint first."""
        self.writer.progress(phase, done, total, note)
        if self.progress is not None:
            self.progress(phase, done, total, note)
        if self._now != "stage2":
            self.check()

    def check(self) -> None:
        if self.stop.requested:
            raise Interrupted(f"stopped in link {self._now}" if self._now else "stopped between phases")

    @contextmanager
    def link(self, name: str, key: str | None = None, *, there: bool = False):
        """Work on a link; it counts as cached where its result is `there` already, or `key` is in the cache."""
        there = there or (key is not None and is_built(key))
        started = time.monotonic()
        self._set(name, state="running")
        self._now = name
        yield
        self._now = ""
        said = {"state": "cached" if there else "done", "seconds": round(time.monotonic() - started, 3)}
        # A link that an earlier start of this run made stays as that start said: it took its time, and was not cached.
        self._set(name, **(self._before.get(name, said) if there else said))
        self.check()

    def _set(self, name: str, **fields) -> None:
        self._links[name] |= fields
        self._say()

    def _say(self) -> None:
        self.writer.links(list(self._links.values()))
