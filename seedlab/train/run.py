"""One run from configuration to evaluation, in one folder: base -> Stage 1 -> Stage 2 -> evaluation.

Every link is resumable: base and Stage 1 are cached by content, Stage 2 has checkpoints, an evaluation that is done is
not done again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from seedlab.config.names import flatten
from seedlab.config.presets import config_hash
from seedlab.config.schema import Config
from seedlab.config.starting import refuse_to_start
from seedlab.envs import make_family
from seedlab.errors import UserError
from seedlab.jobs.signals import stop_on_signals
from seedlab.policy.load import load_policy
from seedlab.store import RunWriter
from seedlab.store.checkpoint import latest_checkpoint, verify_checkpoint
from seedlab.store.layout import complete, configuration_of
from seedlab.store.making_room import with_room
from seedlab.store.reader import Run
from seedlab.store.results import append_result, result_row
from seedlab.store.status import read_status
from seedlab.train.base import base_key, initial_policy_path
from seedlab.train.cached import is_built, usable_cache
from seedlab.train.chain import Chain, last_link
from seedlab.train.evaluate import evaluate
from seedlab.train.library import library_of
from seedlab.train.loop import Interrupted, UpdateLoop
from seedlab.train.manifest import environment_manifest
from seedlab.train.missing_parts import refuse_missing_parts
from seedlab.train.prompt_limits import refuse_small_limits
from seedlab.train.session import Progress, Session
from seedlab.train.stage1 import run_stage1
from seedlab.train.stage1_records import keep_records
from seedlab.train.stage2 import Stage2, model_identity


def train(
    cfg: Config, out: str | Path, *, resume: bool = False, progress: Progress | None = None, results: Path | None = None,
    until: str | None = None,
) -> Run:
    """Run `cfg` in the folder `out` and return its reader.

    `until` stops after a link (rollouts, labels, stage1 or stage2); `resume` goes on from there.  Raises RunError where
    the folder holds another run.  Ctrl-C or SIGTERM stops at the next update with a checkpoint, or at once in another
    link (Interrupted); `results` names a file to which the finished run's row is appended.
    """
    last = last_link(cfg, until)
    path = Path(out)
    if not (resume and _finished(cfg, path)):
        refuse_late_faults(cfg, last)
    links, roomier = _links(path), with_room(cfg, path)
    writer = RunWriter.create(path, cfg, resume=resume)
    if until is None and _finished(cfg, path):
        writer.release()  # nothing is left to do, and what the run said of itself stays
        verify_checkpoint(latest_checkpoint(path)[1])
        _append(path, results)
        return Run(path)
    if roomier != cfg:
        writer.event("room made", settings=settings_changed(cfg, roomier))
    torch.set_num_threads(cfg.threads)
    writer.start()
    with stop_on_signals() as stop:
        try:
            _phases(roomier, path, writer, Chain(cfg, writer, stop, progress, until, before=links), results)
        except (Interrupted, KeyboardInterrupt) as error:
            writer.finish("interrupted", exit_code=130, error=str(error) or "interrupted")
            raise
        except BaseException as error:
            writer.finish("failed", exit_code=getattr(error, "exit_code", 1), error=f"{type(error).__name__}: {error}")
            raise
    writer.finish("succeeded", exit_code=0)
    return Run(path)


def refuse_late_faults(cfg: Config, last: str) -> None:
    """UserError, before a folder is made, for what would end the run by link `last`: settings, data, device, packages, or engine."""
    refuse_to_start(cfg)
    library_of(cfg, make_family(cfg.env))
    if cfg.model.path == "tiny" or cfg.initial == "stage1":
        usable_cache()
    refuse_small_limits(cfg)
    refuse_missing_parts(cfg, last)
    if cfg.engine == "verl":
        from seedlab.engines.verl import require

        require()
    elif cfg.model.device != "cpu" and not _has_device(cfg.model.device):
        raise UserError(f"model.device={cfg.model.device}, but torch sees {torch.cuda.device_count()} CUDA devices; set model.device=cpu or run `seedlab doctor`")


def settings_changed(before: Config, after: Config) -> dict[str, object]:
    old, new = (flatten(c.model_dump(mode="json")) for c in (before, after))
    return {key: value for key, value in new.items() if old[key] != value}


def _has_device(name: str) -> bool:
    return torch.cuda.is_available() and (torch.device(name).index or 0) < torch.cuda.device_count()


def resume(out: str | Path, *, progress: Progress | None = None, results: Path | None = None, until: str | None = None) -> Run:
    """Go on with a run folder, with the configuration that it holds."""
    path = Path(out)
    return train(configuration_of(path), path, resume=True, progress=progress, results=results, until=until)


def _phases(cfg: Config, path: Path, writer: RunWriter, chain: Chain, results: Path | None) -> None:
    initial = _initial(cfg, path, writer, chain)
    if initial is None:
        return
    chain.check()
    if chain.last == "sft":
        policy = load_policy(initial, cfg.model)
        _write_manifest(cfg, path, writer, Session(cfg, policy), model_identity(policy), initial)
        return
    with _engine(cfg, path, writer, initial, chain.report) as stage2:
        _train_and_evaluate(cfg, path, writer, stage2, initial, chain)
    if chain.whole:
        _append(path, results)


def _append(path: Path, results: Path | None) -> None:
    if results is not None:
        append_result(results, result_row(Run(path)))


def _links(path: Path) -> list[dict]:
    """What the folder's status says of the links, from an earlier start."""
    return read_status(path).get("links", []) if (path / "status.json").exists() else []


