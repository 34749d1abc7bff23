"""The whole method on the embedded default, as a set of ordinary runs and a report.

Each cell (arm, seed) is a run folder, made as by `seedlab train` in a process of its own, two at a time.  A cell that is
done is skipped, one that was interrupted is resumed, so the demo itself can be stopped and started at any moment.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from seedlab.config.presets import QUICK_OVERRIDES, load_config
from seedlab.config.schema import Config
from seedlab.errors import UserError
from seedlab.store.files import write_json
from seedlab.store.reader import Run
from seedlab.train.link_processes import LinkProcess

DEMO_UPDATES = 24
WATCH_S = 0.5


@dataclass(frozen=True)
class Cell:
    """One run of the demo.  `needs_stage1` cells wait until theta_sft is in the cache."""

    arm: str
    seed: int
    config: Config
    folder: Path

    @property
    def needs_stage1(self) -> bool:
        return self.config.initial == "stage1"


# Arms without a seed of their own: nothing is sampled but the evaluation, whose seed all arms share; or a control.
ONE_SEED = ("vanilla", "seed/shuffled")

# name shown in the report, folder, method, where Stage 2 starts
ARMS = (
    ("Base policy", "base", "vanilla", "base"),
    ("θ_sft without Stage 2", "sft", "vanilla", "stage1"),
    ("GRPO from the base", "grpo-base", "grpo", "base"),
    ("GRPO from θ_sft", "grpo-sft", "grpo", "stage1"),
    ("SEED from θ_sft", "seed-sft", "seed", "stage1"),
    ("SEED, shuffled skills", "seed-shuffled", "seed/shuffled", "stage1"),
)


def cells(out: Path, *, quick: bool, overrides: dict | None = None) -> list[Cell]:
    """Every cell, seeds outermost, so that an unfinished demo has whole comparisons.

    All arms share every setting but the method's own and where Stage 2 starts; those of `ONE_SEED` run once.
    """
    base = dict(QUICK_OVERRIDES) if quick else {"stage2": {"updates": DEMO_UPDATES}}
    found = []
    for seed in range(1 if quick else 3):
        for arm, folder, method, initial in ARMS:
            if method in ONE_SEED and seed > 0:
                continue
            # GRPO's bundle leaves Stage 1 out, as the paper compares it; here one of its arms starts from theta_sft too.
            start = {"method": method, "initial": initial, "seed": seed, "stage1.enabled": initial == "stage1"}
            if method == "vanilla":
                start["stage2.updates"] = 0
            config = load_config("tiny", {**base, **(overrides or {}), **start})
            found.append(Cell(arm, seed, config, out / f"{folder}-s{seed}"))
    return found


@dataclass
class Demo:
    """Runs the cells and writes report.html and demo.json into `out`."""

    out: Path
    quick: bool
    say: Callable[[str], None] = lambda text: print(text, flush=True)
    processes: int = 2
    overrides: dict | None = None
    timings: dict[str, float] = field(default_factory=dict)

    def run(self) -> Path:
        self.out.mkdir(parents=True, exist_ok=True)
        todo = [c for c in cells(self.out, quick=self.quick, overrides=self.overrides) if not is_done(c)]
        skipped = len(cells(self.out, quick=self.quick, overrides=self.overrides)) - len(todo)
        if skipped:
            self.say(f"{skipped} of {skipped + len(todo)} runs are done already and are kept")
        started = time.monotonic()
        if todo:
            self._prepare("base", todo)
            self._run_all(todo)
            self.timings["total_seconds"] = time.monotonic() - started
        return self._report()

    # ---- running

    def _prepare(self, link: str, todo: list[Cell]) -> None:
        """The base policy first: every cell needs it."""
        started = time.monotonic()
        self.say(f"{link}: started, with its progress in {self.out / (link + '.log')}")
        process = LinkProcess([link, todo[0].config.model_dump_json()], self.out / f"{link}.log")
        self._wait({link: process})
        self.timings[f"{link}_seconds"] = time.monotonic() - started

    def _run_all(self, todo: list[Cell]) -> None:
        """Cells from the base run beside Stage 1; the rest follow once theta_sft is there."""
        # the longest of a seed first, so that no core idles long at the end
        waiting = sorted(todo, key=lambda cell: (cell.seed, -_work(cell)))
        running: dict[str, LinkProcess] = {}
        stage1 = next((c for c in waiting if c.needs_stage1), None)
        stage1_done = stage1 is None
        stage1_started = time.monotonic()
        if stage1 is not None:
            running["stage1"] = LinkProcess(["stage1", stage1.config.model_dump_json()], self.out / "stage1.log")
        try:
            while waiting or running:
                ready = [c for c in waiting if stage1_done or not c.needs_stage1]
                while ready and len(running) < self.processes:
                    cell = ready.pop(0)
                    waiting.remove(cell)
                    running[cell.folder.name] = LinkProcess(link_arguments(cell), self.out / f"{cell.folder.name}.log")
                time.sleep(WATCH_S)
                for name, process in list(running.items()):
                    if process.poll() is None:
                        continue
                    del running[name]
                    if process.returncode != 0:
                        raise UserError(
                            f"{name} ended with exit code {process.returncode}; see {self.out / (name + '.log')}. "
                            "The same command goes on from where it stopped."
                        )
                    if name == "stage1":
                        stage1_done = True
                        self.timings["stage1_seconds"] = time.monotonic() - stage1_started
                    self.say(self._line(name))
                self._live(running, len(waiting))
        except BaseException:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
            raise

    def _wait(self, running: dict[str, LinkProcess]) -> None:
        try:
            while any(p.poll() is None for p in running.values()):
                time.sleep(WATCH_S)
                self._live(running, 0)
        except BaseException:
            for process in running.values():
                process.terminate()
            for process in running.values():
                process.wait()
            raise
        for name, process in running.items():
            if process.returncode != 0:
                raise UserError(f"{name} ended with exit code {process.returncode}; see {self.out / (name + '.log')}")
            self.say(f"{name}: done")

    def _live(self, running: dict, waiting: int) -> None:
        parts = []
        for name in running:
            parts.append(f"{name} [{last_line(self.out / (name + '.log'))}]")
        self.live("  ".join(parts) + (f"  {waiting} waiting" if waiting else ""))

    def live(self, text: str) -> None:
        """Shown on a terminal only; replaced by the command line."""

    def _line(self, name: str) -> str:
        folder = self.out / name
        if not (folder / "config.json").exists():
            return f"{name}: done"
        run = Run(folder)
        scores = ", ".join(f"{r['panel']} macro {r['success_macro']:.2f} micro {r['success_micro']:.2f}" for r in run.evaluations.to_dict("records"))
        return f"{name}: done, success on {scores}"

    # ---- report

    def _report(self) -> Path:
        from seedlab.views.report import write_report

        arms: dict[str, list[Path]] = {}
        for cell in cells(self.out, quick=self.quick, overrides=self.overrides):
            arms.setdefault(cell.arm, []).append(cell.folder)
        record = self.out / "demo.json"
        if record.exists():
            self.timings = merge_times(json.loads(record.read_text(encoding="utf-8"))["timings"], self.timings)
        write_json(record, {"quick": self.quick, "timings": self.timings, "arms": {k: [p.name for p in v] for k, v in arms.items()}})
        return write_report(
            arms, self.out / "report.html", title="seedlab demo" + (" (quick)" if self.quick else ""), quick=self.quick,
            timings=self.timings,
        )


def merge_times(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    """Seconds over all calls of an interrupted demo: the total adds up; a link that the cache gave the second time took none."""
    merged = {name: max(before.get(name, 0.0), now.get(name, 0.0)) for name in before | now}
    return merged | {"total_seconds": before.get("total_seconds", 0.0) + now.get("total_seconds", 0.0)}


def _work(cell: Cell) -> int:
    """What a cell costs, roughly: a skill's writing and scoring add about half to an update."""
    return cell.config.stage2.updates * (3 if cell.config.objective.uses_teacher else 2)


def link_arguments(cell: Cell) -> list[str]:
    """What makes or resumes a cell; the configuration goes along whole, so nothing is resolved twice."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    return ["cell", cell.config.model_dump_json(), str(cell.folder)]


def is_done(cell: Cell) -> bool:
    """Whether the cell's run succeeded with this very configuration; another configuration is an error."""
    if not (cell.folder / "config.json").exists():
        return False
    run = Run(cell.folder)
    if run.config != cell.config:
        raise UserError(f"{cell.folder} holds a run with other settings (another version or --quick); choose another --out")
    return run.status["state"] == "succeeded"


def last_line(path: Path) -> str:
    if not path.exists():
        return ""
    with open(path, "rb") as source:
        source.seek(max(0, path.stat().st_size - 400))
        lines = source.read().decode("utf-8", "replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")[:70]


def processes_for_machine() -> int:
    """Two on two cores; more cores run more cells at once, each with one thread."""
    return max(1, min(8, len(os.sched_getaffinity(0))))
