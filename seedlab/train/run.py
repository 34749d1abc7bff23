"""One run from configuration to evaluation, in one folder: base -> Stage 1 -> Stage 2 -> evaluation.

Every link is resumable: base and Stage 1 are cached by content, Stage 2 has checkpoints, an evaluation that is done is
not done again.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Callable

import torch

from seedlab.config.presets import config_hash, from_json
from seedlab.config.schema import Config
from seedlab.jobs.signals import StopFlag, stop_on_signals
from seedlab.store import RunError, RunWriter
from seedlab.store.reader import Run
from seedlab.store.results import append_result, result_row
from seedlab.store.writer import stored_config_text
from seedlab.train.evaluate import evaluate
from seedlab.train.loop import Interrupted, UpdateLoop
from seedlab.train.manifest import environment_manifest
from seedlab.train.session import Progress
from seedlab.train.stage1 import initial_policy_path, run_stage1
from seedlab.train.stage1_records import keep_records
from seedlab.train.stage2 import Stage2


def train(
    cfg: Config, out: str | Path, *, resume: bool = False, progress: Progress | None = None, results: Path | None = None,
) -> Run:
    """Run `cfg` in the folder `out` and return its reader.

    Raises RunError where the folder holds another run.  Ctrl-C or SIGTERM stops at the next update with a checkpoint
    (Interrupted); `results` names a file to which the finished run's row is appended.
    """
    if cfg.engine == "verl":
        from seedlab.engines.verl import require

        require()  # before a folder is made
    path = Path(out)
    writer = RunWriter.create(path, cfg, resume=resume)
    torch.set_num_threads(cfg.threads)
    writer.start()

    def report(phase: str, done: int, total: int, note: str = "") -> None:
        writer.progress(phase, done, total, note)
        if progress is not None:
            progress(phase, done, total, note)

    with stop_on_signals() as stop:
        try:
            _phases(cfg, path, writer, report, stop, results)
        except (Interrupted, KeyboardInterrupt) as error:
            writer.finish("interrupted", exit_code=130, error=str(error) or "interrupted")
            raise
        except BaseException as error:
            writer.finish("failed", exit_code=getattr(error, "exit_code", 1), error=f"{type(error).__name__}: {error}")
            raise
    writer.finish("succeeded", exit_code=0)
    return Run(path)


def resume(out: str | Path, *, progress: Progress | None = None, results: Path | None = None) -> Run:
    """Go on with a run folder, with the configuration that it holds."""
    path = Path(out)
    return train(from_json(stored_config_text(path), str(path / "config.json")), path, resume=True, progress=progress, results=results)


def _phases(cfg: Config, path: Path, writer: RunWriter, report: Progress, stop: StopFlag, results: Path | None) -> None:
    initial = _initial(cfg, path, writer, report)
    _check(stop)
    with _engine(cfg, path, writer, initial, report) as stage2:
        _train_and_evaluate(cfg, path, writer, stage2, initial, report, stop)
    if results is not None:
        append_result(results, result_row(Run(path)))


def _engine(cfg: Config, path: Path, writer: RunWriter, initial: str, report: Progress) -> AbstractContextManager[UpdateLoop]:
    """Stage 2 on the engine of the configuration; what it started ends with the block."""
    if cfg.engine == "verl":
        from seedlab.engines.verl.loop import started

        return started(cfg, path, writer, initial, report)
    return nullcontext(Stage2(cfg, path, writer, initial, report))


def _train_and_evaluate(cfg, path: Path, writer: RunWriter, stage2: UpdateLoop, initial: str, report: Progress, stop: StopFlag) -> None:
    moved = writer.discard_from(stage2.next_update)
    if moved:
        writer.event("resumed", update=stage2.next_update, discarded_rows=moved)
    _write_manifest(cfg, path, writer, stage2, initial)
    stage2.train(lambda: stop.requested)
    _check(stop)
    _evaluate(cfg, path, writer, stage2, report)


def _check(stop: StopFlag) -> None:
    if stop.requested:
        raise Interrupted("stopped between phases")


def _initial(cfg: Config, path: Path, writer: RunWriter, report: Progress) -> str:
    """Where Stage 2 starts: theta_sft, or the base model; Stage 1's records are copied into the run."""
    if cfg.initial == "base":
        return initial_policy_path(cfg, report)
    if not cfg.stage1.enabled:
        raise RunError("initial=stage1 needs stage1.enabled=true; set it, or initial=base to start from the base policy")
    folder = run_stage1(cfg, report)
    for name in keep_records(folder, path / "stage1"):
        writer.event("stage 1 records gone from the cache", folder=name)
    return str(folder)


def _write_manifest(cfg: Config, path: Path, writer: RunWriter, stage2: UpdateLoop, initial: str) -> None:
    if (path / "manifest.json").exists():
        return
    session = stage2.session
    writer.manifest(
        environment_manifest()
        | {
            "preset": cfg.preset, "method": cfg.method, "seed": cfg.seed, "config_hash": config_hash(cfg),
            "initial": Path(initial).name if cfg.model.path == "tiny" else initial,
            "model": stage2.identity(),
            "panels": {n: {"hash": p.hash, "tasks": len(p.task_ids)} for n, p in session.panels.items()},
            "panel_tasks": {n: list(p.task_ids) for n, p in session.panels.items()},
        }
    )


def _evaluate(cfg: Config, path: Path, writer: RunWriter, stage2: UpdateLoop, report: Progress) -> None:
    """Each panel once, at the last update; there is no choice of checkpoint by evaluation."""
    update = cfg.stage2.updates
    if not cfg.evaluation.panels or (path / "eval" / f"{update:06d}" / "DONE").exists():
        return
    report("evaluation", 0, len(cfg.evaluation.panels), "panels")
    stage2.before_evaluation()
    result = evaluate(stage2.session, update=update, skills=tuple(stage2.skill_texts))
    writer.evaluation(update, result.episodes, result.summary)


def default_out(cfg: Config, root: str | os.PathLike = "runs") -> Path:
    """runs/<preset>-<method>-s<seed>, with slashes as dashes."""
    return Path(root) / f"{cfg.preset}-{cfg.method}-s{cfg.seed}".replace("/", "-").replace("*", "star")


ProgressFactory = Callable[[], Progress]