def _finished(cfg: Config, path: Path) -> bool:
    """Whether the folder's run succeeded with every link, and its last checkpoint and evaluation are there."""
    if not (path / "status.json").exists() or not complete(read_status(path)) or (cfg.evaluation.panels and not _evaluated(cfg, path)):
        return False
    saved = latest_checkpoint(path)
    return saved is not None and saved[0] >= cfg.stage2.updates


def _engine(cfg: Config, path: Path, writer: RunWriter, initial: str, report: Progress) -> AbstractContextManager[UpdateLoop]:
    """Stage 2 on the engine of the configuration; what it started ends with the block."""
    if cfg.engine == "verl":
        from seedlab.engines.verl.loop import started

        return started(cfg, path, writer, initial, report)
    return nullcontext(Stage2(cfg, path, writer, initial, report))


def _train_and_evaluate(cfg: Config, path: Path, writer: RunWriter, stage2: UpdateLoop, initial: str, chain: Chain) -> None:
    moved = writer.discard_from(stage2.next_update)
    if moved:
        writer.event("resumed", update=stage2.next_update, discarded_rows=moved)
    _write_manifest(cfg, path, writer, stage2.session, stage2.identity(), initial)
    with chain.link("stage2", there=stage2.next_update >= cfg.stage2.updates):
        stage2.train(lambda: chain.stop.requested)
    if chain.last == "evaluation":
        with chain.link("evaluation", there=_evaluated(cfg, path)):
            _evaluate(cfg, path, writer, stage2, chain.report)


def _initial(cfg: Config, path: Path, writer: RunWriter, chain: Chain) -> str | None:
    """Where Stage 2 starts: theta_sft, or the base model; Stage 1's records are copied into the run.  None where the run
    ends before there is such a policy."""
    with chain.link("base", there=cfg.model.path != "tiny" or is_built(base_key(cfg))):
        base = initial_policy_path(cfg, chain.report)
    if chain.last == "base":
        return None
    if cfg.initial == "base":
        return base
    folder = run_stage1(cfg, chain.report, chain.link, chain.last)
    if chain.last in ("rollouts", "labels"):
        return None
    for name in keep_records(folder, path / "stage1"):
        writer.event("stage 1 records gone from the cache", folder=name)
    return str(folder)


def _write_manifest(cfg: Config, path: Path, writer: RunWriter, session: Session, model: dict, initial: str) -> None:
    if (path / "manifest.json").exists():
        return
    writer.manifest(
        environment_manifest()
        | {
            "preset": cfg.preset, "method": cfg.method, "seed": cfg.seed, "config_hash": config_hash(configuration_of(path)),
            "initial": Path(initial).name if cfg.model.path == "tiny" else initial,
            "model": model,
            "panels": {n: {"hash": p.hash, "tasks": len(p.task_ids)} for n, p in session.panels.items()},
            "panel_tasks": {n: list(p.task_ids) for n, p in session.panels.items()},
        }
    )


def _evaluated(cfg: Config, path: Path) -> bool:
    return (path / "eval" / f"{cfg.stage2.updates:06d}" / "DONE").exists()


def _last_skills(path: Path) -> tuple[str, ...]:
    """Texts of the last update that has accepted skills, from the run folder, so that a resumed run looks for them too."""
    run = Run(path)
    for update in reversed(run.updates):
        frame = run.skills(update)
        if len(frame) and frame["accepted"].any():
            return tuple(frame.loc[frame["accepted"], "text"])
    return ()


def _evaluate(cfg: Config, path: Path, writer: RunWriter, stage2: UpdateLoop, report: Progress) -> None:
    """Each panel once, at the last update; there is no choice of checkpoint by evaluation."""
    update = cfg.stage2.updates
    if _evaluated(cfg, path):
        return
    report("evaluation", 0, len(cfg.evaluation.panels), "panels")
    stage2.before_evaluation()
    library = stage2.library
    known = _last_skills(path) + (() if library is None else tuple(library.texts.values()))
    result = evaluate(stage2.session, update=update, skills=known, library=library)
    writer.evaluation(update, result.episodes, result.summary, result.prompt_skills)
